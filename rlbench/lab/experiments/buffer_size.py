"""How large the buffer should be

Four actors put a rollout into the pipeline's buffer every 4 ms (2 to 6, drawn); the learner takes four at a time and
pauses for 50 ms after every 25th batch, as it does to synchronise or to evaluate. "keeping up": it could learn from a
tenth more than they make. "falling behind": from two thirds of what they make. Both sides sleep rather than compute, so
that the cores do not decide. Capacity is rollouts per actor; "adaptive" follows measured waiting and age, with 50 ms
allowed. Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rlbench.lab import rings
from rlbench.lab.rows import Row, interleaved, places, row, select
from rlbench.lab.statistics import difference, mean, ratio
from rlbench.lab.verdicts import UNTESTED, Verdict, all_hold, at_least

CLAIM = "Too small a buffer leaves the workers idle; too large a one raises latency."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"capacities": [1, 4, 64], "repeats": 3, "seconds": 0.9},
    "full": {"capacities": [1, 2, 4, 8, 16, 64], "repeats": 6, "seconds": 2.0},
}
CHART: dict[str, Any] = {
    "x": "rollouts that may wait per actor",
    "panels": [
        {"metric": "wait_percent", "title": "Actors wait for room", "log": "x"},
        {"metric": "age_ms", "title": "Age of a rollout when taken", "log": "xy"},
        {"metric": "rollouts_per_s", "title": "Rollouts learned from", "log": "x"},
        {"metric": "depth", "title": "Depth that was allowed", "log": "xy"},
    ],
}

UP, BEHIND = "keeping up", "falling behind"
ADAPTIVE = {UP: "keeping up, adaptive", BEHIND: "falling behind, adaptive"}
BATCH_MS = {UP: 1.6, BEHIND: 4.0}  # beside 50 ms / 25 batches, while four actors need 4 ms for a batch
ACTORS, PERIOD_MS, PAUSE_MS, PAUSE_EVERY, OLDEST_MS, HIGHEST = 4, 4.0, 50.0, 25, 50.0, 64
RECORD = np.dtype([("born_ns", np.int64), ("version", np.int64), ("data", np.float32, 256)])
IDLE, SLOWER = 5.0, 2.0  # percentage points; times


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Measure every capacity and the adaptive depth in both regimes, in turn within a repeat."""
    size = SIZES["quick" if quick else "full"]
    cells = [(regime, capacity) for regime in BATCH_MS for capacity in [*size["capacities"], 0]]
    rows = []
    for repeat, (regime, capacity) in interleaved(cells, size["repeats"]):
        if (regime, capacity) == cells[0]:
            note(f"repeat {repeat + 1} of {size['repeats']}: {len(cells)} cells of {size['seconds']} s")
        found = _run(regime, capacity, size["seconds"], repeat)
        condition, at = (regime, float(capacity)) if capacity else (ADAPTIVE[regime], None)
        units = {"wait_percent": "%", "age_ms": "ms", "rollouts_per_s": "1/s", "depth": "rollouts"}
        rows += [row(condition, repeat, name, found[name], unit, at) for name, unit in units.items()]
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """Judge waiting at the smallest capacity where the learner keeps up, and age at the largest where it does not."""
    sizes = places(rows, "wait_percent", UP)
    if len(sizes) < 2:
        return UNTESTED, "fewer than two capacities were measured."
    small, large = sizes[0], sizes[-1]
    waits = {size: select(rows, "wait_percent", UP, size) for size in sizes}
    idle = difference(waits[small], waits[large])
    older = ratio(select(rows, "age_ms", BEHIND, large), select(rows, "age_ms", BEHIND, small))
    faster = ratio(select(rows, "rollouts_per_s", BEHIND, large), select(rows, "rollouts_per_s", BEHIND, small))
    if idle is None or older is None or faster is None:
        return UNTESTED, "a capacity is missing."
    knee = next(size for size in sizes if _mean(waits[size]) <= _mean(waits[large]) + 2)
    told = [
        f"where the learner keeps up, capacity {small:g} makes actors wait {idle.text()} percentage points more than "
        f"{large:g} (knee: {knee:g})",
        f"where it falls behind, {large:g} makes rollouts {older.text()} times as old as {small:g} for {faster.text()} "
        "times the throughput",
    ]
    told += [_adaptive(rows, regime, sizes) for regime in BATCH_MS]
    parts = [at_least(idle, IDLE), at_least(older, SLOWER)]
    return all_hold(parts), f"{'; '.join(told)}; {idle.n} repeats."


def _adaptive(rows: list[Row], regime: str, sizes: list[float]) -> str:
    """Compare the adaptive depth with the fixed one that moves most among those whose age is allowed."""
    fitting = [size for size in sizes if _mean(select(rows, "age_ms", regime, size)) <= OLDEST_MS] or sizes[:1]
    best = max(fitting, key=lambda size: _mean(select(rows, "rollouts_per_s", regime, size)))
    own = ADAPTIVE[regime]
    speed = ratio(select(rows, "rollouts_per_s", own), select(rows, "rollouts_per_s", regime, best))
    age = mean(select(rows, "age_ms", own).values())
    if speed is None or age is None:
        return f"{regime}, adaptive: not measured"
    return (
        f"{regime}, adaptive moves {speed.text()} times the best fixed capacity ({best:g}) at an age of {age.text()} ms"
    )


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / max(1, len(values))


def _run(regime: str, capacity: int, seconds: float, seed: int) -> dict[str, float]:
    """Run one cell (capacity 0: adaptive); figures are of its second half, when the buffer has filled up."""
    from rlbench.pipeline.buffer import ShardedBuffer
    from rlbench.pipeline.replay import AdaptiveDepth

    buffer = ShardedBuffer(ACTORS, capacity or HIGHEST, RECORD)
    control, waited = rings.shared(2, np.int64), rings.shared((ACTORS, 16), np.int64)
    context = multiprocessing.get_context("fork")
    actors = [
        context.Process(target=_act, args=(buffer.shard(i), control, waited[i], seed * ACTORS + i), daemon=True)
        for i in range(ACTORS)
    ]
    for actor in actors:
        actor.start()
    shards = [buffer.shard(index) for index in range(ACTORS)]
    depth = AdaptiveDepth(HIGHEST, OLDEST_MS) if not capacity else None
    control[0] = 1
    started, half, batches = time.monotonic(), None, 0
    ages: list[float] = []
    depths: list[int] = []
    looked, before = time.monotonic_ns(), 0
    while (now := time.monotonic()) - started < seconds:
        if half is None and now - started >= seconds / 2:
            half = (now, int(waited[:, 0].sum()))
            ages, depths = [], []
        taken = _take(shards)
        if not taken:
            time.sleep(2e-4)
            continue
        mine = [(time.monotonic_ns() - born) / 1e6 for born in taken]
        ages += mine
        if depth is not None:
            total, moment = int(waited[:, 0].sum()), time.monotonic_ns()
            depth.update((total - before) / max(1, (moment - looked) * ACTORS), float(np.mean(mine)))
            looked, before = moment, total
            for shard in shards:
                shard.limit = depth.depth
        depths.append(depth.depth if depth is not None else capacity)
        batches += 1
        # A part of a batch takes its part of the time.
        time.sleep((BATCH_MS[regime] * len(taken) / ACTORS + (PAUSE_MS if batches % PAUSE_EVERY == 0 else 0)) / 1000)
    assert half is not None, "the loop ran for all of its time"
    elapsed = time.monotonic() - half[0]
    wait = (int(waited[:, 0].sum()) - half[1]) / 1e9 / (elapsed * ACTORS)
    control[1] = 1
    for actor in actors:
        actor.join()
    return {
        "wait_percent": 100 * wait, "age_ms": float(np.mean(ages)), "rollouts_per_s": len(ages) / elapsed,
        "depth": float(np.mean(depths)),
    }  # fmt: skip


def _take(shards: list[Any]) -> list[int]:
    """Take up to one rollout per actor and return when each was born."""
    born = []
    for shard in shards:
        found = shard.get(1)
        if len(found):
            born.append(int(found["born_ns"][0]))
        shard.release()
    return born


def _act(shard: Any, control: np.ndarray, waited: np.ndarray, seed: int) -> None:
    random, record = np.random.default_rng(seed), np.zeros(1, RECORD)
    while not control[0]:
        time.sleep(0.001)
    while not control[1]:
        time.sleep(random.uniform(0.5, 1.5) * PERIOD_MS / 1000)
        record["born_ns"] = started = time.monotonic_ns()
        if not shard.put(record):
            while not control[1] and not shard.put(record):
                time.sleep(2e-4)
            waited[0] += time.monotonic_ns() - started
