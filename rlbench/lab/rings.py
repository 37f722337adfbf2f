"""Ways to hand records from many producers to one learner, behind one small interface, for comparison.

A way is used as ``way.producer(i)`` in producer i (a callable: an array of one record -> whether it was taken) and
``way.take(limit)`` in the learner (-> number of records copied out). All live in anonymous shared memory or in pipes
that forked children inherit, so nothing is left behind when a process is killed.
"""

from __future__ import annotations

import mmap
import multiprocessing
import queue
from collections.abc import Callable
from typing import Any

import numpy as np

# 128 bytes: an observation of a small task with action, reward and the version that acted.
RECORD = np.dtype([("values", np.float32, 30), ("version", np.int64)])
CAPACITY = 16384  # records, over all shards
HEAD, TAIL = 0, 16  # places in the header, 128 bytes apart

Put = Callable[[Any], bool]


def shared(shape: Any, dtype: Any) -> np.ndarray:
    """Return zeros in anonymous shared memory, which forked children map as well."""
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(shape)


class Ring:
    """One ring with head and tail in shared memory; whoever uses it must see to mutual exclusion."""

    def __init__(self, capacity: int) -> None:
        self.header, self.slots, self.capacity = shared(32, np.int64), shared(capacity, RECORD), capacity

    def put(self, record: Any) -> bool:
        """Append one record; False when the ring is full."""
        head = int(self.header[HEAD])
        if head - int(self.header[TAIL]) >= self.capacity:
            return False
        at = head % self.capacity
        self.slots[at : at + 1] = record
        self.header[HEAD] = head + 1
        return True

    def take(self, limit: int, into: np.ndarray) -> int:
        """Copy up to ``limit`` of the oldest records to the start of ``into``; return how many."""
        tail = int(self.header[TAIL])
        count = min(int(self.header[HEAD]) - tail, limit)
        start = tail % self.capacity
        first = min(count, self.capacity - start)
        into[:first] = self.slots[start : start + first]
        into[first:count] = self.slots[: count - first]
        self.header[TAIL] = tail + count
        return count


class OneLock:
    """One ring, one lock for all producers and the learner."""

    threads = False

    def __init__(self, producers: int) -> None:
        self.ring, self.lock = Ring(CAPACITY), multiprocessing.get_context("fork").Lock()
        self.into = np.empty(CAPACITY, RECORD)

    def producer(self, index: int) -> Put:
        def put(record: Any) -> bool:
            with self.lock:
                return self.ring.put(record)

        return put

    def take(self, limit: int) -> int:
        with self.lock:
            return self.ring.take(limit, self.into)


class LockPerShard:
    """A ring and a lock for each producer; the learner goes round."""

    threads = False

    def __init__(self, producers: int) -> None:
        context = multiprocessing.get_context("fork")
        self.shards = [(Ring(max(64, CAPACITY // producers)), context.Lock()) for _ in range(producers)]
        self.into = np.empty(CAPACITY, RECORD)

    def producer(self, index: int) -> Put:
        ring, lock = self.shards[index]

        def put(record: Any) -> bool:
            with lock:
                return ring.put(record)

        return put

    def take(self, limit: int) -> int:
        total = 0
        for ring, lock in self.shards:
            with lock:
                total += ring.take(limit, self.into)
        return total


class LockFreeShards:
    """The pipeline's own buffer: a single-producer single-consumer ring for each producer."""

    threads = False

    def __init__(self, producers: int) -> None:
        from rlbench.pipeline.buffer import ShardedBuffer

        self.buffer = ShardedBuffer(producers, max(64, CAPACITY // producers), RECORD)
        self.shards = [self.buffer.shard(index) for index in range(producers)]
        self.into = np.empty(CAPACITY, RECORD)

    def producer(self, index: int) -> Put:
        shard = self.buffer.shard(index)

        def put(record: Any) -> bool:
            return shard.put(record) == 1

        return put

    def take(self, limit: int) -> int:
        total = 0
        for shard in self.shards:
            found = shard.get(limit)
            count = len(found)
            self.into[:count] = found
            shard.release()
            total += count
        return total


class ThreadQueue:
    """``queue.Queue``: the producers are threads of the learner's process."""

    threads = True

    def __init__(self, producers: int) -> None:
        self.queue: Any = queue.Queue(CAPACITY)
        self.into = np.empty(CAPACITY, RECORD)

    def producer(self, index: int) -> Put:
        def put(record: Any) -> bool:
            try:
                self.queue.put_nowait(record.copy())
            except queue.Full:
                return False
            return True

        return put

    def take(self, limit: int) -> int:
        return _drain(self.queue, limit, self.into)


class ProcessQueue(ThreadQueue):
    """``multiprocessing.Queue``: records are pickled by a thread of the producer and go through one pipe."""

    threads = False

    def __init__(self, producers: int) -> None:
        super().__init__(producers)
        self.queue = multiprocessing.get_context("fork").Queue(CAPACITY)

    def producer(self, index: int) -> Put:
        # What has not been sent when the measurement ends is of no use to anyone.
        self.queue.cancel_join_thread()
        return super().producer(index)


class GuideRing:
    """The guide's ring: no lock, the write counter is read and incremented in two steps, old records are overwritten.

    As in the guide, the learner's ``sample_batch`` gives one row, and nothing tells what was seen already.
    """

    threads = False

    def __init__(self, producers: int, capacity: int = CAPACITY, dtype: Any = RECORD) -> None:
        self.counter, self.slots, self.capacity = shared(1, np.int64), shared(capacity, dtype), capacity
        self.taken, self.random = 0, np.random.default_rng(0)

    def producer(self, index: int) -> Put:
        def put(record: Any) -> bool:
            index = int(self.counter[0])
            self.counter[0] = index + 1
            at = index % self.capacity
            self.slots[at : at + 1] = record
            return True

        return put

    def take(self, limit: int) -> int:
        written = min(int(self.counter[0]), self.capacity)
        if not written:
            return 0
        self.slots[self.random.integers(written)].copy()
        return 1


def _drain(source: Any, limit: int, into: np.ndarray) -> int:
    count = 0
    try:
        while count < limit:
            into[count : count + 1] = source.get_nowait()
            count += 1
    except queue.Empty:
        return count
    return count
