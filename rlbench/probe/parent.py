"""Ends a process with its parent, by the kernel, so that it holds for a parent that was killed outright too."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Have the kernel kill this process when the thread that started it ends. A fork does not inherit it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
