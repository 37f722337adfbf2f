"""Counters that share a cache line

Two processes, each on a core of its own, count in shared memory; the distance between their counters is what varies.
"one counter": ``numpy.add.at`` adds 1 to one element again and again, a read-modify-write after another; a core's store
buffer can hide the sharing. "many counters": a native loop adds 1 to 4096 counters that lie 256 bytes apart, so
that every one has to be fetched back from the other core when lines are shared. "put loop": each count follows the copy
of a record by Python, as a buffer's counter does. Only moments at which both processes had their cores count.
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
    "full": {"distances": [8, 16, 32, 64, 128], "repeats": 30, "milliseconds": 60},
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
CHUNKS, LEAST_CHUNKS, SLACK = 20_000, 20, 0.1
DISTURBED = "other programs had the cores"
CONDITION = "two processes"
LOOPS = {"one": "one_counter_per_s", "many": "many_counters_per_s", "puts": "puts_per_s"}
STRIDE, COUNTERS = 256, 4096  # bytes; of one process, 256 KiB of cache lines: they stay in its second-level cache
PER_CHUNK = {"one": 20_000, "many": 4 * COUNTERS, "puts": 100}  # counts between two looks at the clock


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
        counted = _both(loop, distance, size["milliseconds"] / 1000, cores[:2])
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
        native = max(one.low, many.low)
        if native >= LOSS:
            return FAILS, f"{said}: native code can lose that much, a put from Python does not."
        return FAILS, f"{said}: " + (
            "the effect is real, but Python hides most of it." if native > 0.1 else "no such effect."
        )
    return found, f"{said}."


def _loss(rows: list[Row], metric: str) -> Estimate | None:
    kept = ratio(select(rows, metric, CONDITION, UNPADDED), select(rows, metric, CONDITION, PADDED))
    return kept.map(lambda share: 1 - share) if kept else None


def _percent(loss: Estimate) -> str:
    return f"{100 * loss.value:.0f} % [{100 * loss.low:.0f}, {100 * loss.high:.0f}]"


def undisturbed(mine: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which chunks of ``mine`` count, bool (n,): those during which both processes had their cores.

    Rows of both, (n, 3), are a chunk's begin and end and its CPU time, in seconds on one clock, in order. While another
    program runs on one core, the other process has the cache line to itself, and nothing is shared.
    """
    whole = [part[:, 1] - part[:, 0] - part[:, 2] < SLACK * (part[:, 1] - part[:, 0]) + 2e-6 for part in (mine, other)]
    broken_before = np.concatenate([[0], np.cumsum(~whole[1])])
    # The chunks of the other one that were under way when mine began and when it ended.
    first = np.searchsorted(other[:, 0], mine[:, 0], side="right") - 1
    last = np.searchsorted(other[:, 0], mine[:, 1], side="right") - 1
    covered = (first >= 0) & (mine[:, 1] <= other[-1, 1])
    return whole[0] & covered & (broken_before[last + 1] == broken_before[np.maximum(first, 0)])


def _both(loop: str, distance: int, seconds: float, cores: list[int]) -> float | None:
    """Counts per second of two processes ``distance`` bytes apart; None when they too rarely ran at the same time."""
    memory = rings.shared(COUNTERS * STRIDE // 8 + 512, np.int64)
    control, chunks = rings.shared((3, 16), np.int64), rings.shared((2, CHUNKS, 3), np.float64)
    context = multiprocessing.get_context("fork")
    places = (0, distance // 8)
    workers = [
        context.Process(
            target=_count, args=(loop, memory, places[i], cores[i], control, control[1 + i], chunks[i], seconds)
        )
        for i in range(2)
    ]
    for worker in workers:
        worker.start()
    time.sleep(0.03)
    control[0, 0] = 1
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a counting process ended with exit code {worker.exitcode}")
    one, two = (chunks[i, : control[1 + i, 0]] for i in range(2))
    rate = 0.0
    for mine, other in ((one, two), (two, one)):
        kept = mine[undisturbed(mine, other)]
        if len(kept) < LEAST_CHUNKS:
            return None
        rate += PER_CHUNK[loop] * len(kept) / float((kept[:, 1] - kept[:, 0]).sum())
    return rate


def _count(
    loop: str, memory: Any, place: int, core: int, control: Any, done: Any, chunks: np.ndarray, seconds: float
) -> None:
    os.sched_setaffinity(0, {core})
    counter, many = memory[place : place + 1], memory[place :: STRIDE // 8][:COUNTERS]
    same = np.zeros(PER_CHUNK["one"], np.intp)
    slots, record = np.zeros(PER_CHUNK["puts"], rings.RECORD), np.zeros(1, rings.RECORD)
    clock, used = time.perf_counter, time.process_time
    while not control[0, 0]:
        time.sleep(1e-4)
    until = clock() + seconds
    for chunk in range(CHUNKS):
        before, began = used(), clock()
        if began > until:
            break
        if loop == "many":
            for _ in range(PER_CHUNK["many"] // COUNTERS):
                many += 1
        elif loop == "one":
            np.add.at(counter, same, 1)
        else:
            for index in range(PER_CHUNK["puts"]):
                slots[index : index + 1] = record
                counter[0] = counter[0] + 1
        chunks[chunk] = began, clock(), used() - before
        done[0] = chunk + 1
