"""Shared by all tests: running the command line as a user does, on a cache of environments that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORACLE = ROOT / "tests" / "oracle"

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def command(*arguments: str) -> list[str]:
    """The command line of rlbench in this interpreter."""
    return [sys.executable, "-c", "from rlbench.cli import main; main()", *arguments]


def heed_signals() -> None:
    """Undo what a test run that was started in the background, or under nohup, would pass on: ignoring these."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def working_in(folder: Path) -> list[int]:
    """Processes whose working directory is in ``folder``."""
    import psutil  # not in the reference environment, whose tests load this module too

    return [
        process.pid
        for process in psutil.process_iter(["cwd"])
        if process.info["cwd"] and Path(process.info["cwd"]).is_relative_to(folder)
    ]


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for what has to come; a failed assertion when it does not."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not come to that in time"
        time.sleep(0.05)


def skip_without_source(row: dict[str, Any]) -> None:
    """Skip the test of a library whose source this machine cannot have: on no index, out of git's reach, no copy."""
    if row["status"] == "unavailable" and "is on no package index" in row["reason"]:
        pytest.skip(row["reason"])


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run ``rlbench ARGUMENTS`` in an empty folder and return the finished process; asserts the exit code."""

    def run(*arguments: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "160", **variables},
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def oracle(cli: Cli, tmp_path: Path) -> Callable[..., Path]:
    """Run variants of the oracle and return the run's folder."""

    def run(*variants: str, extra: tuple[str, ...] = (), code: int = 0, run_id: str = "run") -> Path:
        libraries = ",".join(f"oracle:{variant}" for variant in variants)
        scenario = str(ORACLE / "scenario.toml")
        options = ("--adapters", str(ORACLE), "-l", libraries, "--run-id", run_id, *extra)
        cli("run", scenario, *options, code=code)
        return tmp_path / "results" / run_id

    return run
