"""Prioritised replay

Double DQN (two layers of 32, Huber loss, target network every 100 updates, 4 environments, one update of 32 records per
4 steps, exploration 10 %) on CartPole with 200 steps an episode and on a room of 8 x 8 cells with a reward at the goal
only. Replay of 20 000 records, uniform or by TD error (alpha 0.6, beta 0.4). Counted are environment steps until the
mean return of an interval of 400 steps reaches the threshold: 100 on CartPole, 0.8 in the room. A run that does not get
there counts with its whole budget. Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlbench.lab.rows import Row, row, select
from rlbench.lab.statistics import ratio
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict, at_least

CLAIM = "Prioritised replay speeds learning."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": 5, "dense_updates": 800, "sparse_updates": 800},
    "full": {"seeds": 10, "dense_updates": 5000, "sparse_updates": 4000},
}
CHART: dict[str, Any] = {
    "x": "environment steps",
    "panels": [
        {"metric": "sparse_return", "title": "Room: return"},
        {"metric": "dense_return", "title": "CartPole: return"},
    ],
}

UNIFORM, PRIORITISED = "uniform", "prioritised"
ALPHAS = {UNIFORM: 0.0, PRIORITISED: 0.6}
THRESHOLDS = {"sparse": 0.8, "dense": 100.0}
NAMES = {"sparse": "room", "dense": "CartPole"}
ENVS, BATCH, CAPACITY, GAMMA, EXPLORE, TARGET_EVERY, INTERVAL = 4, 32, 20_000, 0.98, 0.1, 100, 100
LEARNING_RATE = 1e-3


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Train all seeds with both replays; both tasks at the same time."""
    import torch

    from rlbench.lab.together import together

    torch.set_num_threads(1)
    size = SIZES["quick" if quick else "full"]
    note(f"{2 * size['seeds']} trainings on each of 2 tasks")
    found = together([partial(_train, task, size["seeds"], size[f"{task}_updates"], note) for task in NAMES])
    return [each for rows in found for each in rows]


def verdict(rows: list[Row]) -> Verdict:
    """Judge by steps to the threshold, uniform / prioritised, on each task: above 1 is faster."""
    told, parts, seeds = [], [], 0
    for task, name in NAMES.items():
        reached = {each: select(rows, f"{task}_reached", each) for each in ALPHAS}
        found = ratio(*(select(rows, f"{task}_steps_to_threshold", each) for each in (UNIFORM, PRIORITISED)))
        counts = {each: sum(map(bool, values.values())) for each, values in reached.items()}
        if found is None or not any(counts.values()):
            told.append(f"{name}: no run reached the threshold in its budget")
            continue
        seeds = found.n
        parts.append(at_least(found, 1.0))
        told.append(
            f"{name}: uniform needs {found.text()} times the steps of prioritised (reached by {counts[UNIFORM]} and "
            f"{counts[PRIORITISED]} of {seeds} seeds)"
        )
    said = "; ".join(told)
    if HOLDS in parts and FAILS not in parts:
        return HOLDS, f"{said}."
    if FAILS in parts and HOLDS not in parts:
        return FAILS, f"{said}: it slows learning."
    if HOLDS in parts:
        return FAILS, f"{said}: it depends on the task."
    return UNTESTED, f"{said}: no difference that {seeds or 'these'} seeds can tell."


def _train(task: str, seeds: int, updates: int, note: Callable[[str], None]) -> list[Row]:
    import torch

    from rlbench.lab import batched
    from rlbench.pipeline.replay import PrioritisedReplay

    runs = [(condition, seed) for seed in range(seeds) for condition in ALPHAS]
    numbers = [seed for _, seed in runs]
    env: Any = batched.CartPole(numbers, ENVS) if task == "dense" else batched.Grid(numbers, ENVS, side=8, limit=60)
    net = batched.Mlp((env.observation_size, 32, 32, env.actions))
    flat = batched.initialise(net, numbers, last=0.1)
    target = flat.clone()
    optimizer = batched.Adam(flat, LEARNING_RATE, max_norm=10.0)
    random = [np.random.default_rng(seed) for seed in numbers]
    shape = ("<f4", env.observation_size)
    record = np.dtype([("seen", *shape), ("next", *shape), ("action", "<i8"), ("reward", "<f4"), ("end", "?")])
    replays = [PrioritisedReplay(CAPACITY, record, alpha=ALPHAS[condition]) for condition, _ in runs]
    returns, reached = batched.Returns(len(runs), ENVS), np.zeros(len(runs))
    rows: list[Row] = []
    observation = env.observation()
    for update in range(updates):
        with torch.no_grad():
            greedy = batched.forward(net, flat, torch.from_numpy(observation)).argmax(-1).numpy()
        explore = batched.uniforms(random, ENVS) < EXPLORE
        actions = np.where(explore, (batched.uniforms(random, ENVS) * env.actions).astype(np.int64), greedy)
        following, rewards, ends = env.step(actions)
        returns.add(rewards, ends)
        for index, replay in enumerate(replays):
            new = np.empty(ENVS, record)
            new["seen"], new["next"], new["action"] = observation[index], following[index], actions[index]
            new["reward"], new["end"] = rewards[index], ends[index]
            replay.add(new)
        observation = following
        if update >= BATCH:
            _learn(net, flat, target, optimizer, replays, random)
        if update % TARGET_EVERY == 0:
            target.copy_(flat)
        if (update + 1) % INTERVAL == 0:
            steps = (update + 1) * ENVS
            mean = returns.take()
            reached[(reached == 0) & (mean >= THRESHOLDS[task])] = steps
            for (condition, seed), value in zip(runs, mean, strict=True):
                known = None if value != value else float(value)
                rows.append(row(condition, seed, f"{task}_return", known, "", steps, "no episode ended"))
        if (update + 1) % max(INTERVAL, updates // 5) == 0:
            note(f"{NAMES[task]}: {update + 1} of {updates} updates, {int((reached > 0).sum())} of {len(runs)} there")
    for (condition, seed), first in zip(runs, reached, strict=True):
        rows.append(row(condition, seed, f"{task}_reached", float(first > 0), ""))
        rows.append(row(condition, seed, f"{task}_steps_to_threshold", first or updates * ENVS, "steps"))
    return rows


def _learn(net: Any, flat: Any, target: Any, optimizer: Any, replays: list[Any], random: list[Any]) -> None:
    """Make one update of every run and set the priorities of the records that it saw."""
    import torch

    from rlbench.lab import batched

    drawn = [replay.sample(BATCH, each, beta=0.4) for replay, each in zip(replays, random, strict=True)]
    batch = np.stack([records for records, _, _ in drawn])
    weights = torch.from_numpy(np.stack([weight for _, _, weight in drawn]))
    seen, following = (torch.from_numpy(np.ascontiguousarray(batch[name])) for name in ("seen", "next"))
    action = torch.from_numpy(batch["action"].copy())[..., None]
    with torch.no_grad():
        best = batched.forward(net, flat, following).argmax(-1, keepdim=True)
        after = batched.forward(net, target, following).gather(-1, best)[..., 0]
        going = torch.from_numpy(1 - batch["end"].astype(np.float32))
        goal = torch.from_numpy(batch["reward"].copy()) + GAMMA * going * after
    leaf = flat.detach().requires_grad_(True)
    value = batched.forward(net, leaf, seen).gather(-1, action)[..., 0]
    loss = torch.nn.functional.smooth_l1_loss(value, goal, reduction="none")
    gradient = torch.autograd.grad((loss * weights).mean(1).sum(), leaf)[0]
    errors = (value.detach() - goal).abs().numpy() + 1e-3
    optimizer.step(gradient)
    for replay, (_, index, _), error in zip(replays, drawn, errors, strict=True):
        if replay.alpha:
            replay.update(index, error)
