"""The contract that every adapter keeps, each in its real environment, on a small budget of CartPole.

One run per library is shared by all of its tests. A library that this machine cannot provide (its source is not on
the package index and none was given) is skipped with that reason.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from rlbench.catalog.library import load_libraries
from rlbench.catalog.scenario import load_scenario
from rlbench.store.reader import read_table
from rlbench.store.schema import FIGURES
from tests.conftest import command

pytestmark = pytest.mark.contract

STEPS = 12_288
RANDOM_RETURN = 22
LIBRARIES = load_libraries()


class Ran:
    """One library's finished trial: its row, its tables, and its folder."""

    def __init__(self, name: str) -> None:
        self.library = LIBRARIES[name]
        self.folder = Path(tempfile.mkdtemp(prefix=f"rlbench-contract-{name}-"))
        algorithm = "ppo" if "ppo" in self.library.capabilities.algorithms else self.library.capabilities.algorithms[0]
        self.scenario = load_scenario(f"cartpole-{algorithm}")
        options = ["-l", name, "--seeds", "1", "--set", f"budget.env_steps={STEPS}", "--run-id", "r"]
        self.done = subprocess.run(
            command("run", self.scenario.name, *options),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=1500,
            env={**os.environ, "COLUMNS": "160"},
        )
        self.run = self.folder / "results" / "r"
        self.row: dict[str, Any] = read_table(self.run, "trials").iloc[0].to_dict()
        if self.row["status"] == "unavailable" and self.library.name == "spinup":
            pytest.skip(self.row["reason"])

    def table(self, name: str) -> pd.DataFrame:
        return read_table(self.run, name)


@functools.cache
def ran(name: str) -> Ran:
    return Ran(name)


@pytest.fixture(params=sorted(LIBRARIES))
def trial(request: pytest.FixtureRequest) -> Ran:
    return ran(request.param)


def test_it_installs_trains_and_ends_well(trial: Ran) -> None:
    assert trial.row["status"] == "ok", f"{trial.row['reason']}\n{trial.row['output_tail']}\n{trial.done.stderr}"
    assert trial.done.returncode == 0


def test_it_stops_at_the_budget_within_one_rollout(trial: Ran) -> None:
    steps, algorithm = trial.row["env_steps"], trial.scenario.algorithm
    round_of = getattr(algorithm, "n_steps", 1) * trial.scenario.topology.n_envs
    assert steps is not None
    assert abs(steps - STEPS) <= max(round_of, 1024)


def test_every_figure_is_present_or_null_with_a_reason(trial: Ran) -> None:
    reasons = json.loads(trial.row["null_reasons"])
    for column in FIGURES:
        assert pd.isna(trial.row[column.name]) == (column.name in reasons), column.name
    for name in (
        "env_steps_per_s",
        "ceiling_steps_per_s",
        "action_latency_ms_p50",
        "peak_memory_mb",
        "time_env",
    ):
        assert trial.row[name] > 0, name


def test_stamps_come_back_from_the_learner(trial: Ran) -> None:
    assert trial.row["stamps_decoded"] >= 0.999
    # In one process the weights that acted are always found; learning on anything foreign would be a defect.
    assert trial.row["acting_version_known"] >= 0.9
    assert trial.row["provenance_foreign"] <= 0.001


def test_shares_and_parts_add_up(trial: Ran) -> None:
    row = trial.row
    assert sum(row[f"time_{part}"] for part in ("env", "act", "learn", "other")) == pytest.approx(1, abs=1e-6)
    total = row["provenance_genuine"] + row["provenance_never_acted"] + row["provenance_foreign"]
    assert total == pytest.approx(1)
    assert row["lag_mean"] == pytest.approx(row["sync_lag_mean"] + row["queue_lag_mean"])
    lags = trial.table("lags")
    lag = lags[lags["kind"] == "lag"]
    assert np.average(lag["value"], weights=lag["count"]) == pytest.approx(row["lag_mean"])
    assert trial.table("windows")["env_steps"].sum() == row["env_steps"]
    assert len(trial.table("updates")) == row["updates"]


def test_settings_are_as_asked_or_declared(trial: Ran) -> None:
    audit = trial.table("audit")
    differs = audit[audit["verdict"] == "differs"]
    assert differs.empty, differs[["setting", "asked", "seen", "note"]].to_string()
    declared = set(audit[audit["verdict"] == "not settable"]["setting"])
    assert declared <= set(trial.library.not_settable)


def test_synchronous_ppo_obeys_the_law(trial: Ran) -> None:
    """Where rollouts, epochs and minibatches are as asked, lag runs 0 .. epochs x minibatches - 1, reuse is epochs."""
    algorithm = trial.scenario.algorithm
    if algorithm.name != "ppo":
        pytest.skip("it has no PPO")
    audit = trial.table("audit").set_index("setting")["verdict"]
    if not (audit[["rollout_length", "batch_size", "gradient_steps_per_rollout", "n_epochs"]] == "ok").all():
        pytest.skip("its schedule cannot be set as asked: declared, and shown by the audit")
    minibatches = algorithm.n_steps * trial.scenario.topology.n_envs // algorithm.batch_size
    assert trial.row["lag_min"] == 0
    assert trial.row["lag_max"] == algorithm.n_epochs * minibatches - 1
    assert trial.row["reuse_mean"] == pytest.approx(algorithm.n_epochs, rel=1e-3)


def test_it_learns(trial: Ran) -> None:
    if any("does not learn" in issue.title for issue in trial.library.known_issues):
        pytest.skip("a declared defect of the library, with evidence in its adapter.toml")
    best = max(trial.row["return_greedy"], trial.row["return_last"])
    assert best > 3 * RANDOM_RETURN


def test_it_leaves_no_process_behind(trial: Ran) -> None:
    left = [each for each in psutil.process_iter(["cwd"]) if str(each.info["cwd"]).startswith(str(trial.folder))]
    assert not left
