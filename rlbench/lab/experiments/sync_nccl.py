"""Broadcast over 64 GPUs

With two GPUs or more: a packed broadcast of 100 million float32 parameters by NCCL, timed on all of them. Without: the
least time by the bandwidth of the link that the weights have to enter a machine or a GPU by; a calculation, no
measurement, and too small, because it leaves out latency, hops and protocol. Link speeds are the vendors': NVLink 4 450
GB/s in one direction, PCIe 5 x16 64 GB/s, InfiniBand NDR 400 Gb/s. Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rlbench.lab.rows import Row, row, select
from rlbench.lab.statistics import mean
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict, at_least
from rlbench.lab.world import run_world

CLAIM = "A broadcast of 100 million parameters to 64 GPUs takes less than 2 ms."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"parameters": 100_000_000, "repeats": 5},
    "full": {"parameters": 100_000_000, "repeats": 20},
}
CHART: dict[str, Any] = {
    "x": "",
    "panels": [
        {"metric": "broadcast_ms", "title": "Measured"},
        {"metric": "least_ms", "title": "Calculated least time, no measurement", "log": "y"},
    ],
}

MEASURED = "NCCL broadcast, float32"
LIMIT_MS = 2.0
CLAIMED_GPUS = 64
# Bytes per second into one GPU, or into one machine of 8 GPUs with one or with 8 network ports.
LINKS = {
    "NVLink 4, one machine": 450e9,
    "PCIe 5 x16, one machine": 64e9,
    "InfiniBand NDR, 8 ports a machine": 400e9,
    "InfiniBand NDR, 1 port a machine": 50e9,
}
WIDTHS = {"float32": 4, "bfloat16": 2}


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Time the broadcast where there are GPUs; add the calculated bounds in any case."""
    import torch

    size = SIZES["quick" if quick else "full"]
    count = size["parameters"]
    rows = [
        row(f"calculated: {link}, {name}", 0, "least_ms", count * width / speed * 1000, "ms")
        for link, speed in LINKS.items()
        for name, width in WIDTHS.items()
    ]
    # Asking for the number of devices does not initialise CUDA, so the ranks may still be forked.
    gpus = torch.cuda.device_count()
    rows.append(row("this machine", 0, "gpus", gpus, "GPUs"))
    if gpus < 2:
        note(f"{gpus} GPUs: nothing to broadcast to")
        return rows
    note(f"{gpus} GPUs, {size['repeats']} broadcasts")
    times = run_world(gpus, _broadcast, (count, size["repeats"]), backend="nccl")
    return rows + [row(MEASURED, repeat, "broadcast_ms", value, "ms") for repeat, value in enumerate(times)]


def verdict(rows: list[Row]) -> Verdict:
    """Only 64 GPUs can confirm the claim; fewer can refute it."""
    gpus = int(select(rows, "gpus", "this machine").get(0, 0))
    bounds = {r["condition"]: r["value"] for r in rows if r["metric"] == "least_ms"}
    over = [name.removeprefix("calculated: ") for name, value in bounds.items() if value >= LIMIT_MS]
    calculation = (
        f"By calculation, not measurement, links alone need {min(bounds.values()):.2g} to "
        f"{max(bounds.values()):.2g} ms; more than {LIMIT_MS:g} ms with {'; '.join(over)}."
    )
    found = mean(select(rows, "broadcast_ms", MEASURED).values())
    if found is None:
        return UNTESTED, f"two GPUs at least are needed and this machine has {gpus}. {calculation}"
    said = f"{gpus} GPUs take {found.text()} ms, {found.n} broadcasts"
    if found.low >= LIMIT_MS:
        return FAILS, f"{said}, and more GPUs cannot take less. {calculation}"
    if gpus < CLAIMED_GPUS:
        return UNTESTED, f"{said}, which says nothing of {CLAIMED_GPUS}. {calculation}"
    return (HOLDS if at_least(found, LIMIT_MS) == FAILS else UNTESTED), f"{said}. {calculation}"


def _broadcast(rank: int, ranks: int, count: int, repeats: int) -> list[float]:
    import torch
    import torch.distributed as dist

    from rlbench.pipeline.sync import FlatBuffer, broadcast_packed

    torch.cuda.set_device(rank)
    buffer = FlatBuffer([torch.zeros(count, device="cuda")])
    slowest = torch.zeros(1, device="cuda")
    times = []
    for repeat in range(repeats + 3):
        dist.barrier()
        torch.cuda.synchronize()
        started = time.perf_counter()
        broadcast_packed(buffer)
        torch.cuda.synchronize()
        slowest.fill_((time.perf_counter() - started) * 1000)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if repeat >= 3:  # the first ones set the rings up
            times.append(float(slowest))
    return times
