"""Guests that raise, exit, hang, die, hide or eat memory cost one row each, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from rlbench.execute.processes import mapped_segments
from rlbench.store.reader import read_table
from tests.conftest import ORACLE, Cli, command, heed_signals, wait_until, working_in

pytestmark = pytest.mark.e2e


def one(run: Path, variant: str) -> dict[str, Any]:
    trials = read_table(run, "trials")
    row: dict[str, Any] = trials[trials["library"] == f"oracle:{variant}"].iloc[0].to_dict()
    return row


def test_every_fault_is_a_row_with_its_reason_and_the_run_goes_on(oracle: Callable[..., Path]) -> None:
    run = oracle("raises", "exits", "killed", "hangs", "sync", extra=("--set", "limits.stall_s=4"), code=1)
    raised = one(run, "raises")
    assert raised["status"] == "failed"
    assert "RuntimeError: the oracle was told to raise" in raised["reason"]
    assert "Traceback" in raised["output_tail"]
    left = one(run, "exits")
    assert left["status"] == "failed"
    assert "code 7" in left["reason"]
    assert "last words" in left["output_tail"]
    killed = one(run, "killed")
    assert killed["status"] == "killed"
    assert "SIGKILL" in killed["reason"]
    stuck = one(run, "hangs")
    assert stuck["status"] == "stalled"
    assert "4 s" in stuck["reason"]
    assert one(run, "sync")["status"] == "ok"
    assert (run / "report.html").is_file()
    assert not (run / ".work").exists()


def test_limits_on_time_and_memory_are_kept(oracle: Callable[..., Path]) -> None:
    slow = oracle("hangs", extra=("--set", "limits.wall_s=5", "--set", "limits.stall_s=60"), code=1, run_id="slow")
    assert one(slow, "hangs")["status"] == "timeout"
    hungry = oracle("hungry", extra=("--set", "limits.memory_mb=400"), code=1, run_id="hungry")
    row = one(hungry, "hungry")
    assert row["status"] == "memory"
    assert row["peak_memory_mb"] > 400


def test_a_daemon_left_behind_is_ended(
    oracle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "daemon.pid"
    monkeypatch.setenv("RLBENCH_TEST_PIDFILE", str(note))
    oracle("grandchild")
    assert not psutil.pid_exists(int(note.read_text()))


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no named shared memory to look into")
def test_shared_memory_left_behind_is_removed(
    oracle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, other = (Path("/dev/shm") / f"rlbench-test-{tmp_path.name}-{os.getpid()}-{end}" for end in "ab")
    monkeypatch.setenv("RLBENCH_TEST_SEGMENT", str(segment))
    other.write_bytes(b"somebody else's")
    try:
        assert one(oracle("leaky", code=1), "leaky")["status"] == "killed"
        assert not segment.exists()
        assert other.exists()
    finally:
        other.unlink()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no named shared memory to look into")
def test_a_killed_harness_leaves_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment, other = (Path("/dev/shm") / f"rlbench-test-{tmp_path.name}-{os.getpid()}-{end}" for end in "ab")
    monkeypatch.setenv("RLBENCH_TEST_SEGMENT", str(segment))
    other.write_bytes(b"somebody else's")
    try:
        with _started(tmp_path, "-l", "oracle:holds", "--run-id", "r") as harness:
            try:
                wait_until(lambda: any(segment in mapped_segments(pid) for pid in working_in(tmp_path / "results")))
            finally:
                harness.kill()
        wait_until(lambda: not segment.exists(), 20)
        assert not working_in(tmp_path / "results")
        assert other.exists()
    finally:
        other.unlink()


def _started(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command("run", str(ORACLE / "scenario.toml"), "--adapters", str(ORACLE), *arguments),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_signals,
    )


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_keeps_what_is_finished_and_resume_runs_only_the_rest(
    cli: Cli, tmp_path: Path, request_to_end: signal.Signals
) -> None:
    harness = _started(tmp_path, "-l", "oracle:sync,oracle:hangs", "--run-id", "r", "--set", "limits.stall_s=50")
    run = tmp_path / "results" / "r"
    finished = run / "trials" / "oracle-oracle+sync-s1.parquet"
    wait_until(lambda: finished.exists() and working_in(tmp_path / "results"))
    harness.send_signal(request_to_end)
    _, errors = harness.communicate(timeout=30)
    assert harness.returncode == 130
    assert b"--resume" in errors
    assert b"Traceback" not in errors
    assert not working_in(tmp_path / "results")
    assert [path.name for path in (run / "trials").iterdir()] == [finished.name]
    begun = read_table(run, "trials")["started_at"].item()
    # The scenario of a resumed run is the one that it began with.
    done = json.loads((run / "run.json").read_text())
    done["scenarios"][0]["limits"]["stall_s"] = 3
    (run / "run.json").write_text(json.dumps(done))
    cli("run", "--resume", "r", code=1)
    trials = read_table(run, "trials").set_index("library")
    assert trials["status"].to_dict() == {"oracle:sync": "ok", "oracle:hangs": "stalled"}
    assert trials["started_at"]["oracle:sync"] == begun


def test_a_killed_harness_takes_its_guest_along_and_can_be_resumed(cli: Cli, tmp_path: Path) -> None:
    harness = _started(tmp_path, "-l", "oracle:hangs,oracle:sync", "--run-id", "r")
    # The guest and its child, which is in a session of its own.
    wait_until(lambda: len(working_in(tmp_path / "results")) > 1)
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    wait_until(lambda: not working_in(tmp_path / "results"), 20)
    # Nothing of the interrupted trial was stored.
    assert read_table(tmp_path / "results" / "r", "trials").empty
    for stream in (harness.stdout, harness.stderr):
        assert stream is not None
        stream.close()


def test_two_runs_are_read_together_and_by_other_tools(cli: Cli, oracle: Callable[..., Path], tmp_path: Path) -> None:
    import duckdb

    first, second = oracle("sync", run_id="a"), oracle("late", run_id="b")
    assert len(read_table([first, second], "trials")) == 2
    counted = duckdb.sql(f"select library, lag_mean from '{tmp_path}/results/*/trials/*.parquet' order by 1").fetchall()
    assert [row[0] for row in counted] == ["oracle:late", "oracle:sync"]
    assert pd.read_parquet(first / "lags" / "oracle-oracle+sync-s1.parquet")["count"].sum() > 0
    shown = json.loads(cli("compare", "a", "b", "--baseline", "oracle:sync", "--json").stdout)
    assert shown
