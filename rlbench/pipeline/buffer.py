"""The rollout buffer: one single-producer single-consumer ring in shared memory per actor, no lock on the path.

What it relies on, and why no read is torn:

* every counter is written by one process only, by one aligned 8-byte store, and lies on cache lines of its own;
* x86 makes a process's stores visible in order (Intel SDM 3A, 8.2.2), so a record is complete before the counter that
  announces it moves, and released before the counter that frees it moves; other processors are refused (SharedBlock);
* with back-pressure the two sides never touch the same slot: the producer stops at what the consumer has not released;
* with ``overwrite`` the producer may catch up with a consumer that is copying. Every slot therefore has a sequence
  number, zeroed before its record is written and set after; the consumer copies, then checks that the number was the
  expected one before *and* after the copy, and discards the record (counted in ``dropped``) when it was not. Records
  read so are copies and need no release.
"""

import numpy as np

from rlbench.pipeline.shared import LINE, SharedBlock, counter, padded

# A slot begins with its sequence number; records are aligned to 64 bytes, one cache line.
_SLOT_HEADER = 64


class ShardedBuffer:
    """``shards`` rings of ``capacity`` records each; hand it to the processes as it is (fork) or pickled (spawn).

    ``dtype``: numpy structured dtype of one record (a transition or a whole rollout) with an integer field
    ``version``: the policy version that acted. ``overwrite``: False makes a full ring refuse records (back-pressure);
    True makes it overwrite its oldest. ``name`` is for messages only. One process may write to a shard, one may read.

    Raises ValueError for a dtype without ``version`` or with Python objects, and for sizes below one.

    >>> record = np.dtype([("version", "<i8"), ("observation", "<f4", 4)])
    >>> buffer = ShardedBuffer(shards=2, capacity=8, dtype=record)
    >>> rows = np.zeros(3, record)
    >>> rows["version"] = [5, 6, 7]
    >>> buffer.shard(0).put(rows)
    3
    >>> reader = buffer.shard(0)
    >>> reader.get(limit=2)["version"].tolist()
    [5, 6]
    >>> reader.release()
    >>> len(reader)
    1
    """

    def __init__(self, shards, capacity, dtype, overwrite=False, name=None):
        dtype = np.dtype(dtype)
        if dtype.names is None or "version" not in dtype.names:
            raise ValueError("the records of a buffer need a field 'version': the policy version that acted")
        if dtype.hasobject:
            raise ValueError("records with Python objects cannot live in shared memory: use numbers")
        if shards < 1 or capacity < 1:
            raise ValueError("a buffer needs shards >= 1 and capacity >= 1, not %d and %d" % (shards, capacity))
        self.shards, self.capacity, self.dtype = shards, capacity, dtype
        self.overwrite, self.name = overwrite, name or "buffer"
        self._stride = _SLOT_HEADER + padded(dtype.itemsize, 64)
        self._shard_bytes = padded(2 * LINE + capacity * self._stride)
        self._block = SharedBlock(shards * self._shard_bytes)

    @property
    def nbytes(self):
        """Bytes of shared memory."""
        return self._block.size

    def shard(self, index):
        """Return ring ``index``; raises IndexError when there is none."""
        if not 0 <= index < self.shards:
            raise IndexError("%s has shards 0..%d, not %d" % (self.name, self.shards - 1, index))
        return Shard(self._block, index * self._shard_bytes, self.capacity, self._stride, self.dtype, self.overwrite)


class Shard:
    """One ring. The producer calls ``put``, or ``reserve`` and ``commit``; the consumer ``get`` and ``release``.

    Positions count records since the beginning and only grow: ``head`` those written, ``tail`` those released.
    """

    def __init__(self, block, offset, capacity, stride, dtype, overwrite):
        self._block, self.capacity, self.overwrite = block, capacity, overwrite
        self._head = counter(block, offset)
        self._tail = counter(block, offset + LINE)
        self._lost = counter(block, offset + LINE + 8)
        self._limit = counter(block, offset + LINE + 16)
        slots = offset + 2 * LINE
        self._sequence = np.ndarray(capacity, np.int64, block.memory, slots, (stride,))
        self._records = np.ndarray(capacity, dtype, block.memory, slots + _SLOT_HEADER, (stride,))
        self._taken = 0

    def __len__(self):
        """Records that wait to be read; with ``overwrite`` at most ``capacity``."""
        return min(self.capacity, self._head[0] - self._tail[0])

    @property
    def head(self):
        """Records written since the beginning."""
        return self._head[0]

    @property
    def tail(self):
        """Records read (or lost) since the beginning."""
        return self._tail[0]

    @property
    def dropped(self):
        """Records overwritten before they were read, as far as the consumer has noticed at its last ``get``."""
        return self._lost[0]

    @property
    def limit(self):
        """Records that may wait, at most ``capacity``; back-pressure begins here. Set by the consumer."""
        return self._limit[0] or self.capacity

    @limit.setter
    def limit(self, records):
        self._limit[0] = max(1, min(self.capacity, int(records)))

    def free(self):
        """Records that ``put`` would accept now."""
        return self.capacity if self.overwrite else max(0, self.limit - (self._head[0] - self._tail[0]))

    def put(self, records):
        """Copy ``records`` (structured array of the buffer's dtype) in and return how many were accepted.

        With back-pressure these are the first that fit, possibly none; with ``overwrite`` all.
        """
        total, done = len(records), 0
        if not self.overwrite:
            total = min(total, self.free())
        while done < total:
            head = self._head[0]
            at = head % self.capacity
            count = min(total - done, self.capacity - at)
            where = slice(at, at + count)
            if self.overwrite:
                self._sequence[where] = 0
                self._records[where] = records[done : done + count]
                self._sequence[where] = np.arange(head + 1, head + 1 + count)
            else:
                self._records[where] = records[done : done + count]
            self._head[0] = head + count
            done += count
        return total

    def reserve(self):
        """Return the next slot as a writable one-record array to fill in place, or None when the ring is full."""
        if not self.free():
            return None
        at = self._head[0] % self.capacity
        if self.overwrite:
            self._sequence[at] = 0
        return self._records[at : at + 1]

    def commit(self):
        """Announce the slot that ``reserve`` returned."""
        head = self._head[0]
        if self.overwrite:
            self._sequence[head % self.capacity] = head + 1
        self._head[0] = head + 1

    def get(self, limit=None):
        """Return up to ``limit`` oldest waiting records (None: all that lie in one piece), an array, possibly empty.

        With back-pressure it is a view into the ring, valid until ``release``; with ``overwrite`` a copy whose every
        record was checked to be whole.
        """
        head, tail = self._head[0], self._tail[0]
        if head - tail > self.capacity:
            self._lost[0] += head - self.capacity - tail
            tail = head - self.capacity
            self._tail[0] = tail
        at = tail % self.capacity
        count = min(head - tail, self.capacity - at)
        if limit is not None:
            count = min(count, limit)
        where = slice(at, at + count)
        if not self.overwrite:
            self._taken = count
            return self._records[where]
        before = self._sequence[where].copy()
        copy = self._records[where].copy()
        expected = np.arange(tail + 1, tail + 1 + count)
        whole = (before == expected) & (self._sequence[where] == expected)
        if not whole.all():
            self._lost[0] += int(count - whole.sum())
            copy = copy[whole]
        self._tail[0] = tail + count
        return copy

    def release(self, count=None):
        """Free the first ``count`` records of the last ``get`` (None: all of them) for the producer.

        Raises ValueError for more than that. Has nothing to do with ``overwrite``.
        """
        count = self._taken if count is None else count
        if not 0 <= count <= self._taken:
            raise ValueError("%d records cannot be released: the last get returned %d" % (count, self._taken))
        self._tail[0] += count
        self._taken -= count
