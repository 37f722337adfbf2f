"""Traffic with low-rank adapters

Parameter counts are exact. The policy is an MLP of 512 units and five linear layers with the guide's ranks: 8 for the
first three layers, 4 for the rest. Time is one synchronisation with rank 0's weights by a packed gloo broadcast of 2
ranks, and by shared memory of the same 2 processes, of all parameters and of the adapters only. Source: a
practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from rlbench.lab.rows import Row, interleaved, row, select
from rlbench.lab.statistics import mean, ratio
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict, all_hold, at_least
from rlbench.lab.world import run_world, timed

CLAIM = (
    "Rank 4 on a 512 x 512 layer means 64 times fewer parameters; a policy's traffic falls 100 times, and its "
    "synchronisation from milliseconds to microseconds."
)
SIZES: dict[str, dict[str, Any]] = {"quick": {"repeats": 8, "syncs": 10}, "full": {"repeats": 30, "syncs": 30}}
CHART: dict[str, Any] = {
    "x": "",
    "panels": [
        {"metric": "broadcast_us", "title": "gloo broadcast, 2 ranks", "log": "y"},
        {"metric": "memory_us", "title": "Shared memory", "log": "y"},
        {"metric": "wire_bytes", "title": "Bytes on the wire, gloo", "log": "y"},
        {"metric": "parameters", "title": "Parameters", "log": "y"},
    ],
}

LAYER, LAYER_LORA = "512 x 512 layer", "512 x 512 layer, adapter of rank 4"
FULL, LORA = "policy, all parameters", "policy, adapters only"
WIDTH, OBSERVATION, ACTIONS = 512, 64, 8
RANKS = [8, 8, 8, 4]


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Count parameters; time both ways with all parameters and with adapters only, in turn within a repeat."""
    import torch
    from torch import nn

    from rlbench.pipeline.lora import LoRALinear, adapter_parameters
    from rlbench.pipeline.sync import WeightPublisher

    size = SIZES["quick" if quick else "full"]
    layer = LoRALinear(nn.Linear(WIDTH, WIDTH, bias=False), rank=4)
    with torch.no_grad():
        policy = _policy()
    adapters = sum(p.numel() for p in adapter_parameters(policy))
    whole = sum(p.numel() for p in policy.parameters()) - adapters
    counts = {LAYER: layer.base.weight.numel(), LAYER_LORA: sum(p.numel() for p in adapter_parameters(layer)),
              FULL: whole, LORA: adapters}  # fmt: skip
    rows = [row(name, 0, "parameters", count, "parameters") for name, count in counts.items()]
    note(f"{whole:,} parameters, {adapters:,} of them in adapters; {size['repeats']} repeats")
    publishers = {FULL: WeightPublisher(whole), LORA: WeightPublisher(adapters)}
    found = run_world(2, _synchronise, (size["repeats"], size["syncs"], publishers))
    return rows + sorted(found, key=lambda each: each["condition"] != FULL)


def verdict(rows: list[Row]) -> Verdict:
    """Judge the three parts: the layer's count, the policy's traffic, and milliseconds against microseconds."""
    count = {name: select(rows, "parameters", name).get(0) for name in (LAYER, LAYER_LORA, FULL, LORA)}
    if None in count.values():
        return UNTESTED, "parameters were not counted."
    layer, policy = (float(count[a] or 0) / float(count[b] or 1) for a, b in ((LAYER, LAYER_LORA), (FULL, LORA)))
    sent = ratio(select(rows, "wire_bytes", FULL), select(rows, "wire_bytes", LORA))
    times = {name: mean(select(rows, name, each).values()) for name, each in
             (("broadcast_us", LORA), ("memory_us", LORA))}  # fmt: skip
    before = {name: mean(select(rows, name, FULL).values()) for name in times}
    gain = {name: ratio(select(rows, name, FULL), select(rows, name, LORA)) for name in times}
    parts = [
        HOLDS if round(layer) == 64 else FAILS,
        at_least(sent, 100) if sent else (HOLDS if policy >= 100 else FAILS),
    ]
    told = []
    for name, way in (("broadcast_us", "gloo"), ("memory_us", "shared memory")):
        full, own, faster = before[name], times[name], gain[name]
        if full is None or own is None or faster is None:
            return UNTESTED, f"{way} was not timed."
        told.append(f"{way} {full.text()} us before, {own.text()} us after ({faster.text()} times faster)")
    # The guide synchronises by broadcast: a millisecond at least before, less than one after.
    full, own = before["broadcast_us"], times["broadcast_us"]
    assert full is not None, "checked above"
    assert own is not None, "checked above"
    parts.append(
        HOLDS if full.low >= 1000 and own.high < 1000 else FAILS if full.high < 1000 or own.low >= 1000 else UNTESTED
    )
    words = {HOLDS: "holds", FAILS: "does not hold", UNTESTED: "is undecided"}
    wire = f"{sent.text()} times fewer bytes" if sent else "bytes not counted here"
    return all_hold(parts), (
        f"64 times {words[parts[0]]} ({count[LAYER]:,.0f} / {count[LAYER_LORA]:,.0f} = {layer:.0f}); 100 times "
        f"{words[parts[1]]} (whole policy {policy:.1f} times fewer parameters, {wire}); milliseconds to microseconds "
        f"{words[parts[2]]} ({'; '.join(told)}; {own.n} repeats)."
    )


def _policy() -> Any:
    from torch import nn

    from rlbench.pipeline.lora import apply_lora

    widths = [OBSERVATION, WIDTH, WIDTH, WIDTH, WIDTH, ACTIONS]
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return apply_lora(nn.Sequential(*layers), RANKS)


def _synchronise(rank: int, ranks: int, repeats: int, syncs: int, publishers: dict[str, Any]) -> list[Row]:
    import torch

    from rlbench.pipeline import sync

    buffers = {name: sync.FlatBuffer([torch.zeros(publisher.elements)]) for name, publisher in publishers.items()}
    readers = {name: sync.WeightReader(publisher) for name, publisher in publishers.items()}
    version, rows = 0, []

    def by_broadcast(name: str) -> None:
        sync.broadcast_packed(buffers[name])

    def by_memory(name: str) -> None:
        nonlocal version
        version += 1
        if rank == 0:
            publishers[name].publish(buffers[name].flat, version)
            return
        while not readers[name].changed():
            time.sleep(0)
        readers[name].read(buffers[name].flat)

    ways = {"broadcast_us": by_broadcast, "memory_us": by_memory}
    cells = [(way, name) for way in ways for name in (FULL, LORA)]
    for repeat, (way, name) in interleaved(cells, repeats + 1):
        seconds, sent = timed(partial(ways[way], name), syncs, ranks)
        # The first repeat opens connections and is not kept.
        if rank or not repeat:
            continue
        # The median: a rank that the machine lets wait for its core must not decide.
        rows.append(row(name, repeat - 1, way, float(seconds.max(0).values.median()) * 1e6, "us"))
        if way == "broadcast_us":
            reason = "the kernel does not count bytes per connection"
            rows.append(row(name, repeat - 1, "wire_bytes", sent, "bytes", None, reason))
    return rows
