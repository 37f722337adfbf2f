"""Freezing the base under low-rank adapters

A policy is trained on CartPole (actor-critic, 8 environments x 16 steps an update), then given adapters (rank 4 in each
layer) and adapted to another cart: pole 4 times as long, pushes of half the force. Conditions: base frozen for the
first 1000 updates and thawed then, never frozen, always frozen. All begin with the same weights, the value network
learns in all. "Diverges" would be a final return below that at the start. Source: a practitioners' guide to
asynchronous RL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlbench.lab.rows import Row, places, row, select
from rlbench.lab.statistics import difference, mean
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict

CLAIM = "Without a base that is frozen for the first 1000 iterations, adaptation with low-rank adapters diverges."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": 5, "base_updates": 150, "updates": 600, "frozen_updates": 300},
    "full": {"seeds": 8, "base_updates": 300, "updates": 2000, "frozen_updates": 1000},
}
CHART: dict[str, Any] = {"x": "updates", "panels": [{"metric": "return", "title": "Return during adaptation"}]}

GUIDE, NEVER, ALWAYS = "frozen at first, then thawed", "never frozen", "always frozen"
CONDITIONS = (GUIDE, NEVER, ALWAYS)
LEARNING_RATE = 2e-3
INTERVALS = 20
RANK = 4


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Train the bases, then adapt them under all conditions at the same time."""
    import torch

    from rlbench.lab import batched
    from rlbench.lab.actor_critic import Run, nets, train

    torch.set_num_threads(1)
    size = SIZES["quick" if quick else "full"]
    seeds = list(range(size["seeds"]))

    def before(of: Sequence[int]) -> Any:
        return batched.CartPole(of, 8)

    def after(of: Sequence[int]) -> Any:
        return batched.CartPole([100 + seed for seed in of], 8, length=2.0, force=5.0)

    note(f"{len(seeds)} bases: {size['base_updates']} updates")
    base = train(before, [Run("none", 0, s) for s in seeds], size["base_updates"], 4, 0, LEARNING_RATE)
    note(f"bases reach a return of {base.curve[-1].mean():.0f}")
    runs = [Run("none", 0, seed) for _ in CONDITIONS for seed in seeds]
    net = nets(before(seeds), ranks=(RANK, RANK, 2))
    fresh = net.initialise([run.seed for run in runs])
    start = fresh.clone()
    repeated = base.flat.repeat(len(CONDITIONS), 1)
    plain = net.policy.base_size
    start[:, :plain] = repeated[:, :plain]
    start[:, net.policy.size :] = repeated[:, plain:]
    masks = {}
    for thawed in (False, True):
        mask = torch.ones_like(start)
        frozen = [name == ALWAYS or (name == GUIDE and not thawed) for name in CONDITIONS for _ in seeds]
        mask[torch.tensor(frozen), :plain] = 0
        masks[thawed] = mask
    learned = train(
        after, runs, size["updates"], INTERVALS, 0, LEARNING_RATE, net=net, start=start,
        mask=lambda update: masks[update >= size["frozen_updates"]],
        note=lambda part: note(f"{part} of {INTERVALS} parts") if part % 5 == 0 else None,
    )  # fmt: skip
    rows = []
    for index, run in enumerate(runs):
        condition = CONDITIONS[index // len(seeds)]
        for part in range(INTERVALS):
            value = learned.curve[part, index]
            at = (part + 1) * size["updates"] / INTERVALS
            known = None if value != value else float(value)
            rows.append(row(condition, run.seed, "return", known, "", at, "no episode ended"))
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """The claim holds when unfrozen adaptation ends below its start and below the guide's way."""
    at = places(rows, "return", NEVER)
    if len(at) < 2:
        return UNTESTED, "there are no curves."
    ends = {name: select(rows, "return", name, at[-1]) for name in CONDITIONS}
    gained = difference(ends[NEVER], select(rows, "return", NEVER, at[0]))
    against = difference(ends[NEVER], ends[GUIDE])
    final = {name: mean(values.values()) for name, values in ends.items()}
    told = ", ".join(f"{name} {value.text()}" for name, value in final.items() if value)
    if gained is None or against is None:
        return UNTESTED, "there are no pairs of seeds."
    said = (
        f"final returns: {told}; never frozen changes its return by {gained.text()} from the first to the last "
        f"twentieth and ends {against.text()} from the guide's way; {gained.n} seeds"
    )
    if gained.high < 0 and against.high < 0:
        return HOLDS, f"{said}."
    if gained.low > 0 or against.low > 0:
        return FAILS, f"{said}: it does not diverge."
    return UNTESTED, f"{said}: too close to tell."
