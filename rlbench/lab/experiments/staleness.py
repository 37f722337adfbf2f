"""Learning from old policies

An advantage actor-critic (GAE, Adam, 4 actors of 2 environments x 16 steps for an update) on CartPole with 200 steps an
episode (dense reward) and on a room of 8 x 8 cells with a reward at the goal only, 40 steps to find it (sparse; returns
are the share of episodes that do). For each update, each actor acts by the policy of k updates ago, k drawn evenly from
0 to twice the mean that is given; staleness is injected, not measured, so that nothing else varies. Controls: none;
samples weighed by 1/(1+k) ("reciprocal") or 1/(1+0.1 k) ("scaled"); samples beyond a threshold dropped (8 dense, 4
sparse, as the guide has it); V-trace. Returns are means over the last fifth of training. How much staleness is
tolerated depends on the learning rate. Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlbench.lab.rows import Row, places, row, select
from rlbench.lab.statistics import Estimate, difference, mean
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict, all_hold

CLAIM = (
    "A staleness threshold of 5 to 10 is right for dense rewards and of 2 to 4 for sparse ones; a staleness of 5 kills "
    "learning with sparse rewards."
)
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"staleness": [0, 2, 5, 20], "seeds": 5, "dense_updates": 120, "sparse_updates": 150},
    "full": {"staleness": [0, 1, 2, 5, 10, 20, 50], "seeds": 12, "dense_updates": 500, "sparse_updates": 400},
}
CHART: dict[str, Any] = {
    "x": "mean staleness, updates",
    "panels": [
        {"metric": "dense_return", "title": "Dense reward: return", "log": "x"},
        {"metric": "sparse_return", "title": "Sparse reward: return", "log": "x"},
        {"metric": "dense_dropped", "title": "Dense: samples dropped", "log": "x", "only": ["threshold drop"]},
        {"metric": "dense_effective", "title": "Dense: effective sample size / samples", "log": "x"},
    ],
}

CONTROLS = ("none", "reciprocal", "scaled", "threshold drop", "V-trace")
THRESHOLDS = {"dense": 8, "sparse": 4}
LEARNING_RATES = {"dense": 2e-3, "sparse": 3e-3}
# The guide's thresholds, widened to what lies between two staleness values that were run.
CLAIMED = {"dense": (5, 10), "sparse": (2, 4)}
HARM, KILLED = 0.1, 0.2
INTERVALS = 10


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Train every control at every staleness with every seed; both tasks at the same time."""
    import torch

    from rlbench.lab.together import together

    torch.set_num_threads(1)
    size = SIZES["quick" if quick else "full"]
    per_task = len(CONTROLS) * len(size["staleness"]) * size["seeds"]
    note(f"{per_task} trainings on each of 2 tasks, {size['seeds']} seeds")
    found = together([partial(_train, task, size, note) for task in THRESHOLDS])
    return [each for rows in found for each in rows]


def verdict(rows: list[Row]) -> Verdict:
    """Judge where uncontrolled learning begins to suffer on each task, and what 5 does to the sparse one.

    Staleness is tolerated up to the last value before the first that costs a tenth of the return without staleness,
    its interval being below no loss.
    """
    told, parts = [], []
    for task, (low, high) in CLAIMED.items():
        base = mean(select(rows, f"{task}_return", "none", 0).values())
        tried = [at for at in places(rows, f"{task}_return", "none") if at > 0]
        if base is None or not tried or base.value <= 0:
            return UNTESTED, f"the {task} task was not learned without staleness."
        losses = {at: loss for at in tried if (loss := _loss(rows, task, at)) is not None}
        harmful = [at for at in tried if at in losses and -losses[at].value > HARM * base.value and losses[at].high < 0]
        tolerated = max((at for at in [0.0, *tried] if not harmful or at < harmful[0]), default=0.0)
        parts.append(HOLDS if low <= tolerated <= high else FAILS)
        limit = f"harm begins at {harmful[0]:g}" if harmful else "no staleness tried does harm"
        told.append(f"{task}: {limit} (return {base.text()} without staleness" + (
            f", {_kept(rows, task, harmful[0])} there)" if harmful else ")"))  # fmt: skip
    five = _loss(rows, "sparse", 5)
    base = mean(select(rows, "sparse_return", "none", 0).values())
    if five is None or base is None:
        return UNTESTED, "a staleness of 5 was not run on the sparse task."
    kept = five.map(lambda loss: 1 + loss / base.value)
    parts.append(HOLDS if kept.high < KILLED else FAILS if kept.low >= KILLED else UNTESTED)
    told.append(f"a staleness of 5 leaves {kept.text()} of the sparse return")
    told.append(_changes(rows))
    return all_hold(parts), f"{'; '.join(told)}; {base.n} seeds."


def _loss(rows: list[Row], task: str, at: float) -> Estimate | None:
    metric = f"{task}_return"
    return difference(select(rows, metric, "none", at), select(rows, metric, "none", 0))


def _kept(rows: list[Row], task: str, at: float) -> str:
    found = mean(select(rows, f"{task}_return", "none", at).values())
    return found.text() if found else "nothing"


def _changes(rows: list[Row]) -> str:
    """Say what each control changes at a staleness beyond all thresholds: 20, or the nearest that was run."""
    told = []
    for task in CLAIMED:
        at = min(places(rows, f"{task}_return", "none"), key=lambda place: abs(place - 20))
        none = select(rows, f"{task}_return", "none", at)
        changes = [
            f"{name} {gain.text(2)}"
            for name in CONTROLS[1:]
            if (gain := difference(select(rows, f"{task}_return", name, at), none)) is not None
        ]
        if changes:
            told.append(f"{task} at {at:g}: {', '.join(changes)}")
    return f"against no control, returns change by ({'; '.join(told)})"


def _train(task: str, size: dict[str, Any], note: Callable[[str], None]) -> list[Row]:
    from rlbench.lab import batched
    from rlbench.lab.actor_critic import Run, train

    runs = [
        Run(control, stale, seed)
        for seed in range(size["seeds"])
        for stale in size["staleness"]
        for control in CONTROLS
    ]

    def make(seeds: Sequence[int]) -> Any:
        return batched.CartPole(seeds, 8) if task == "dense" else batched.Grid(seeds, 8, side=8, limit=40)

    learned = train(
        make, runs, size[f"{task}_updates"], INTERVALS, THRESHOLDS[task], LEARNING_RATES[task],
        note=lambda interval: note(f"{task}: {interval} of {INTERVALS} parts") if interval % 2 == 0 else None,
    )  # fmt: skip
    rows = []
    for index, run in enumerate(runs):
        final = learned.curve[-INTERVALS // 5 :, index].mean()
        values = {"return": final, "dropped": learned.dropped[index], "effective": learned.effective[index]}
        for name, value in values.items():
            unit = "" if name == "return" else "share"
            known = None if value != value else value
            rows.append(row(run.control, run.seed, f"{task}_{name}", known, unit, run.staleness, "no episode ended"))
    return rows
