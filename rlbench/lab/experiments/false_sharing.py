"""Counters that share a cache line

Two processes, each on a core of its own, count in shared memory; the distance between their counters is what varies.
"one counter": ``numpy.add.at`` adds 1 to one element again and again, a read-modify-write after another; a core's store
buffer can hide the sharing. "many counters": a native loop adds 1 to 4096 counters that lie 256 bytes apart, so
that every one has to be fetched back from the other core when lines are shared. "put loop": each count follows the copy
of a record by Python, as a buffer's counter does. Counts are per CPU second.
Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rlbench.lab import rings
from rlbench.lab.rows import Row, interleaved, row, select
from rlbench.lab.statistics import Estimate, ratio
from rlbench.lab.verdicts import FAILS, UNTESTED, Verdict, at_least

CLAIM = "Without padding to cache lines, false sharing costs 40 % of the throughput."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"distances": [8, 128], "repeats": 10, "milliseconds": 30},
    "full": {"distances": [8, 16, 32, 64, 128], "repeats": 20, "milliseconds": 50},
}
CHART: dict[str, Any] = {
    "x": "bytes between the counters",
    "panels": [
        {"metric": "one_counter_per_s", "title": "Native loop, one counter", "log": "x"},
        {"metric": "many_counters_per_s", "title": "Native loop, many counters", "log": "x"},
        {"metric": "puts_per_s", "title": "Put loop", "log": "x"},
    ],
}

PADDED, UNPADDED = 128, 8
LOSS = 0.4
TRIES, LEAST_SHARE = 4, 0.85
DISTURBED = "other programs had the cores"
CONDITION = "two processes"
LOOPS = {"one": "one_counter_per_s", "many": "many_counters_per_s", "puts": "puts_per_s"}
STRIDE, COUNTERS = 256, 4096  # bytes; of one process, 256 KiB of cache lines: they stay in its second-level cache


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Time both loops at every distance, distances in turn within a repeat; counts of both processes together."""
    size = SIZES["quick" if quick else "full"]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        reason = "two cores are needed, this process may use one"
        return [row(CONDITION, 0, metric, None, "counts/s", PADDED, reason) for metric in LOOPS.values()]
    rows = []
    cells = [(loop, distance) for distance in size["distances"] for loop in LOOPS]
    for repeat, (loop, distance) in interleaved(cells, size["repeats"]):
        if (loop, distance) == cells[0]:
            note(f"repeat {repeat + 1} of {size['repeats']}")
        counted = _undisturbed(loop, distance, size["milliseconds"] / 1000, cores[:2])
        rows.append(row(CONDITION, repeat, LOOPS[loop], counted, "counts/s", distance, DISTURBED))
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """Judge by the loss in the put loop, which is what a buffer does; the native loop shows whether there is any."""
    one, many, puts = (_loss(rows, metric) for metric in LOOPS.values())
    if one is None or many is None or puts is None:
        reasons = [r["reason"] for r in rows if r["value"] is None]
        missing = f"{len(reasons)} of {len(rows)} measurements were not possible"
        return UNTESTED, f"{missing}: {reasons[0]}." if reasons else "a distance is missing."
    said = (
        f"counters 8 bytes apart lose {_percent(many)} against 128 bytes where a native loop visits many, "
        f"{_percent(one)} where it stays on one, and {_percent(puts)} where each count follows a Python put, over "
        f"{puts.n} repeats"
    )
    found = at_least(puts, LOSS)
    if found == FAILS:
        real = max(one.low, many.low) > 0.1
        return FAILS, f"{said}: " + ("the effect is real, but Python hides most of it." if real else "no such effect.")
    return found, f"{said}."


def _loss(rows: list[Row], metric: str) -> Estimate | None:
    kept = ratio(select(rows, metric, CONDITION, UNPADDED), select(rows, metric, CONDITION, PADDED))
    return kept.map(lambda share: 1 - share) if kept else None


def _percent(loss: Estimate) -> str:
    return f"{100 * loss.value:.0f} % [{100 * loss.low:.0f}, {100 * loss.high:.0f}]"


def _undisturbed(loop: str, distance: int, seconds: float, cores: list[int]) -> float | None:
    """Counts per CPU second, or None when the processes never had both cores to themselves.

    While something else runs on a core, the other process has the cache line to itself.
    """
    for _ in range(TRIES):
        counted, had = _both(loop, distance, seconds, cores)
        if had >= LEAST_SHARE:
            return counted
    return None


def _both(loop: str, distance: int, seconds: float, cores: list[int]) -> tuple[float, float]:
    """Counts per CPU second of two processes that count at the same time, and the least share of its core that one had.

    Their counters are ``distance`` bytes apart.
    """
    memory = rings.shared(COUNTERS * STRIDE // 8 + 512, np.int64)
    control, counts = rings.shared(64, np.int64), rings.shared(64, np.float64)
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(
            target=_count, args=(loop, memory, index * distance // 8, core, control, counts[index * 32 :], seconds)
        )
        for index, core in enumerate(cores)
    ]
    for worker in workers:
        worker.start()
    time.sleep(0.03)
    control[0] = 1
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a counting process ended with exit code {worker.exitcode}")
    return float(counts[0] + counts[32]), float(min(counts[1], counts[33]))


def _count(loop: str, memory: Any, place: int, core: int, control: Any, result: Any, seconds: float) -> None:
    os.sched_setaffinity(0, {core})
    counter, many = memory[place : place + 1], memory[place :: STRIDE // 8][:COUNTERS]
    same = np.zeros(20_000, np.intp)
    slots, record = np.zeros(256, rings.RECORD), np.zeros(1, rings.RECORD)
    while not control[0]:
        pass
    started, used, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < seconds:
        if loop == "many":
            many += 1
            done += COUNTERS
        elif loop == "one":
            np.add.at(counter, same, 1)
            done += len(same)
        else:
            for index in range(256):
                slots[index : index + 1] = record
                counter[0] = counter[0] + 1
            done += 256
    spent = time.process_time() - used
    result[0], result[1] = done / spent, spent / (time.perf_counter() - started)
