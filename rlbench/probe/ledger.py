"""Ledgers: memory-mapped, append-only files of fixed-size rows, one writer each, readable up to the last row at any
time and after a crash.

A row counts once its first field, a time in nanoseconds, is not zero. Blocks of a ledger are allocated on disk
before they are mapped, so a full disk is an OSError in the writer and never a bus error.
"""

import json
import mmap
import os

import numpy as np

HEADER = 256
RESETS_AT = HEADER - 8
_CHUNK = 1 << 20

# One observation of one environment. The step fields describe the step taken from it (action_ns 0: none was).
ENV = np.dtype([("ready_ns", "<i8"), ("action_ns", "<i8"), ("reward", "<f8"), ("flags", "<i8")])
TERMINATED, TRUNCATED = 1, 2

# One batch of observations fed to a network; ``bytes`` of it lie at ids_offset of the .ids file beside it, row_bytes
# for each observation: its raw stamp, or the whole float32 row where that is short.
PASS = np.dtype(
    [
        ("time_ns", "<i8"),
        ("ids_offset", "<i8"),
        ("bytes", "<i4"),
        ("row_bytes", "<i4"),
        ("module", "<i4"),
        ("flags", "<i4"),
        ("weights", "V16"),
    ]
)
GRADIENT, ACTING, LEARNING = 1, 2, 4
# In place of a fingerprint that was not taken. Four NaNs: zeros are those of weights that are zero at first.
UNTOLD = b"\xff" * 16

# One optimizer step and the fingerprint of one module's weights after it.
UPDATE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("optimizer", "<i4"),
        ("module", "<i4"),
        ("learning_rate", "<f8"),
        ("weights", "V16"),
    ]
)


class Ledger:
    """An append-only file of ``row_bytes``-sized rows; the writer packs into ``map`` at ``at`` and advances ``at``.

    ``header`` (JSON, at most 248 bytes) says who wrote it. Raises FileExistsError when the file is there already:
    two writers never share a ledger.
    """

    def __init__(self, path, header):
        text = json.dumps(header).encode()
        if len(text) > RESETS_AT:
            raise ValueError("ledger header of %d bytes is over %d" % (len(text), RESETS_AT))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.posix_fallocate(self._file, 0, _CHUNK)
        self.map = mmap.mmap(self._file, _CHUNK)
        self.map[: len(text)] = text
        self.at = HEADER
        self.limit = 0
        self._touch(_CHUNK)

    def grow(self, needed):
        """Make room for ``needed`` more bytes after ``at``; raises OSError when the disk is full."""
        limit = self.limit
        while self.at + needed > limit:
            chunk = max(_CHUNK, limit // 4 // _CHUNK * _CHUNK)
            os.posix_fallocate(self._file, limit, chunk)
            limit += chunk
        self.map.resize(limit)
        self._touch(limit)

    def _touch(self, limit):
        """Map the pages up to ``limit`` now: a page first written to in the library's loop costs it much more."""
        pages = np.frombuffer(self.map, np.uint8)[self.limit : limit : mmap.PAGESIZE]
        pages |= 0
        self.limit = limit


def read_header(path):
    """Return the header of the ledger at ``path``, or None while its writer has not written it yet."""
    with open(path, "rb") as file:
        text = file.read(RESETS_AT).rstrip(b"\0")
    return json.loads(text) if text else None


def read_rows(path, dtype):
    """Return the rows written so far as a read-only array of ``dtype``."""
    size = os.path.getsize(path)
    capacity = (size - HEADER) // dtype.itemsize
    if capacity <= 0:
        return np.empty(0, dtype)
    rows = np.memmap(path, dtype, mode="r", offset=HEADER, shape=(capacity,))
    return rows[: _written(rows[dtype.names[0]])]


def _written(times):
    """Number of leading rows whose time is set, by bisection: rows are written in order."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def env_steps(folder):
    """Return ``(steps, observations)`` written so far by all environments under ``folder``.

    Every reset and every step writes one observation; the count of resets is kept in the ledger's header block.
    """
    steps = observations = 0
    for entry in os.scandir(folder):
        if entry.name.startswith("env-") and entry.name.endswith(".ledger"):
            rows = read_rows(entry.path, ENV)
            observations += len(rows)
            steps += len(rows) - read_resets(entry.path)
    return steps, observations


def read_resets(path):
    """Return the number of resets that the environment whose ledger is at ``path`` has seen."""
    with open(path, "rb") as file:
        file.seek(RESETS_AT)
        return int.from_bytes(file.read(8), "little")
