"""Every adapter keeps the contract, each in its real environment, on a small budget of CartPole.

One run per library is shared by all of its tests. A library whose source this machine cannot have (it is not on the
package index, and no copy was given) is skipped with that reason.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from rlbench.catalog.library import load_libraries
from rlbench.catalog.scenario import load_scenario, overridden
from rlbench.contract import CHECKS, Check, Trial
from rlbench.store.reader import read_table
from rlbench.store.schema import TABLES
from tests.conftest import command, skip_without_source

pytestmark = pytest.mark.contract

STEPS = 12_288
LIBRARIES = load_libraries()
SCENARIOS = {"trl": "tokens-ppo"}
FOLDERS: dict[str, Path] = {}


@functools.cache
def ran(name: str) -> Trial:
    folder = FOLDERS[name] = Path(tempfile.mkdtemp(prefix=f"rlbench-contract-{name}-"))
    scenario = load_scenario(SCENARIOS.get(name, "cartpole-ppo"))
    options = ["-l", name, "--seeds", "1", "--set", f"budget.env_steps={STEPS}", "--run-id", "r"]
    subprocess.run(
        command("run", scenario.name, *options), cwd=folder, capture_output=True, timeout=1500, env={**os.environ}
    )
    run = folder / "results" / "r"
    tables = {table: read_table(run, table) for table in TABLES}
    row = tables["trials"].iloc[0].to_dict()
    return Trial(LIBRARIES[name], overridden(scenario, {"budget.env_steps": STEPS}, "test"), row, tables)


@pytest.fixture(params=sorted(LIBRARIES))
def trial(request: pytest.FixtureRequest) -> Trial:
    found = ran(request.param)
    skip_without_source(found.row)
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name.replace(" ", "-"))
def test_the_contract_holds(trial: Trial, check: Check) -> None:
    if trial.row["status"] != "ok" and check is not CHECKS[0]:
        pytest.skip("it did not end well: the first clause fails")
    wrong = check.holds(trial)
    assert wrong is None, f"{wrong}\n{check.advice}"


def test_no_process_is_left(trial: Trial) -> None:
    folder = str(FOLDERS[trial.library.name])
    assert not [each for each in psutil.process_iter(["cwd"]) if str(each.info["cwd"]).startswith(folder)]
