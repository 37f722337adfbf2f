"""A lock on the buffer

Producers put records of 128 bytes one at a time, one learner drains them and does nothing else. "saturated": producers
do nothing but put. "paced": each sleeps 1 ms between puts, as an actor does whose environment takes that long. Items
are records that were taken from a producer; a wait is the time of one put, retries on a full buffer included (100 us
apart). Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rlbench.lab import rings
from rlbench.lab.rows import Row, interleaved, row, select
from rlbench.lab.statistics import ratio
from rlbench.lab.verdicts import UNTESTED, Verdict, at_least

CLAIM = "With 50 actors and one learner, a lock on the buffer is the bottleneck."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"producers": [50], "repeats": 3, "seconds": 0.2},
    "full": {"producers": [1, 4, 16, 50, 64], "repeats": 6, "seconds": 0.3},
}
CHART: dict[str, Any] = {
    "x": "producers",
    "panels": [
        {"metric": "items_per_s", "title": "Saturated: items", "log": "xy"},
        {"metric": "wait_us_p99", "title": "Saturated: wait, p99", "log": "xy"},
        {"metric": "paced_items_per_s", "title": "1 ms between puts: items", "log": "xy"},
        {"metric": "paced_wait_us_p99", "title": "1 ms between puts: wait, p99", "log": "xy"},
    ],
}

ONE, PER_SHARD, SHARDS, QUEUE = "one lock", "lock per shard", "lock-free shards", "multiprocessing.Queue"
WAYS: dict[str, Any] = {
    ONE: rings.OneLock,
    PER_SHARD: rings.LockPerShard,
    SHARDS: rings.LockFreeShards,
    "queue.Queue, threads": rings.ThreadQueue,
    QUEUE: rings.ProcessQueue,
    "guide's ring, no lock": rings.GuideRing,
}
PACED = (ONE, PER_SHARD, SHARDS, QUEUE)
BOTTLENECK = 1.1  # the lock costs when a buffer without it takes at least a tenth more
KEPT = 4096  # waits kept of each producer: its last ones


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Measure every way with every number of producers, ways in turn within a repeat."""
    size = SIZES["quick" if quick else "full"]
    rows = []
    cells = [(way, count, 0.0) for count in size["producers"] for way in WAYS]
    cells += [(way, count, 0.001) for count in size["producers"] if count == 50 for way in PACED]
    for repeat, (way, count, pause) in interleaved(cells, size["repeats"]):
        if (way, count, pause) == cells[0]:
            note(f"repeat {repeat + 1} of {size['repeats']}: {len(cells)} cells of {size['seconds']} s")
        items, waits = throughput(WAYS[way], count, pause, size["seconds"])
        prefix = "paced_" if pause else ""
        rows.append(row(way, repeat, f"{prefix}items_per_s", items, "items/s", count))
        for name, share in (("p50", 50), ("p99", 99)):
            value = float(np.percentile(waits, share)) if waits.size else None
            rows.append(row(way, repeat, f"{prefix}wait_us_{name}", value, "us", count, "no put was finished"))
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """Judge by lock-free shards / one lock, in items per second of 50 producers that do something between puts."""
    saturated, queue, paced, sharded = (
        ratio(select(rows, metric, SHARDS, 50), select(rows, metric, other, 50))
        for metric, other in (
            ("items_per_s", ONE),
            ("items_per_s", QUEUE),
            ("paced_items_per_s", ONE),
            ("paced_items_per_s", PER_SHARD),
        )
    )
    if saturated is None or queue is None or paced is None or sharded is None:
        return UNTESTED, "a way to buffer moved no item at 50 producers."
    found = at_least(paced, BOTTLENECK)
    said = (
        f"with 50 producers and 1 ms between puts, lock-free shards move {paced.text()} times the items of one lock, "
        f"{sharded.text()} times those of a lock per shard; with producers that do nothing but put, {saturated.text()} "
        f"times those of one lock and {queue.text()} times those of multiprocessing.Queue; {paced.n} repeats"
    )
    if found == UNTESTED:
        return UNTESTED, f"{said}: the interval does not settle whether the lock costs a tenth or more."
    return found, f"{said}."


def throughput(kind: Any, producers: int, pause: float, seconds: float) -> tuple[float, np.ndarray]:
    """Return items per second and the waits in us, shape ``(n,)``."""
    way = kind(producers)
    control = rings.shared(2, np.int64)  # go, stop
    counts, waits = rings.shared(producers, np.int64), rings.shared((producers, KEPT), np.float32)
    arguments = [(way, index, pause, control, counts, waits) for index in range(producers)]
    make: Any = threading.Thread if way.threads else multiprocessing.get_context("fork").Process
    workers = [make(target=_produce, args=each, daemon=True) for each in arguments]
    for worker in workers:
        worker.start()
    time.sleep(0.05 + 0.002 * producers)
    control[0] = 1
    # Whatever the start costs is left out: counting begins when all have been let go for a while.
    _drain(way, 0.25 * seconds)
    before, started = counts.sum(), time.perf_counter()
    _drain(way, seconds)
    items, elapsed = counts.sum() - before, time.perf_counter() - started
    control[1] = 1
    until = time.perf_counter() + 10
    while any(worker.is_alive() for worker in workers):
        # A producer that waits for room ends only when there is some.
        way.take(1024)
        if time.perf_counter() > until:
            raise RuntimeError(f"{kind.__name__}: a producer did not end within 10 s")
        time.sleep(0.001)
    kept = [waits[index, : min(int(counts[index]), KEPT)] for index in range(producers)]
    return items / elapsed, np.concatenate(kept)


def _drain(way: Any, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        if not way.take(1024):
            time.sleep(5e-5)


def _produce(way: Any, index: int, pause: float, control: np.ndarray, counts: np.ndarray, waits: np.ndarray) -> None:
    put, mine, done = way.producer(index), waits[index], 0
    record = np.zeros(1, rings.RECORD)
    clock = time.perf_counter_ns
    while not control[0]:
        time.sleep(0.001)
    while not control[1]:
        started = clock()
        while not put(record):
            if control[1]:
                return
            time.sleep(1e-4)
        mine[done % KEPT] = (clock() - started) / 1000
        done += 1
        counts[index] = done
        if pause:
            time.sleep(pause)
