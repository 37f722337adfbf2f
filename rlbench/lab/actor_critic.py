"""An advantage actor-critic for many runs at once, with a chosen staleness between the policy that acts and learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rlbench.lab import batched
from rlbench.lab.batched import Adam, Mlp, Returns
from rlbench.pipeline import returns, staleness

CONTROLS = ("none", "reciprocal", "scaled", "threshold drop", "V-trace")
GAMMA, LAMBDA, ENTROPY, VALUE = 0.99, 0.95, 0.01, 0.5


class Run(NamedTuple):
    """One training: its control of staleness, the mean staleness that is injected, and its seed."""

    control: str
    staleness: int
    seed: int


class Nets(NamedTuple):
    """A policy network and a value network, in one row of flat parameters: the policy's first."""

    policy: Mlp
    value: Mlp

    @property
    def size(self) -> int:
        """Number of parameters of one run."""
        return self.policy.size + self.value.size

    def initialise(self, seeds: Sequence[int]) -> torch.Tensor:
        """Return flat parameters (runs, size)."""
        return torch.cat(
            [batched.initialise(self.policy, seeds), batched.initialise(self.value, seeds, last=1.0)], dim=1
        )

    def logits(self, flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the policy's logits (runs, batch, actions) for ``x`` (runs, batch, observation)."""
        return batched.forward(self.policy, flat[:, : self.policy.size], x)

    def values(self, flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return values (runs, batch)."""
        return batched.forward(self.value, flat[:, self.policy.size :], x)[..., 0]


def nets(task: Any, ranks: tuple[int, ...] | None = None) -> Nets:
    """Return networks of two layers of 32 for a task, the policy with adapters of ``ranks`` where given."""
    widths = (task.observation_size, 32, 32)
    return Nets(Mlp((*widths, task.actions), ranks), Mlp((*widths, 1)))


class Learned(NamedTuple):
    """Mean return of the episodes that ended in each interval, (intervals, runs); share of samples dropped and
    effective sample size / samples by weight, (runs,); the final parameters, (runs, size).
    """

    curve: np.ndarray
    dropped: np.ndarray
    effective: np.ndarray
    flat: torch.Tensor


def train(
    make: Callable[[Sequence[int]], Any],
    runs: Sequence[Run],
    updates: int,
    intervals: int,
    threshold: int,
    learning_rate: float,
    steps: int = 16,
    net: Nets | None = None,
    start: torch.Tensor | None = None,
    mask: Callable[[int], torch.Tensor | None] = lambda update: None,
    note: Callable[[int], None] = lambda interval: None,
) -> Learned:
    """Train all runs for ``updates`` rollouts of ``steps`` x environments.

    Each rollout is acted by the policy of k optimizer steps ago, k drawn evenly from 0..2 s with s the run's mean
    staleness (the same draws for runs of one seed and s); as long as there are fewer than k, by the first policy.
    ``make(seeds)`` makes the environments; ``net`` and ``start`` (runs, size) continue with other parameters;
    ``mask(update)`` (runs, size) freezes some.
    """
    seeds = [run.seed for run in runs]
    task = make(seeds)
    envs = task.observation().shape[1]
    net = net or nets(task)
    flat = net.initialise(seeds) if start is None else start.clone()
    optimizer = Adam(flat, learning_rate)
    depth = 2 * max(run.staleness for run in runs) + 1
    history = flat.expand(depth, *flat.shape).clone() if depth > 1 else flat[None]
    spread = np.array([2 * run.staleness + 1 for run in runs])
    generators = [np.random.default_rng(1000 + seed) for seed in seeds]
    draws = [np.random.default_rng(2000 + seed) for seed in seeds]
    everyone = np.arange(len(runs))
    groups = _groups(runs)
    versions = np.zeros(len(runs), np.int64)
    seen, curve = Returns(len(runs), envs), []
    dropped, weighed, squares = np.zeros(len(runs)), np.zeros(len(runs)), np.zeros(len(runs))
    for update in range(updates):
        drawn = (np.array([each.random() for each in draws]) * spread).astype(np.int64)
        stale = np.minimum(drawn, versions)
        acting = history[(versions - stale) % depth, everyone] if depth > 1 else flat
        rollout = _act(net, acting, task, steps, generators, seen)
        weights = _weights(stale, groups, threshold)
        on = weights > 0
        gradient = _gradient(net, flat, rollout, torch.from_numpy(weights), groups)
        optimizer.step(gradient, torch.from_numpy(on), mask(update))
        versions += on
        if depth > 1:
            history[versions % depth, everyone] = flat
        dropped += ~on
        weighed += weights
        squares += weights**2
        if (update + 1) * intervals // updates > update * intervals // updates:
            curve.append(seen.take())
            note(len(curve))
    return Learned(np.stack(curve), dropped / updates, weighed**2 / np.maximum(squares, 1e-12) / updates, flat)


class _Rollout(NamedTuple):
    """Arrays (steps, runs, envs, ...) and the observation after the last step (runs, envs, ...)."""

    observations: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    rewards: np.ndarray
    ends: np.ndarray
    last: np.ndarray


@torch.no_grad()
def _act(net: Nets, flat: torch.Tensor, task: Any, steps: int, generators: Any, seen: Returns) -> _Rollout:
    parts: list[list[np.ndarray]] = [[], [], [], [], []]
    for _ in range(steps):
        observation = task.observation()
        logits = net.logits(flat, torch.from_numpy(observation))
        actions, log_probs = batched.sample(logits, batched.uniforms(generators, observation.shape[1]))
        _, rewards, ends = task.step(actions)
        seen.add(rewards, ends)
        for part, value in zip(parts, (observation, actions, log_probs, rewards, ends), strict=True):
            part.append(value)
    return _Rollout(*(np.stack(part) for part in parts), task.observation())


def _gradient(
    net: Nets, flat: torch.Tensor, rollout: _Rollout, weights: torch.Tensor, groups: dict[str, np.ndarray]
) -> torch.Tensor:
    """Return the gradient (runs, size) of each run's loss, its samples weighed by ``weights`` (runs,)."""
    steps, runs, envs = rollout.rewards.shape
    leaf = flat.detach().requires_grad_(True)
    seen = torch.from_numpy(np.concatenate([rollout.observations, rollout.last[None]]))
    x = seen.transpose(0, 1).reshape(runs, (steps + 1) * envs, -1)
    logits = net.logits(leaf, x[:, : steps * envs]).view(runs, steps, envs, -1).transpose(0, 1)
    all_values = net.values(leaf, x).view(runs, steps + 1, envs).transpose(0, 1)
    log_all = torch.log_softmax(logits, -1)
    value = all_values[:-1]
    chosen = log_all.gather(-1, torch.from_numpy(rollout.actions)[..., None])[..., 0]
    advantages, targets = _advantages(rollout, all_values.detach().numpy(), chosen.detach().numpy(), groups)
    entropy = -(log_all.exp() * log_all).sum(-1)
    loss = -chosen * advantages + VALUE * (value - targets) ** 2 - ENTROPY * entropy
    # Summed over runs: each run's parameters see its own loss only.
    return torch.autograd.grad((loss.mean((0, 2)) * weights).sum(), leaf)[0]


def _advantages(
    rollout: _Rollout, values: np.ndarray, log_probs: np.ndarray, groups: dict[str, np.ndarray]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages, normalised in each run, and value targets, (steps, runs, envs)."""
    advantages, targets = np.empty_like(values[:-1]), np.empty_like(values[:-1])
    corrected = groups["V-trace"]
    for of, by_ratio in ((~corrected, False), (corrected, True)):
        if not of.any():
            continue
        common = rollout.rewards[:, of], values[:-1, of], rollout.ends[:, of], values[-1, of]
        if by_ratio:
            target, advantage = returns.vtrace(
                *common, rollout.log_probs[:, of], log_probs[:, of], GAMMA, trace_lambda=LAMBDA
            )
        else:
            advantage, target = returns.gae(*common, GAMMA, LAMBDA)
        advantages[:, of], targets[:, of] = advantage, target
    scale = advantages.std((0, 2), keepdims=True) + 1e-6
    return torch.from_numpy((advantages - advantages.mean((0, 2), keepdims=True)) / scale), torch.from_numpy(targets)


def _groups(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    return {control: np.array([run.control == control for run in runs]) for control in CONTROLS}


def _weights(stale: np.ndarray, groups: dict[str, np.ndarray], threshold: int) -> np.ndarray:
    """Return the weight of each run's rollout by its control, float32 (runs,)."""
    weights = np.ones(len(stale), np.float32)
    for form in ("reciprocal", "scaled"):
        weights[groups[form]] = staleness.weights(stale[groups[form]], form)
    weights[groups["threshold drop"]] = staleness.weights(stale[groups["threshold drop"]], "none", threshold)
    return weights
