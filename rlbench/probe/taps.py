"""The act, learn and update taps: write which samples went into which network, when, by which weights.

What a row means is decided on the host after the trial; here is only what must be cheap. Adapters of frameworks
without hooks call ``acted``, ``learned`` and ``updated`` themselves; the PyTorch tap calls ``fed`` and ``updated``.
"""

import itertools
import json
import os
import struct
from threading import get_ident

import numpy as np

from rlbench.probe import clock, stamp
from rlbench.probe.ledger import ACTING, LEARNING, PASS, UNTOLD, UPDATE, Ledger

_PASS = struct.Struct("<qqiiii16s").pack_into
_UPDATE = struct.Struct("<qiid16s").pack_into
_PASS_BYTES, _UPDATE_BYTES = PASS.itemsize, UPDATE.itemsize
# A float row no longer than this is noted as it is: taking its stamp out costs more than writing it whole.
SHORT = 48
_PROCESS = itertools.count()


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
        row_bytes = batch.shape[-1] * 4
        if self.layout == "pixel" or row_bytes > SHORT:
            batch, row_bytes = stamp.extract(self.layout, self.dim, batch), stamp.ID_BYTES[self.layout]
        self.noted(np.ascontiguousarray(batch), row_bytes, module, flags, weights)

    def noted(self, data, row_bytes, module, flags, weights):
        """Write a PASS row whose observations are the array ``data``, ``row_bytes`` each.

        Raises ValueError, and writes nothing, when it is not contiguous.
        """
        ids, passes, _ = self._sets.get(get_ident()) or self._open()
        size = data.nbytes
        start = ids.at
        if start + size > ids.limit:
            ids.grow(size)
        at = passes.at
        if at + _PASS_BYTES > passes.limit:
            passes.grow(_PASS_BYTES)
        ids.map[start : start + size] = data
        ids.at = start + size
        passes.at = at + _PASS_BYTES
        _PASS(passes.map, at, clock.now_ns(), start, size, row_bytes, module, flags, weights)

    def acted(self, observations, weights, module=0):
        """Note an acting pass: ``observations`` (any array of stamped rows) and the parameter that acts."""
        self.fed(as_batch(observations), self._manual(module), ACTING, fingerprint(weights))

    def learned(self, observations, weights=None, module=0):
        """Note that ``observations`` go into the loss of the next optimizer step."""
        mark = fingerprint(weights) if weights is not None else UNTOLD
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
        _, _, updates = self._sets.get(get_ident()) or self._open()
        at = updates.at
        if at + _UPDATE_BYTES > updates.limit:
            updates.grow(_UPDATE_BYTES)
        updates.at = at + _UPDATE_BYTES
        _UPDATE(updates.map, at, clock.now_ns(), optimizer, module, learning_rate, weights)

    def describe(self):
        """Write (again) what modules and optimizers this process has."""
        path = os.path.join(self.folder, "taps-%d.json" % os.getpid())
        content = {"modules": self.modules, "optimizers": self.optimizers, **self.facts}
        # Threads begin at the same time, and each describes.
        temporary = "%s.%d.tmp" % (path, get_ident())
        with open(temporary, "w") as file:
            json.dump(content, file)
        os.replace(temporary, path)

    def _manual(self, module):
        while len(self.modules) <= module:
            self.modules.append({"type": None, "optimizer": 0})
            self.describe()
        return module

    def _open(self):
        """Open and return this thread's ledgers; a fork gets others, since two processes never share a ledger."""
        name = "%d-%d" % (os.getpid(), next(_PROCESS))
        header = {"pid": os.getpid(), "layout": self.layout, "dim": self.dim}
        # A fork inherits modules that its parent described, under another process number.
        self.describe()
        self._sets[get_ident()] = ledgers = (
            Ledger(os.path.join(self.folder, "pass-%s.ids" % name), header),
            Ledger(os.path.join(self.folder, "pass-%s.ledger" % name), header),
            Ledger(os.path.join(self.folder, "update-%s.ledger" % name), header),
        )
        return ledgers


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
