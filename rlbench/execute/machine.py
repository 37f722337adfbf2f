"""What the harness runs on: stored with every trial, and shown by `rlbench doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from rlbench.catalog.paths import PACKAGE

LIMIT_S = 20.0


def machine() -> dict[str, Any]:
    """Return the facts about this machine that figures depend on; memory in MB of 10**6 bytes.

    ``cores`` are the logical ones, ``cores_usable`` those that this process may run on.
    """
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_mb": round(psutil.virtual_memory().total / 1e6),
        "gpus": gpu_names(),
        "os": _operating_system(),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it, or its architecture where it gives none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """Return the names of the NVIDIA GPUs; empty without a GPU or without its driver."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    output = _output([smi, "--query-gpu=name", "--format=csv,noheader"])
    return [line.strip() for line in (output or "").splitlines() if line.strip()]


def git_commit() -> str | None:
    """Return the commit of the checkout that rlbench runs from, or None when it was installed."""
    root = PACKAGE.parent
    # Not any repository above: rlbench may lie in a virtual environment inside another project's checkout.
    if not (root / ".git").exists():
        return None
    output = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    return output.strip() if output else None


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
