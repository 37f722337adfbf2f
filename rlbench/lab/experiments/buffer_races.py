"""The guide's ring under several writers

Each writer writes records that name their writer and number in every word. Afterwards the ring is searched: a record
that is nowhere is lost, one whose words disagree is torn; the ring is large enough that nothing is overwritten on
purpose. The pipeline's shards get the same records while a learner drains them. A record is as large as a frame
of 84 x 84 bytes.
Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rlbench.lab import rings
from rlbench.lab.rows import Row, interleaved, places, row, select
from rlbench.lab.statistics import mean
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict

CLAIM = "A ring whose write counter is read and incremented in two steps needs no lock: it works with one learner."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"writers": [1, 2, 8], "repeats": 3, "records": 10_000},
    "full": {"writers": [1, 2, 4, 8], "repeats": 6, "records": 30_000},
}
CHART: dict[str, Any] = {
    "x": "writers",
    "panels": [
        {"metric": "lost_per_million", "title": "Lost records", "log": "x"},
        {"metric": "torn_per_million", "title": "Torn records", "log": "x"},
    ],
}

GUIDE, OURS = "guide's ring", "lock-free shards"
RECORD = np.dtype([("words", np.int64, 881), ("version", np.int64)])


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Count lost and torn records of both rings, in turn within a repeat."""
    size = SIZES["quick" if quick else "full"]
    rows = []
    cells = [(name, count) for count in size["writers"] for name in (GUIDE, OURS)]
    for repeat, (name, writers) in interleaved(cells, size["repeats"]):
        each = size["records"] // writers
        lost, torn = (guide if name == GUIDE else ours)(writers, each)
        total = each * writers
        note(f"{name}, {writers} writers: {lost} lost, {torn} torn of {total}")
        rows.append(row(name, repeat, "lost_per_million", lost / total * 1e6, "per million", writers))
        rows.append(row(name, repeat, "torn_per_million", torn / total * 1e6, "per million", writers))
        rows.append(row(name, repeat, "records", total, "records", writers))
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """The claim fails when the guide's ring loses or tears any record of several writers."""
    several = [count for count in places(rows, "lost_per_million", GUIDE) if count > 1]
    if not several:
        return UNTESTED, "the ring was not tried with several writers."
    most = max(several, key=lambda count: sum(select(rows, "lost_per_million", GUIDE, count).values()))
    lost = mean(select(rows, "lost_per_million", GUIDE, most).values())
    torn = mean(select(rows, "torn_per_million", GUIDE, most).values())
    faults = [r["value"] for r in rows if r["condition"] == OURS and r["metric"] != "records"]
    checked = sum(r["value"] for r in rows if r["condition"] == OURS and r["metric"] == "records")
    assert lost is not None, "the ring was measured with several writers"
    assert torn is not None, "lost and torn are counted together"
    own = (
        f"the pipeline's shards lost and tore none of {checked:,.0f}"
        if not any(faults)
        else f"the pipeline's shards are at fault too: up to {max(faults):,.0f} per million"
    )
    if not any(v for c in several for m in ("lost_per_million", "torn_per_million")
               for v in select(rows, m, GUIDE, c).values()):  # fmt: skip
        return HOLDS, f"no record of {max(several):.0f} and fewer writers was lost or torn; {own}."
    return FAILS, (
        f"with {most:.0f} writers the guide's ring lost {lost.text()} and tore {torn.text()} records per million "
        f"over {lost.n} repeats; {own}. One learner does not help: the writers collide."
    )


def guide(writers: int, each: int) -> tuple[int, int]:
    """Return lost and torn records of the guide's ring."""
    ring = rings.GuideRing(writers, capacity=each * writers, dtype=RECORD)
    _finish(_start(ring.producer, writers, each))
    words = ring.slots["words"]
    whole = (words == words[:, :1]).all(axis=1)
    written = words[:, 0] != 0
    found = np.unique(words[whole & written, 0])
    return each * writers - len(found), int((~whole).sum())


def ours(writers: int, each: int) -> tuple[int, int]:
    """Return lost and torn records of the pipeline's shards, drained by this process while they are written."""
    from rlbench.pipeline.buffer import ShardedBuffer

    buffer = ShardedBuffer(writers, 256, RECORD)
    shards = [buffer.shard(index) for index in range(writers)]
    workers = _start(lambda index: _one_at_a_time(buffer.shard(index)), writers, each)
    found, torn, idle = [], 0, 0
    while idle < 3:
        ended = not any(worker.is_alive() for worker in workers)
        taken = 0
        for shard in shards:
            words = np.array(shard.get(256)["words"])
            shard.release()
            taken += len(words)
            whole = (words == words[:, :1]).all(axis=1) if len(words) else np.zeros(0, bool)
            torn += int((~whole).sum())
            found.append(words[whole, 0])
        idle = idle + 1 if ended and not taken else 0
        if not taken:
            time.sleep(5e-5)
    _finish(workers)
    return each * writers - len(np.unique(np.concatenate(found))), torn


def _one_at_a_time(shard: Any) -> Callable[[Any], bool]:
    return lambda record: shard.put(record) == 1


def _start(producer: Callable[[int], Callable[[Any], bool]], writers: int, each: int) -> list[Any]:
    go = rings.shared(1, np.int64)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write, args=(producer, index, each, go)) for index in range(writers)]
    for worker in workers:
        worker.start()
    time.sleep(0.05)
    go[0] = 1
    return workers


def _write(producer: Callable[[int], Callable[[Any], bool]], index: int, each: int, go: np.ndarray) -> None:
    put, record = producer(index), np.zeros(1, RECORD)
    while not go[0]:
        time.sleep(0.0005)
    for number in range(1, each + 1):
        record["words"][:] = (index + 1) << 40 | number
        while not put(record):
            time.sleep(1e-4)


def _finish(workers: list[Any]) -> None:
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a writer ended with exit code {worker.exitcode}")
