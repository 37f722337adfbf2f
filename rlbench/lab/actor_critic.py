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
ACTORS = 4


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

    The environments are shared out among ACTORS actors. Each acts by the policy of k optimizer steps ago, k drawn for
    each rollout evenly from 0..2 s with s the run's mean staleness (the same draws for runs of one seed and s); as long
    as there are fewer than k, by the first policy. Losses are means over the sum of the samples' weights.
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
    dropped, effective = np.zeros(len(runs)), np.zeros(len(runs))
    for update in range(updates):
        drawn = (np.stack([each.random(ACTORS) for each in draws]) * spread[:, None]).astype(np.int64)
        stale = np.minimum(drawn, versions[:, None])
        acting = history[(versions[:, None] - stale) % depth, everyone[:, None]].flatten(0, 1) if depth > 1 else flat
        rollout = _act(net, acting, task, steps, generators, seen)
        weights = _weights(stale, groups, threshold)
        on = weights.any(1)
        per_env = torch.from_numpy(weights.repeat(envs // ACTORS, axis=1))
        gradient = _gradient(net, flat, rollout, per_env, groups)
        optimizer.step(gradient, torch.from_numpy(on), mask(update))
        versions += on
        if depth > 1:
            history[versions % depth, everyone] = flat
        dropped += (weights == 0).mean(1)
        effective += weights.sum(1) ** 2 / np.maximum((weights**2).sum(1), 1e-12) / ACTORS
        if (update + 1) * intervals // updates > update * intervals // updates:
            curve.append(seen.take())
            note(len(curve))
    return Learned(np.stack(curve), dropped / updates, effective / updates, flat)


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
        runs, envs, size = observation.shape
        x = torch.from_numpy(observation).reshape(len(flat), -1, size)
        logits = net.logits(flat, x).view(runs, envs, -1)
        actions, log_probs = batched.sample(logits, batched.uniforms(generators, envs))
        _, rewards, ends = task.step(actions)
        seen.add(rewards, ends)
        for part, value in zip(parts, (observation, actions, log_probs, rewards, ends), strict=True):
            part.append(value)
    observations, taken, chosen, gained, ended = (np.stack(part) for part in parts)
    return _Rollout(observations, taken, chosen, gained, ended, task.observation())


def _gradient(
    net: Nets, flat: torch.Tensor, rollout: _Rollout, weights: torch.Tensor, groups: dict[str, np.ndarray]
) -> torch.Tensor:
    """Return the gradient (runs, size) of each run's loss, its samples weighed by ``weights`` (runs, envs)."""
    steps, runs, envs = rollout.rewards.shape
    leaf = flat.detach().requires_grad_(True)
    seen = torch.from_numpy(np.concatenate([rollout.observations, rollout.last[None]]))
    x = seen.transpose(0, 1).reshape(runs, (steps + 1) * envs, -1)
    logits = net.logits(leaf, x[:, : steps * envs]).view(runs, steps, envs, -1).transpose(0, 1)
    all_values = net.values(leaf, x).view(runs, steps + 1, envs).transpose(0, 1)
    log_all = torch.log_softmax(logits, -1)
    value = all_values[:-1]
    chosen = log_all.gather(-1, torch.from_numpy(rollout.actions)[..., None])[..., 0]
    advantages, targets = _advantages(
        rollout, all_values.detach().numpy(), chosen.detach().numpy(), weights.numpy() > 0, groups
    )
    entropy = -(log_all.exp() * log_all).sum(-1)
    loss = -chosen * advantages + VALUE * (value - targets) ** 2 - ENTROPY * entropy
    # Summed over runs: each run's parameters see its own loss only.
    share = weights / weights.sum(1, keepdim=True).clamp_min(1e-8)
    return torch.autograd.grad((loss.mean(0) * share).sum(), leaf)[0]


def _advantages(
    rollout: _Rollout, values: np.ndarray, log_probs: np.ndarray, counted: np.ndarray, groups: dict[str, np.ndarray]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages, normalised in each run over its ``counted`` (runs, envs), and value targets.

    All are (steps, runs, envs). Mean and deviation are weighed by V-trace's clipped ratios: normalisation must not give
    weight to a sample that the correction takes it from, nor make up for small ratios.
    """
    advantages, targets, rho = np.empty_like(values[:-1]), np.empty_like(values[:-1]), np.ones_like(values[:-1])
    corrected = groups["V-trace"]
    rho[:, corrected] = np.minimum(1, np.exp(log_probs - rollout.log_probs)[:, corrected])
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
    rho_counted = np.maximum(1e-6, rho * counted)
    total, squares = rho_counted.sum((0, 2), keepdims=True), (rho_counted**2).sum((0, 2), keepdims=True)
    advantages -= rho * (advantages * counted).sum((0, 2), keepdims=True) / total
    advantages /= np.sqrt((advantages**2 * counted).sum((0, 2), keepdims=True) / squares) + 1e-6
    advantages = advantages.astype(np.float32)
    return torch.from_numpy(advantages), torch.from_numpy(targets)


def _groups(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    return {control: np.array([run.control == control for run in runs]) for control in CONTROLS}


def _weights(stale: np.ndarray, groups: dict[str, np.ndarray], threshold: int) -> np.ndarray:
    """Return the weight of each actor's rollout by its run's control, float32; all (runs, actors)."""
    weights = np.ones(stale.shape, np.float32)
    for form in ("reciprocal", "scaled"):
        weights[groups[form]] = staleness.weights(stale[groups[form]], form)
    weights[groups["threshold drop"]] = staleness.weights(stale[groups["threshold drop"]], "none", threshold)
    return weights
