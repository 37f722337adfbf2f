"""Shared memory without a name: nothing is left behind, however the processes end.

A segment of POSIX shared memory lives under /dev/shm until somebody unlinks it, so a process that is killed leaves it.
A memfd has no name: the kernel frees it with the last process that maps it.
"""

import errno
import mmap
import os
import platform
from multiprocessing import reduction

# What counters of two processes must be apart to never share a cache line: adjacent lines are fetched in pairs.
LINE = 128
_ORDERED = ("x86_64", "AMD64", "i686", "i386")


class SharedBlock:
    """``size`` bytes, zeroed, shared with every process that inherits or is sent the object (fork, spawn).

    ``memory`` is a writable buffer for ``numpy.frombuffer``. Raises OSError where memory cannot be had, and on
    processors that may reorder stores: the lock-free parts of the pipeline rely on the total store order of x86
    (a store becomes visible only after all earlier stores of its process).

    >>> block = SharedBlock(4096)
    >>> block.memory[:3] = b"abc"
    >>> bytes(block.memory[:4])
    b'abc\\x00'
    """

    def __init__(self, size):
        if platform.machine() not in _ORDERED:
            raise OSError(
                errno.ENOTSUP,
                "the pipeline's lock-free memory needs a processor that keeps stores in order (x86), this is %s"
                % platform.machine(),
            )
        self.size = size
        descriptor = os.memfd_create("rlbench", os.MFD_CLOEXEC)
        # Allocated now: a full machine is an error here, not a bus error in some process later.
        os.posix_fallocate(descriptor, 0, size)
        self._open(descriptor)

    def _open(self, descriptor):
        self._descriptor = descriptor
        self.memory = mmap.mmap(descriptor, self.size)

    def __getstate__(self):
        return {"size": self.size, "descriptor": reduction.DupFd(self._descriptor)}

    def __setstate__(self, state):
        self.size = state["size"]
        self._open(state["descriptor"].detach())

    def __del__(self):
        # The mapping outlives the descriptor: arrays over it stay valid.
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def counter(block, offset):
    """Return a one-element int64 view at byte ``offset`` (a multiple of 8) of a SharedBlock.

    Element assignment is one aligned 8-byte store and reading it one load, so a value is never seen half-written.
    """
    if offset % 8:
        raise ValueError("a counter at byte %d would not be aligned to 8 bytes" % offset)
    return memoryview(block.memory)[offset : offset + 8].cast("q")


def padded(size, line=LINE):
    """Return ``size`` rounded up to whole lines of ``line`` bytes."""
    return -(-size // line) * line
