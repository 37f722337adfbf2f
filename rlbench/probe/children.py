"""Taps in the processes that a library starts: spawned, forked or started by Ray.

The guest's main process leaves a note in the environment; ``sitecustomize`` (beside this package on PYTHONPATH) calls
``prepare`` in every Python that inherits it. A fork carries the taps over by itself.
"""

import importlib.abc
import importlib.util
import json
import os
import sys

from rlbench.probe.taps import Taps

NOTE = "RLBENCH_TAPS"
_own = {}


def announce(folder, layout, dim, action_dim, backend):
    """Leave the note that child processes find their taps by."""
    note = {"folder": folder, "layout": layout, "dim": dim, "action_dim": action_dim, "backend": backend}
    os.environ[NOTE] = json.dumps(note)


def taps():
    """Return this process's taps, for adapters that call ``acted``, ``learned`` and ``updated`` in a child process.

    Raises KeyError outside a trial. The bare arm of an overhead run announces nothing: ask ``tapped`` first.
    """
    pid = os.getpid()
    if pid not in _own:
        note = json.loads(os.environ[NOTE])
        _own[pid] = Taps(note["folder"], note["layout"], note["dim"])
    return _own[pid]


def tapped():
    """Return whether this process belongs to a trial that is tapped."""
    return NOTE in os.environ


def prepare():
    """In a child process: install the PyTorch tap as soon as the library imports PyTorch."""
    if tapped() and json.loads(os.environ[NOTE])["backend"] == "torch":
        sys.meta_path.insert(0, _AfterTorch())


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Lets others find PyTorch and installs the tap once it is imported; costs nothing to a process without it."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_tap(module):
            execute(module)
            from rlbench.probe import torchtap

            torchtap.install(taps(), json.loads(os.environ[NOTE])["action_dim"])

        spec.loader.exec_module = execute_and_tap
        return spec
