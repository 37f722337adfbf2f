"""Weight synchronisation between processes

Rank 0 has new weights (float32, 16 tensors) and every rank needs them. Bytes are what all ranks send over TCP together,
from the kernel's own counters, per synchronisation and as multiples of the weights' size; time is from a barrier to the
moment the last rank has the weights. All-reduce averages everybody's weights, which serves the same end when they are
equal. "theory": (n - 1) for a broadcast, 2 (n - 1) for a ring all-reduce, of n ranks together. Ranks that are more than
the cores share them. Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rlbench.lab.rows import Row, interleaved, row, select
from rlbench.lab.statistics import Estimate, mean, ratio
from rlbench.lab.verdicts import UNTESTED, Verdict, at_least
from rlbench.lab.world import run_world, timed

CLAIM = "All-reduce for weight synchronisation costs 3 times the bandwidth of a broadcast."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"ranks": [2, 4], "parameters": [10_000, 1_000_000], "repeats": 4},
    "full": {"ranks": [2, 4, 8], "parameters": [10_000, 100_000, 1_000_000, 10_000_000], "repeats": 8},
}
CHART: dict[str, Any] = {
    "x": "parameters",
    "panels": [
        {"metric": "time_2_ranks", "title": "2 ranks: time", "log": "xy"},
        {"metric": "time_4_ranks", "title": "4 ranks: time", "log": "xy"},
        {"metric": "time_8_ranks", "title": "8 ranks: time", "log": "xy"},
        {"metric": "sent_4_ranks", "title": "4 ranks: sent by all", "log": "x"},
    ],
}

BROADCAST, EACH, REDUCE, MEMORY = "packed broadcast", "broadcast per parameter", "all-reduce average", "shared memory"
METHODS = (BROADCAST, EACH, REDUCE, MEMORY)
TENSORS = 16
CLAIMED = 2.75  # what would round to 3


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Measure every method at every size, in turn within a repeat, once per number of ranks."""
    import torch  # noqa: F401  so that the ranks are forked with it

    from rlbench.pipeline.sync import WeightPublisher

    size = SIZES["quick" if quick else "full"]
    rows: list[Row] = []
    for ranks in size["ranks"]:
        note(f"{ranks} ranks, {size['repeats']} repeats")
        publishers = {count: WeightPublisher(count) for count in size["parameters"]}
        found = run_world(ranks, _synchronise, (size["parameters"], size["repeats"], publishers))
        rows += sorted(found, key=lambda each: METHODS.index(each["condition"]))
        for condition, copies in ((f"theory: {BROADCAST}", ranks - 1), (f"theory: {REDUCE}", 2 * (ranks - 1))):
            rows += [row(condition, 0, f"sent_{ranks}_ranks", copies, "x weights", at) for at in size["parameters"]]
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """Judge by bytes sent, all-reduce / broadcast, at the largest size; times are told beside it."""
    ranks = sorted({int(r["metric"].split("_")[1]) for r in rows if r["metric"].startswith("sent_")})
    largest = max((r["at"] for r in rows if r["at"] is not None), default=None)
    found: list[tuple[int, Estimate, Estimate]] = []
    for count in ranks:
        sent, took = (
            ratio(select(rows, f"{name}_{count}_ranks", REDUCE, largest),
                  select(rows, f"{name}_{count}_ranks", BROADCAST, largest))
            for name in ("sent", "time")
        )  # fmt: skip
        if sent and took:
            found.append((count, sent, took))
    if not found:
        return UNTESTED, "the kernel does not count the bytes of each connection."
    values = [value for _, sent, _ in found for value in (sent.value,)]
    bandwidth = mean(values)
    times = "; ".join(f"{count} ranks: {sent.value:.2f} times the bytes and {took.text()} times the time"
                      for count, sent, took in found)  # fmt: skip
    memory = ratio(select(rows, f"time_{ranks[-1]}_ranks", BROADCAST, largest),
                   select(rows, f"time_{ranks[-1]}_ranks", MEMORY, largest))  # fmt: skip
    beside = f" Shared memory is {memory.text()} times as fast as the broadcast at {ranks[-1]} ranks." if memory else ""
    return at_least(bandwidth, CLAIMED), (
        f"all-reduce against a packed broadcast of {largest:,.0f} parameters, {times} (theory: 2 times the bytes)."
        + beside
    )


def _synchronise(rank: int, ranks: int, counts: list[int], repeats: int, publishers: dict[int, Any]) -> list[Row]:
    """Measure in one rank; rank 0 returns the rows."""
    import torch

    from rlbench.pipeline import sync

    buffers = {}
    for count in counts:
        tensors = [torch.full((part,), float(rank)) for part in _parts(count)]
        buffers[count] = sync.FlatBuffer(tensors)
    readers = {count: sync.WeightReader(publisher) for count, publisher in publishers.items()}
    version = 0

    def through_memory(count: int) -> None:
        nonlocal version
        version += 1
        if rank == 0:
            publishers[count].publish(buffers[count].flat, version)
            return
        while not readers[count].changed():
            time.sleep(0)
        readers[count].read(buffers[count].flat)

    methods: dict[str, Callable[[int], None]] = {
        BROADCAST: lambda count: sync.broadcast_packed(buffers[count]),
        EACH: lambda count: sync.broadcast_each(buffers[count].parameters),
        REDUCE: lambda count: sync.all_reduce_average(buffers[count]),
        MEMORY: through_memory,
    }
    rows: list[Row] = []
    cells = [(method, count) for count in counts for method in METHODS]
    # Repeat -1 opens connections and is not kept.
    for repeat, (method, count) in interleaved(cells, repeats + 1):
        times = 1 if count >= 1_000_000 else 5
        seconds, sent = timed(partial(methods[method], count), times, ranks)
        if rank or not repeat:
            continue
        milliseconds = float(seconds.max(0).values.mean()) * 1000
        rows.append(row(method, repeat - 1, f"time_{ranks}_ranks", milliseconds, "ms", count))
        copies = None if sent is None else sent / (4 * count)
        reason = "the kernel does not count bytes per connection"
        rows.append(row(method, repeat - 1, f"sent_{ranks}_ranks", copies, "x weights", count, reason))
    return rows


def _parts(count: int) -> list[int]:
    """Split into TENSORS sizes, half of them small as biases are."""
    small = max(1, count // (100 * TENSORS))
    large = (count - small * TENSORS // 2) // (TENSORS // 2)
    parts = [large, small] * (TENSORS // 2)
    parts[0] += count - sum(parts)
    return parts
