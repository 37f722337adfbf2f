"""Starts Spinning Up's MPI processes (rank.py) and waits for them.

The library's own ``mpi_fork`` starts the running program again, from its first line; hence mpiexec here.
"""

import signal
import subprocess
import sys
from pathlib import Path

import torch

from rlbench.probe import clock

# What the ranks leave in the folder that they share.
WEIGHTS, FAILED = "weights.pt", "failed-%d.txt"


def train_apart(trial, folder):
    """Train in ``trial.workers`` MPI processes and return the weights that all of them end with.

    ``folder`` receives what the library logs. Raises RuntimeError when one of them fails or is killed.
    """
    deadline = "none" if trial.seconds is None else str(clock.now_ns() + int(trial.seconds * 1e9))
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-launcher", "fork", "-n", str(trial.workers)]
    rank = [sys.executable, str(Path(__file__).with_name("rank.py")), trial.folder, folder, deadline]
    code = subprocess.run([*mpiexec, *rank]).returncode
    told = sorted(Path(folder).glob(FAILED.replace("%d", "*")))
    if told:
        raise RuntimeError(told[0].read_text())
    if code:
        raise RuntimeError(_meaning(code))
    return torch.load(Path(folder) / WEIGHTS)


def _meaning(code):
    """Say what mpiexec's exit code tells: it is the number of the signal where a process was ended by one."""
    if code < 0:
        return "mpiexec was ended by %s" % signal.Signals(-code).name
    # Python itself exits with 1 on errors, the number of SIGHUP.
    if code > 1 and code in set(signal.Signals):
        return "an MPI process was ended by %s, and mpiexec ended the others" % signal.Signals(code).name
    return "mpiexec exited with code %d" % code
