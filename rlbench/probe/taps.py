"""The act, learn and update taps: write which samples went into which network, when, by which weights.

What a row means is decided on the host after the trial; here is only what must be cheap. Adapters of frameworks
without hooks call ``acted``, ``learned`` and ``updated`` themselves; the PyTorch tap calls ``fed`` and ``updated``.
"""

import collections
import itertools
import json
import os
import struct
import threading

import numpy as np

from rlbench.probe import clock, stamp
from rlbench.probe.ledger import ACTING, LEARNING, PASS, UPDATE, Ledger

_PASS = struct.Struct("<qqihh16s").pack_into
_UPDATE = struct.Struct("<qiid16s").pack_into
_PROCESS = itertools.count()
_Ledgers = collections.namedtuple("_Ledgers", "ids passes updates")


class Taps:
    """Writes ``pass-*.ledger`` (with ``.ids``) and ``update-*.ledger`` under ``folder``, one set per thread.

    ``layout`` and ``dim`` are those of the stamped observations. ``modules`` and ``optimizers`` describe what the
    rows' indices mean; ``describe`` writes them to ``taps-<pid>.json``.
    """

    def __init__(self, folder, layout, dim):
        self.folder, self.layout, self.dim = folder, layout, dim
        self.modules, self.optimizers, self.facts = [], [], {}
        self.paused = False
        # By thread number, not threading.local: that forgets a thread of C++ after every callback.
        self._sets = {}
        os.register_at_fork(after_in_child=self._sets.clear)

    def fed(self, batch, module, flags, weights):
        """Note that ``batch`` (numpy, stamped rows in its last dimension) went into ``module`` with ``weights``.

        ``module`` is an index into ``modules``; ``flags`` are those of the PASS row; ``weights`` is a 16-byte
        fingerprint.
        """
        if self.paused:
            return
        raw = stamp.extract(self.layout, self.dim, batch)
        rows, ids, ledger = len(raw), *self._writers()
        data = raw.tobytes()
        size = len(data)
        if ids.at + size > ids.limit:
            ids.grow(size)
        if ledger.at + PASS.itemsize > ledger.limit:
            ledger.grow(PASS.itemsize)
        ids.map[ids.at : ids.at + size] = data
        _PASS(ledger.map, ledger.at, clock.now_ns(), ids.at, rows, module, flags, weights)
        ids.at += size
        ledger.at += PASS.itemsize

    def acted(self, observations, weights, module=0):
        """Note an acting pass: ``observations`` (any array of stamped rows) and the parameter that acts."""
        self.fed(as_batch(observations), self._manual(module), ACTING, fingerprint(weights))

    def learned(self, observations, weights=None, module=0):
        """Note that ``observations`` go into the loss of the next optimizer step."""
        mark = fingerprint(weights) if weights is not None else bytes(16)
        self.fed(as_batch(observations), self._manual(module), LEARNING, mark)

    def updated(self, weights, learning_rate=float("nan"), optimizer=0, module=0):
        """Note the end of an optimizer step that left the parameter ``weights``."""
        while len(self.optimizers) <= optimizer:
            self.optimizers.append({"type": None})
        self.stepped(optimizer, self._manual(module), learning_rate, fingerprint(weights))

    def describe_optimizer(self, kind, parameters, optimizer=0):
        """Say what an optimizer is, for the audit: its class's name and how many parameter elements it owns."""
        while len(self.optimizers) <= optimizer:
            self.optimizers.append({"type": None})
        self.optimizers[optimizer] = {"type": kind, "parameters": int(parameters)}

    def share(self, name, module=0):
        """Say that ``module``'s weights are one with those of other processes' modules of the same name.

        For weights in shared memory that several processes update.
        """
        self.modules[self._manual(module)]["shared"] = name
        self.describe()

    def stepped(self, optimizer, module, learning_rate, weights):
        """Note one optimizer step and the 16-byte fingerprint of ``module``'s weights after it."""
        if self.paused:
            return
        ledger = self._update_writer()
        if ledger.at + UPDATE.itemsize > ledger.limit:
            ledger.grow(UPDATE.itemsize)
        _UPDATE(ledger.map, ledger.at, clock.now_ns(), optimizer, module, learning_rate, weights)
        ledger.at += UPDATE.itemsize

    def describe(self):
        """Write (again) what modules and optimizers this process has."""
        path = os.path.join(self.folder, "taps-%d.json" % os.getpid())
        content = {"modules": self.modules, "optimizers": self.optimizers, **self.facts}
        # Threads begin at the same time, and each describes.
        temporary = "%s.%d.tmp" % (path, threading.get_ident())
        with open(temporary, "w") as file:
            json.dump(content, file)
        os.replace(temporary, path)

    def _manual(self, module):
        while len(self.modules) <= module:
            self.modules.append({"type": None, "optimizer": 0})
            self.describe()
        return module

    def _writers(self):
        mine = self._mine()
        return mine.ids, mine.passes

    def _update_writer(self):
        return self._mine().updates

    def _mine(self):
        """Return this thread's ledgers; a fork gets others, since two processes never share a ledger."""
        thread = threading.get_ident()
        mine = self._sets.get(thread)
        if mine is None:
            mine = self._sets[thread] = self._open()
        return mine

    def _open(self):
        name = "%d-%d" % (os.getpid(), next(_PROCESS))
        header = {"pid": os.getpid(), "layout": self.layout, "dim": self.dim}
        # A fork inherits modules that its parent described, under another process number.
        self.describe()
        return _Ledgers(
            Ledger(os.path.join(self.folder, "pass-%s.ids" % name), header),
            Ledger(os.path.join(self.folder, "pass-%s.ledger" % name), header),
            Ledger(os.path.join(self.folder, "update-%s.ledger" % name), header),
        )


def as_batch(observations):
    """Return observations as an array whose stamps can be read: float32, or uint8 as they are."""
    array = np.asarray(observations)
    return array if array.dtype == np.uint8 else np.asarray(array, np.float32)


def fingerprint(weights):
    """Return 16 bytes that identify a parameter array's state: the raw bits of four strided float32 elements."""
    flat = np.asarray(weights, np.float32).reshape(-1)
    return flat[sample_indices(flat.size)].tobytes().ljust(16, b"\0")


def sample_indices(size):
    """Return the (at most four) fixed positions that a fingerprint reads from ``size`` elements."""
    step = max(1, size // 4)
    return slice(0, min(size, 4 * step), step)
