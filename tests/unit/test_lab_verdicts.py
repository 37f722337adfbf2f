"""Every experiment's verdict on measurements whose answer is known, the three verdicts each where they can occur."""

from __future__ import annotations

import ast
import importlib
from typing import Any

import numpy as np
import pytest

from rlbench.lab import catalog
from rlbench.lab.experiments import (
    buffer_lock,
    buffer_races,
    buffer_size,
    false_sharing,
    lora_freeze,
    lora_traffic,
    replay_priority,
    staleness,
    stragglers,
    sync,
    sync_nccl,
)
from rlbench.lab.rows import Row, row
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED

REPEATS = range(6)
# A little different in each repeat, the same for all conditions of it: ratios and differences are exact.
DRIFT = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02]


def cells(metric: str, values: dict[tuple[str, float | None], float], drift: bool = True) -> list[Row]:
    """Rows of six repeats around each value."""
    return [
        row(condition, repeat, metric, value * (DRIFT[repeat] if drift else 1), "u", at)
        for (condition, at), value in values.items()
        for repeat in REPEATS
    ]


def lock_rows(saturated: float, paced: float) -> list[Row]:
    one, each, shards, queue = (
        (way, 50) for way in (buffer_lock.ONE, buffer_lock.PER_SHARD, buffer_lock.SHARDS, buffer_lock.QUEUE)
    )
    full = cells("items_per_s", {one: 100.0, shards: 100 * saturated, queue: 5.0})
    return full + cells("paced_items_per_s", {one: 100.0, each: 50.0, shards: 100 * paced})


@pytest.mark.parametrize(
    ("saturated", "paced", "expected"), [(0.5, 2.5, HOLDS), (3.5, 1.05, FAILS), (0.9, 0.95, FAILS)]
)
def test_buffer_lock(saturated: float, paced: float, expected: str) -> None:
    found, sentence = buffer_lock.verdict(lock_rows(saturated, paced))
    assert found == expected
    for factor in (saturated, paced, 2 * paced, 20 * saturated):
        assert f"{factor:.3g}" in sentence


def test_buffer_lock_undecided_when_repeats_disagree() -> None:
    rows = lock_rows(1.1, 1.1)
    for each in rows:
        if each["condition"] == buffer_lock.SHARDS:
            each["value"] *= 2.0 if each["repeat"] % 2 else 0.5
    assert buffer_lock.verdict(rows)[0] == UNTESTED
    assert buffer_lock.verdict([])[0] == UNTESTED


@pytest.mark.parametrize(("lost", "ours", "expected"), [(0.0, 0.0, HOLDS), (120.0, 0.0, FAILS), (120.0, 7.0, FAILS)])
def test_buffer_races(lost: float, ours: float, expected: str) -> None:
    guide, shards = buffer_races.GUIDE, buffer_races.OURS
    rows = cells("lost_per_million", {(guide, 1): 0.0, (guide, 2): lost, (shards, 2): ours}, drift=False)
    rows += cells("torn_per_million", {(guide, 1): 0.0, (guide, 2): 0.0, (shards, 2): 0.0})
    rows += cells("records", {(guide, 2): 1000.0, (shards, 2): 1000.0}, drift=False)
    found, sentence = buffer_races.verdict(rows)
    assert found == expected
    assert ("none of 6,000" in sentence) == (ours == 0)
    assert ("at fault too: up to 7" in sentence) == (ours > 0)


@pytest.mark.parametrize(("kept", "expected"), [(0.5, HOLDS), (0.95, FAILS), (1.0, FAILS)])
def test_false_sharing(kept: float, expected: str) -> None:
    rows = []
    for metric in false_sharing.LOOPS.values():
        rows += cells(metric, {(false_sharing.CONDITION, 8): 100 * kept, (false_sharing.CONDITION, 128): 100.0})
    found, sentence = false_sharing.verdict(rows)
    assert found == expected
    assert f"{100 - 100 * kept:.0f} % [{100 - 100 * kept:.0f}, {100 - 100 * kept:.0f}]" in sentence.replace("-0", "0")


def test_false_sharing_on_one_core_says_why() -> None:
    rows = [
        row(false_sharing.CONDITION, 0, metric, None, "counts/s", 128, "two cores are needed")
        for metric in false_sharing.LOOPS.values()
    ]
    assert false_sharing.verdict(rows) == (UNTESTED, "3 of 3 measurements were not possible: two cores are needed.")


def test_false_sharing_counts_only_when_both_processes_ran() -> None:
    # The other process runs 0..3 and 5..8 s: its chunk from 3 to 5 had the core for one second only.
    other = np.array([[0, 1, 1], [1, 2, 1], [2, 3, 1], [3, 5, 1], [5, 6, 1], [6, 8, 2]], float)
    mine = np.array([[-1, 0.5, 1.5], [0.5, 1.5, 1], [1.5, 2.9, 1.4], [2.9, 3.5, 0.6], [3.5, 5.5, 2], [5.5, 6.5, 1],
                     [6.5, 7.5, 0.2], [7.5, 8.5, 1]], float)  # fmt: skip
    assert false_sharing.undisturbed(mine, other).tolist() == [False, True, True, False, False, True, False, False]


def size_rows(idle: float, older: float) -> list[Row]:
    up, behind = buffer_size.UP, buffer_size.BEHIND
    waits = {(up, 1): 1 + idle, (up, 4): 2.0, (up, 64): 1.0, (behind, 1): 50.0, (behind, 64): 40.0}
    ages = {(up, 1): 2.0, (up, 4): 4.0, (up, 64): 9.0, (behind, 1): 10.0, (behind, 64): 10 * older}
    rates = {(up, 1): 500.0, (up, 4): 900.0, (up, 64): 950.0, (behind, 1): 600.0, (behind, 64): 600.0}
    for name in buffer_size.ADAPTIVE.values():
        ages[name, None], rates[name, None] = 12.0, 855.0
    return cells("wait_percent", waits, drift=False) + cells("age_ms", ages) + cells("rollouts_per_s", rates)


@pytest.mark.parametrize(("idle", "older", "expected"), [(40.0, 30.0, HOLDS), (0.5, 30.0, FAILS), (40.0, 1.0, FAILS)])
def test_buffer_size(idle: float, older: float, expected: str) -> None:
    found, sentence = buffer_size.verdict(size_rows(idle, older))
    assert found == expected
    if expected == HOLDS:
        assert "knee: 4)" in sentence
        # 855 of 950, the best fixed capacity whose age is allowed.
        assert "keeping up, adaptive moves 0.900 [0.900, 0.900] times the best fixed capacity (64)" in sentence


@pytest.mark.parametrize(("factor", "expected"), [(3.0, HOLDS), (2.0, FAILS)])
def test_sync(factor: float, expected: str) -> None:
    rows = []
    for ranks in (2, 4):
        sent = {(sync.BROADCAST, 1000): ranks - 1.0, (sync.REDUCE, 1000): factor * (ranks - 1)}
        rows += cells(f"sent_{ranks}_ranks", sent, drift=False)
        times = {(sync.BROADCAST, 1000): 1.0, (sync.REDUCE, 1000): 2.5, (sync.MEMORY, 1000): 0.5}
        rows += cells(f"time_{ranks}_ranks", times)
    found, sentence = sync.verdict(rows)
    assert found == expected
    assert f"4 ranks: {factor:.2f} times the bytes and 2.50 [2.50, 2.50] times the time" in sentence
    assert "Shared memory is 2.00" in sentence


def test_sync_without_byte_counters() -> None:
    rows = [row(sync.REDUCE, 0, "sent_2_ranks", None, "x weights", 10, "not counted")]
    assert sync.verdict(rows)[0] == UNTESTED


@pytest.mark.parametrize(
    ("gpus", "milliseconds", "expected"),
    [(0, None, UNTESTED), (1, None, UNTESTED), (8, 1.0, UNTESTED), (8, 3.0, FAILS), (64, 1.5, HOLDS), (64, 9.0, FAILS)],
)
def test_sync_nccl(gpus: int, milliseconds: float | None, expected: str) -> None:
    rows = [row("this machine", 0, "gpus", gpus, "GPUs"), row("calculated: a wire", 0, "least_ms", 8, "ms")]
    if milliseconds is not None:
        rows += cells("broadcast_ms", {(sync_nccl.MEASURED, None): milliseconds})
    found, sentence = sync_nccl.verdict(rows)
    assert found == expected
    assert "By calculation, not measurement" in sentence
    assert "more than 2 ms with a wire" in sentence


@pytest.mark.parametrize(
    ("adapters", "full_us", "own_us", "expected"),
    [(8000, 5000.0, 40.0, HOLDS), (27_000, 5000.0, 40.0, FAILS), (8000, 500.0, 40.0, FAILS)],
)
def test_lora_traffic(adapters: int, full_us: float, own_us: float, expected: str) -> None:
    full, own = (lora_traffic.FULL, None), (lora_traffic.LORA, None)
    counts = {(lora_traffic.LAYER, None): 262_144, (lora_traffic.LAYER_LORA, None): 4096, full: 825_000, own: adapters}
    rows = cells("parameters", {key: float(value) for key, value in counts.items()}, drift=False)
    rows += cells("wire_bytes", {full: 4.0 * 825_000, own: 4.0 * adapters}, drift=False)
    rows += cells("broadcast_us", {full: full_us, own: own_us}) + cells("memory_us", {full: 300.0, own: 10.0})
    found, sentence = lora_traffic.verdict(rows)
    assert found == expected
    assert sentence.startswith("64 times holds (262,144 / 4,096 = 64)")


@pytest.mark.parametrize(
    ("first", "last", "guide", "expected"), [(60, 20, 150, HOLDS), (60, 180, 150, FAILS), (60, 60, 60, UNTESTED)]
)
def test_lora_freeze(first: float, last: float, guide: float, expected: str) -> None:
    never, other, always = ((name) for name in (lora_freeze.NEVER, lora_freeze.GUIDE, lora_freeze.ALWAYS))
    values = {(never, 100): first, (never, 2000): last, (other, 100): first, (other, 2000): guide,
              (always, 100): first, (always, 2000): guide}  # fmt: skip
    found, sentence = lora_freeze.verdict(cells("return", {k: float(v) for k, v in values.items()}))
    assert found == expected
    assert "6 seeds" in sentence


def stale_rows(dense: dict[int, float], sparse: dict[int, float]) -> list[Row]:
    rows = []
    for task, curve in (("dense", dense), ("sparse", sparse)):
        for at, value in curve.items():
            rows += cells(f"{task}_return", {(name, at): value for name in staleness.CONTROLS})
    return rows


LEVELS = [0, 1, 2, 5, 10, 20, 50]


@pytest.mark.parametrize(
    ("dense_limit", "sparse_limit", "expected"), [(5, 2, HOLDS), (10, 2, HOLDS), (2, 2, FAILS), (5, 20, FAILS)]
)
def test_staleness(dense_limit: int, sparse_limit: int, expected: str) -> None:
    dense = {at: 200.0 if at <= dense_limit else 40.0 for at in LEVELS}
    sparse = {at: 1.0 if at <= sparse_limit else 0.05 for at in LEVELS}
    found, sentence = staleness.verdict(stale_rows(dense, sparse))
    assert found == expected
    after = LEVELS[LEVELS.index(dense_limit) + 1]
    assert f"dense: harm begins at {after} " in sentence
    assert f"leaves {'1.00' if sparse_limit >= 5 else '0.05'}" in sentence


def test_staleness_that_harms_nothing_or_was_never_learned() -> None:
    flat = dict.fromkeys(LEVELS, 100.0)
    found, sentence = staleness.verdict(stale_rows(flat, flat))
    assert found == FAILS
    assert "no staleness tried does harm" in sentence
    assert staleness.verdict(stale_rows(flat, dict.fromkeys(LEVELS, 0.0)))[0] == UNTESTED


def straggler_rows(silent: float, told: float | None) -> list[Row]:
    s = stragglers
    rates = {s.WELL: 100, s.SLOW: 60, s.SILENT: 100 * silent, s.DEAD: 50, s.WELL_TURN: 80, s.SLOW_TURN: 20}
    rows = cells("steps_per_s", {(name, None): float(value) for name, value in rates.items()})
    shares = {s.WELL: 50.0, s.SLOW: 10.0, s.SILENT: 0.0, s.DEAD: 0.0, s.WELL_TURN: 50.0, s.SLOW_TURN: 50.0}
    rows += cells("troubled_percent", {(name, None): value for name, value in shares.items()}, drift=False)
    rows += [row(s.SILENT, repeat, "told_ms", told, "ms", None, "nothing said") for repeat in REPEATS]
    return rows + cells("told_ms", {(s.DEAD, None): 20.0}, drift=False)


@pytest.mark.parametrize(("silent", "told", "expected"), [(0.5, None, HOLDS), (0.1, None, FAILS), (0.5, 900.0, FAILS)])
def test_stragglers(silent: float, told: float | None, expected: str) -> None:
    found, sentence = stragglers.verdict(straggler_rows(silent, told))
    assert found == expected
    assert ("is never told of" in sentence) == (told is None)
    assert "slow half when actors and learner take turns: 0.25" in sentence
    assert "a dead one after 20 [20, 20] ms" in sentence


@pytest.mark.parametrize(
    ("sparse", "dense", "expected"),
    [(2.0, 1.5, HOLDS), (0.5, 0.6, FAILS), (2.0, 0.5, FAILS)],
)
def test_replay_priority(sparse: float, dense: float, expected: str) -> None:
    rows = []
    for task, faster in (("sparse", sparse), ("dense", dense)):
        steps = {(replay_priority.UNIFORM, None): 1000 * faster, (replay_priority.PRIORITISED, None): 1000.0}
        rows += cells(f"{task}_steps_to_threshold", steps)
        rows += cells(f"{task}_reached", dict.fromkeys(steps, 1.0), drift=False)
    found, sentence = replay_priority.verdict(rows)
    assert found == expected
    assert "reached by 6 and 6 of 6 seeds" in sentence


def test_replay_priority_that_nobody_reached() -> None:
    rows = []
    for task in ("sparse", "dense"):
        for name in replay_priority.ALPHAS:
            rows += cells(f"{task}_steps_to_threshold", {(name, None): 1000.0}, drift=False)
            rows += cells(f"{task}_reached", {(name, None): 0.0}, drift=False)
    assert replay_priority.verdict(rows)[0] == UNTESTED


@pytest.mark.parametrize("name", sorted(catalog.experiments()))
def test_what_the_host_reads_is_what_the_guest_has(name: str) -> None:
    read = catalog.experiments()[name]
    module: Any = importlib.import_module(f"rlbench.lab.experiments.{read.module}")
    assert (read.claim, read.sizes, read.chart) == (module.CLAIM, module.SIZES, module.CHART)
    assert set(read.sizes) == {"quick", "full"}
    assert read.sizes["quick"].keys() == read.sizes["full"].keys()
    assert "practitioners' guide" in " ".join(read.text.split())


def test_no_experiment_needs_torch_to_judge() -> None:
    for path in catalog.FOLDER.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not any(name.split(".")[0] == "torch" for name in [*names, module]), path
