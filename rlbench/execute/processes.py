"""The guest's process tree: what it uses, and ending all of it whatever it did to escape."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from rlbench.execute.guest import MARK

_PR_SET_CHILD_SUBREAPER = 36
_SHARED_MEMORY = Path("/dev/shm")
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError, PermissionError)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, so that a daemonised grandchild stays in its tree."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def family(pid: int | None, mark: str) -> list[psutil.Process]:
    """Return the live processes of a guest: ``pid`` if given, whoever carries its mark, and their descendants.

    The mark (an environment variable) finds those that left the process group and the tree. Some overwrite it with a
    title of their own: those are found by their parent, or as orphans that this process adopted (see
    ``adopt_orphans``). Guests, and nothing else that it starts, have sessions of their own.
    """
    found = _tree(pid) if pid is not None else {}
    for orphan in psutil.Process().children():
        with contextlib.suppress(*_GONE):
            if os.getsid(orphan.pid) != os.getsid(0):
                found |= _tree(orphan.pid)
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in found:
            with contextlib.suppress(*_GONE):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found |= _tree(int(entry.name))
    return [process for process in found.values() if _alive(process)]


def _tree(pid: int) -> dict[int, psutil.Process]:
    """The process and its descendants, by number; empty when it is gone."""
    with contextlib.suppress(*_GONE):
        root = psutil.Process(pid)
        return {process.pid: process for process in [root, *root.children(recursive=True)]}
    return {}


def end_family(pid: int | None, mark: str, grace_s: float = 3.0) -> int:
    """End every process of a guest: SIGTERM, then SIGKILL until none is left; return how many had to be ended.

    Raises RuntimeError when a process outlives SIGKILL for 30 s.
    """
    ended: set[int] = set()
    # One that was found by its parent is to be found when the parent has ended.
    known: set[psutil.Process] = set()
    terminate_until = time.monotonic() + grace_s
    give_up = terminate_until + 30
    while processes := {each for each in known.union(family(pid, mark)) if _alive(each)}:
        known = processes
        late = time.monotonic() > terminate_until
        for process in processes:
            with contextlib.suppress(*_GONE):
                if late or process.pid not in ended:
                    process.send_signal(signal.SIGKILL if late else signal.SIGTERM)
                ended.add(process.pid)
        if time.monotonic() > give_up:
            raise RuntimeError(f"processes {[process.pid for process in processes]} survive SIGKILL")
        time.sleep(0.05)
        _reap(ended)
    return len(ended)


def _reap(pids: set[int]) -> None:
    """Collect adopted orphans that ended, so that no zombie stays."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False


def shared_memory() -> set[Path]:
    """Return the shared-memory segments that have a name on this machine."""
    return set(_SHARED_MEMORY.iterdir()) if _SHARED_MEMORY.is_dir() else set()


def mapped_segments(pid: int) -> set[Path]:
    """Return the named shared-memory segments that process ``pid`` has mapped; raises OSError when it is gone."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line[line.index("/") :]) for line in lines if f" {_SHARED_MEMORY}/" in line}


class Usage:
    """Samples what a guest's process tree uses.

    ``take`` appends ``time_ns``, ``memory_mb`` (proportional set size), ``cpu_s`` (user + system, ended processes
    included), ``processes``, ``threads``, and the GPU's figures where there is one. ``segments`` are those of shared
    memory that the tree was seen to use and that were not there before it.
    """

    def __init__(self, pid: int | None, mark: str) -> None:
        self.pid, self.mark = pid, mark
        self.samples: list[dict[str, Any]] = []
        self.segments: set[Path] = set()
        self._cpu: dict[int, float] = {}
        self._foreign = shared_memory()

    def take(self) -> dict[str, Any] | None:
        """Take one sample and return it, or None when no process is left."""
        memory = 0.0
        threads = count = 0
        for process in family(self.pid, self.mark):
            with contextlib.suppress(*_GONE):
                memory += process.memory_full_info().pss
                times = process.cpu_times()
                # Each process is booked by itself, at its last sight: children's times would count twice.
                self._cpu[process.pid] = times.user + times.system
                self.segments |= mapped_segments(process.pid) - self._foreign
                threads += process.num_threads()
                count += 1
        if not count:
            return None
        sample = {
            "time_ns": time.monotonic_ns(),
            "memory_mb": memory / 1e6,
            "cpu_s": sum(self._cpu.values()),
            "processes": count,
            "threads": threads,
            **_gpu(set(self._cpu)),
        }
        self.samples.append(sample)
        return sample

    def remove_segments(self) -> None:
        """Remove the shared memory that the tree, now ended, left behind: it would stay until the machine restarts."""
        for path in self.segments:
            path.unlink(missing_ok=True)


def _gpu(pids: set[int]) -> dict[str, float]:
    """Memory (MB) of ``pids`` on all GPUs and mean utilisation, where NVIDIA's library is installed and finds one."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:
        # Not installed, or no driver: the figures stay null with that reason.
        return {}
    used = 0
    for handle in handles:
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid in pids:
                used += process.usedGpuMemory or 0
    busy = sum(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles)
    return {"gpu_memory_mb": used / 1e6, "gpu_utilisation": busy / len(handles) / 100} if used else {}
