"""Parallel and asynchronous modes of every library that declares them: the contract, laws, and death in the middle.

One run per library and mode is shared by the tests of its figures; each fault is a run of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlbench.catalog.library import load_libraries
from rlbench.catalog.scenario import load_scenario, overridden
from rlbench.contract import CHECKS, Check, Trial
from rlbench.execute.processes import mapped_segments, shared_memory
from rlbench.probe.ledger import env_steps, read_header
from rlbench.store.reader import read_table
from rlbench.store.schema import TABLES
from tests.conftest import command, skip_without_source

pytestmark = pytest.mark.contract

LIBRARIES = load_libraries()
WORKERS = 2
# Acme's learner takes two rollouts at a time and fetches one ahead.
STEPS = {"acme": 24_576}
# Each of RLgraph's Ray actors imports TensorFlow and builds the whole graph.
SLOW_TO_START = {"rlgraph"}
MODES = [(name, mode) for name, each in sorted(LIBRARIES.items()) for mode in each.capabilities.modes if mode != "sync"]
HERE = [check for check in CHECKS if check.name not in ("learns", "stops at the budget")]


def _options(name: str, mode: str, *changes: str) -> list[str]:
    settings = [option for change in changes for option in ("--set", change)]
    return [f"cartpole-{mode}", "-l", name, "--seeds", "1", "--run-id", "r", "--workers", str(WORKERS), *settings]


@functools.cache
def ran(name: str, mode: str, *changes: str) -> Trial:
    # A colon would part the folder's name in two where paths are listed.
    folder = Path(tempfile.mkdtemp(prefix=f"rlbench-modes-{name.replace(':', '-')}-"))
    steps = STEPS.get(name, 8192)
    before = shared_memory()
    subprocess.run(
        command("run", *_options(name, mode, f"budget.env_steps={steps}", *changes)),
        cwd=folder,
        capture_output=True,
        timeout=1500,
    )
    assert not _left_over(before)
    assert not _of(folder)
    run = folder / "results" / "r"
    tables = {table: read_table(run, table) for table in TABLES}
    scenario = overridden(
        load_scenario(f"cartpole-{mode}"), {"budget.env_steps": steps, "topology.workers": WORKERS}, "test"
    )
    return Trial(LIBRARIES[name.partition(":")[0]], scenario, tables["trials"].iloc[0].to_dict(), tables)


def _of(folder: Path) -> list[psutil.Process]:
    """Processes that work in the folder."""
    return [each for each in psutil.process_iter(["cwd"]) if str(each.info["cwd"]).startswith(str(folder))]


def _left_over(before: set[Path]) -> set[Path]:
    """Shared memory that is new since ``before`` and that no living process has mapped."""
    used: set[Path] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            used |= mapped_segments(process.pid)
    return shared_memory() - before - used


@pytest.fixture(params=MODES, ids=lambda mode: "-".join(mode))
def trial(request: pytest.FixtureRequest) -> Trial:
    found = ran(*request.param)
    skip_without_source(found.row)
    return found


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.name.replace(" ", "-"))
def test_the_contract_holds(trial: Trial, check: Check) -> None:
    if trial.row["status"] != "ok" and check is not CHECKS[0]:
        pytest.skip("it did not end well: the first clause fails")
    wrong = check.holds(trial)
    assert wrong is None, f"{wrong}\n{check.advice}"


def test_staleness_is_told_apart(trial: Trial) -> None:
    """In step, nobody acts with old weights; all that lag there is, is waiting for the optimizer."""
    row = trial.row
    assert row["status"] == "ok"
    assert row["lag_mean"] >= 0
    if trial.scenario.topology.mode == "workers":
        assert row["sync_lag_mean"] < 0.05 * row["lag_mean"]


def test_sample_factorys_own_lag_agrees_with_ours() -> None:
    """It reports the last minibatch of an iteration, now and then: a handful of readings."""
    trial = ran("sample_factory", "async")
    theirs = float(trial.tables["reported"].set_index("name").loc["lag_mean", "reported"])
    assert theirs == pytest.approx(trial.row["lag_mean"], rel=0.4)


def test_rllibs_own_lag_is_ours_and_one() -> None:
    """IMPALA steps once for each batch, so it counts optimizer steps, with the one that runs."""
    trial = ran("rllib:impala", "async")
    theirs = float(trial.tables["reported"].set_index("name").loc["lag_mean", "reported"])
    assert theirs - 1 == pytest.approx(trial.row["lag_mean"], rel=0.25, abs=0.5)


def test_lag_grows_with_what_is_under_way() -> None:
    """Sample Factory's lag is of the order of epochs x samples under way / batch: with a quarter of them, a quarter."""
    whole = ran("sample_factory", "async")
    quarter = ran("sample_factory", "async", "algorithm.n_steps=64")
    assert 2 < whole.row["lag_mean"] / quarter.row["lag_mean"] < 8


def _broken(name: str, mode: str, fault: Callable[[Path, int], None], *changes: str) -> dict[str, Any]:
    """Run, apply ``fault(ledgers' folder, pid of the guest)`` once all environments step, and return the row."""
    folder = Path(tempfile.mkdtemp(prefix=f"rlbench-modes-{name}-"))
    before = shared_memory()
    # The seconds of the budget begin with training, whose first step may take long.
    seconds = f"budget.seconds={90 if name in SLOW_TO_START else 30}"
    settings = ("budget.env_steps=10000000", seconds, "limits.stall_s=45", *changes)
    harness = subprocess.Popen(
        command("run", *_options(name, mode, *settings)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        ledgers = _stepping(folder, harness)
        guests = [each for each in _of(ledgers) if "rlbench.probe.main" in " ".join(each.cmdline())]
        fault(ledgers, min(each.pid for each in guests))
        output, _ = harness.communicate(timeout=240)
    finally:
        harness.kill()
    assert b"Traceback (most recent call last):\n" not in output, output.decode()
    assert not _of(folder)
    assert not _left_over(before)
    row: dict[str, Any] = read_table(folder / "results" / "r", "trials").iloc[0].to_dict()
    return row


def _stepping(folder: Path, harness: subprocess.Popen[bytes]) -> Path:
    """Wait until every environment of the trial has stepped a while and return the folder of its ledgers."""
    limit = time.monotonic() + 180
    while time.monotonic() < limit and harness.poll() is None:
        for ledger in folder.glob("results/r/.work/*/env-0.ledger"):
            if env_steps(ledger.parent)[0] > 300:
                return ledger.parent
        time.sleep(0.1)
    raise AssertionError("it did not begin to step")


def _worker(ledgers: Path, guest: int) -> int:
    """A process that steps an environment and is not the guest's main one, where there is one."""
    owners = {header["pid"] for path in ledgers.glob("env-*.ledger") if (header := read_header(path))}
    return max(owners - {guest} or {guest})


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_a_killed_worker_costs_one_row(name: str, mode: str) -> None:
    skip_without_source(ran(name, mode).row)
    row = _broken(name, mode, lambda ledgers, guest: os.kill(_worker(ledgers, guest), signal.SIGKILL))
    if row["status"] == "ok":
        assert row["silent_workers"] >= 1, "it went on with a dead worker, and nothing says so"
    else:
        assert row["status"] in ("failed", "killed", "stalled")
        assert row["reason"]


SOME = [("sb3", "workers"), ("rllib", "async"), ("sample_factory", "async"), ("tf_agents", "async")]


@pytest.mark.parametrize(("name", "mode"), SOME)
def test_a_killed_learner_costs_one_row(name: str, mode: str) -> None:
    row = _broken(name, mode, lambda ledgers, guest: os.kill(guest, signal.SIGKILL))
    assert row["status"] == "killed"
    assert "SIGKILL" in row["reason"]


@pytest.mark.parametrize(("name", "mode"), SOME)
def test_a_hanging_worker_costs_one_row(name: str, mode: str) -> None:
    stopped = lambda ledgers, guest: os.kill(_worker(ledgers, guest), signal.SIGSTOP)  # noqa: E731
    row = _broken(name, mode, stopped, "limits.stall_s=40")
    if row["status"] == "ok":
        assert row["silent_workers"] >= 1, "it went on with a stopped worker, and nothing says so"
    else:
        assert row["status"] in ("failed", "killed", "stalled", "timeout")
        assert row["reason"]
