"""Runs experiments one after another in the reference environment; nothing of one is left when the next begins."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rlbench.catalog.library import find_library, load_libraries
from rlbench.catalog.paths import PACKAGE
from rlbench.errors import Unavailable, UserError
from rlbench.execute.guest import guest_code, guest_variables
from rlbench.execute.keeper import keep
from rlbench.execute.processes import adopt_orphans, end_family
from rlbench.execute.supervisor import tail
from rlbench.lab.catalog import Experiment
from rlbench.provision.build import environment

ENVIRONMENT = "reference"
# An experiment that hangs must not hold up the others; the slowest takes a third of this.
LIMIT_S = {"quick": 150.0, "full": 900.0}
_POLL_S = 0.2

Say = Callable[[str], None]


class Found(NamedTuple):
    """What became of one experiment.

    ``status`` is "ok" or "failed"; with "failed", ``reason`` says why, ``output`` holds the end of what it printed, and
    ``verdict`` and ``sentence`` are None.
    """

    name: str
    status: str
    seconds: float
    verdict: str | None
    sentence: str | None
    rows: list[dict[str, Any]]
    versions: dict[str, str]
    reason: str | None = None
    output: str = ""


def interpreter(say: Say) -> Path:
    """Return the Python of the reference environment, building it when need be; raises UserError when it cannot."""
    try:
        return environment(find_library(ENVIRONMENT, load_libraries()), report=say).python
    except Unavailable as error:
        raise UserError(f"the lab needs the environment '{ENVIRONMENT}': {error}") from None


def run_experiment(experiment: Experiment, python: Path, quick: bool, say: Say) -> Found:
    """Measure in a session of its own under a time limit and return what was found.

    Whatever happens, Ctrl-C included, no process of the experiment is left.
    """
    limit = LIMIT_S["quick" if quick else "full"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlbench-lab-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        (folder / "job.json").write_text(json.dumps({"module": experiment.module, "quick": quick}))
        fault = _measure(python, folder, limit, say)
        seconds = time.monotonic() - started
        if fault:
            return Found(
                experiment.name, "failed", seconds, None, None, [], {}, fault, tail(folder / "output.log", lines=30)
            )
        found = json.loads((folder / "found.json").read_text())
    return Found(experiment.name, "ok", seconds, found["verdict"], found["sentence"], found["rows"], found["versions"])


def _measure(python: Path, folder: Path, limit: float, say: Say) -> str | None:
    """Run the guest in ``folder``; return None when it wrote what it found, or else what went wrong."""
    adopt_orphans()
    mark = uuid.uuid4().hex
    keep(mark)
    # One thread each: several processes of an experiment share the cores, and torch's own threads would fight.
    variables = guest_variables(_guest_code(folder / "code"), 1, mark, folder / "tmp")
    with (folder / "output.log").open("wb") as log:
        guest = subprocess.Popen(
            [str(python), "-m", "rlbench.lab.guest", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
    try:
        late = not _follow(guest, folder / "notes.txt", limit, say)
    finally:
        end_family(guest.pid, mark)
        code = guest.wait()
    if late:
        return f"took longer than the limit of {limit:g} s"
    if (folder / "found.json").is_file():
        return None
    lines = tail(folder / "output.log", lines=1)
    return f"exit code {code}" + (f": {lines}" if lines else "")


def _follow(guest: subprocess.Popen[bytes], notes: Path, limit: float, say: Say) -> bool:
    """Pass notes on until the guest ends; False when it is still there after ``limit`` seconds."""
    started, told = time.monotonic(), 0
    while True:
        ended = guest.poll() is not None
        text = notes.read_text(errors="replace") if notes.is_file() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()
        for line in whole[told:]:
            say(line)
        told = len(whole)
        if ended:
            return True
        if time.monotonic() - started > limit:
            return False
        time.sleep(_POLL_S)


def _guest_code(folder: Path) -> Path:
    """Copy what an experiment may import: the guest's part of rlbench, the pipeline and the lab."""
    guest_code(folder)
    for part in ("pipeline", "lab"):
        shutil.copytree(
            PACKAGE / part, folder / "rlbench" / part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
        )
    return folder
