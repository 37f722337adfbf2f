"""Runs one guest: its own session, limits, a watch for progress, and nothing left of it afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlbench.catalog.scenario import Limits
from rlbench.execute.guest import guest_variables
from rlbench.execute.keeper import keep
from rlbench.execute.processes import Usage, adopt_orphans, end_family
from rlbench.probe.ledger import UPDATE, env_steps, read_rows

TAIL_LINES = 20
_SAMPLE_S = 0.5
_POLL_S = 0.1


@dataclass
class Ended:
    """How a guest ended: ``status`` as in the trials table, why, and what was sampled meanwhile."""

    status: str
    reason: str | None
    outcome: dict[str, Any]
    wall_s: float
    usage: list[dict[str, Any]] = field(default_factory=list)
    output_tail: str = ""


def supervise(
    python: Path,
    folder: Path,
    code: Path,
    limits: Limits,
    threads: int,
    progress: Callable[[int], None] = lambda steps: None,
    layer: Path | None = None,
) -> Ended:
    """Run the job in ``folder`` under ``python`` and return how it ended.

    ``progress`` hears the steps so far; ``layer`` holds packages beside those of ``python``.

    The guest is ended by force when it runs longer than ``limits.wall_s``, makes no environment step and no update
    for ``limits.stall_s``, or exceeds ``limits.memory_mb``. Whatever happens, Ctrl-C included, no process of it
    is left, nor shared memory that it was seen to use.
    """
    adopt_orphans()
    mark = uuid.uuid4().hex
    keep(mark)
    started = time.monotonic()
    output = folder / "output.log"
    # Not in the trial's folder: libraries open sockets there, whose paths must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="rlbench-", ignore_cleanup_errors=True) as temporary:
        with output.open("wb") as log:
            guest = subprocess.Popen(
                [str(python), "-m", "rlbench.probe.main", str(folder.resolve())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=guest_variables(code, threads, mark, Path(temporary), layer),
                start_new_session=True,
            )
        usage = Usage(guest.pid, mark)
        try:
            verdict = _watch(guest, folder, limits, usage, progress)
        finally:
            end_family(guest.pid, mark)
            usage.remove_segments()
            code_ended = guest.wait()
    wall = time.monotonic() - started
    ended = _judge(verdict, code_ended, folder, wall)
    ended.usage = usage.samples
    if ended.status not in ("ok", "skipped"):
        ended.output_tail = tail(output)
    return ended


def _watch(
    guest: subprocess.Popen[bytes],
    folder: Path,
    limits: Limits,
    usage: Usage,
    progress: Callable[[int], None],
) -> tuple[str, str] | None:
    """Watch until the guest ends (None) or has to be ended (status and reason)."""
    started = moved = time.monotonic()
    seen: tuple[int, int] = (0, 0)
    sampled = 0.0
    while guest.poll() is None:
        now = time.monotonic()
        if now - sampled >= _SAMPLE_S:
            sampled = now
            sample = usage.take()
            steps, signs = _signs_of_life(folder)
            if (steps, signs) != seen:
                seen, moved = (steps, signs), now
                progress(steps)
            memory = sample["memory_mb"] if sample else 0.0
            if limits.memory_mb is not None and memory > limits.memory_mb:
                return "memory", f"used {memory:.0f} MB, over the limit of {limits.memory_mb:.0f} MB"
            if now - moved > limits.stall_s:
                return "stalled", f"made no step and no update for {limits.stall_s:g} s"
            if now - started > limits.wall_s:
                return "timeout", f"ran longer than the limit of {limits.wall_s:g} s"
        time.sleep(_POLL_S)
    return None


def _signs_of_life(folder: Path) -> tuple[int, int]:
    """Environment steps so far, and a number that grows with any sign of progress."""
    steps, observations = env_steps(folder)
    updates = sum(len(read_rows(path, UPDATE)) for path in folder.glob("update-*.ledger"))
    return steps, observations + updates + len(list(folder.glob("*.json")))


def _judge(verdict: tuple[str, str] | None, code: int, folder: Path, wall: float) -> Ended:
    path = folder / "outcome.json"
    outcome = json.loads(path.read_text()) if path.is_file() else {}
    if verdict:
        return Ended(*verdict, outcome, wall)
    if outcome:
        return Ended(outcome["status"], outcome["reason"], outcome, wall)
    if code < 0:
        name = signal.Signals(-code).name
        hint = {signal.SIGKILL: " (out of memory?)", signal.SIGBUS: " (disk full?)"}.get(signal.Signals(-code), "")
        return Ended("killed", f"the guest was ended by {name}{hint}", outcome, wall)
    return Ended("failed", f"the guest exited with code {code} before it wrote an outcome", outcome, wall)


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last ``lines`` lines of a text file, each cut at 500 characters."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 100_000))
        text = file.read().decode(errors="replace")
    return "\n".join(line[:500] for line in text.replace("\r", "\n").splitlines()[-lines:])
