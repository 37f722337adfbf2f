"""Many small independent networks at once: R runs (conditions x seeds) advance in step, as one batched computation.

Every condition then sees the same machine at the same time, and hundreds of trainings take a minute. Tensors have the
runs as their first dimension; nothing flows between runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch


class Mlp(NamedTuple):
    """Layer widths of a tanh network, input first, and the ranks of its adapters (None: it has none)."""

    widths: tuple[int, ...]
    ranks: tuple[int, ...] | None = None

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of all matrices in the order of the flat parameters: weights and biases, then adapters A and B."""
        layers = list(zip(self.widths[:-1], self.widths[1:], strict=True))
        base = [shape for a, b in layers for shape in ((a, b), (1, b))]
        return base + [shape for (a, b), rank in zip(layers, self.ranks or (), strict=bool(self.ranks))
                       for shape in ((a, rank), (rank, b))]  # fmt: skip

    @property
    def base_size(self) -> int:
        """Number of parameters that are no adapters'; they come first."""
        return sum(a * b for a, b in self.shapes[: 2 * len(self.widths) - 2])

    @property
    def size(self) -> int:
        """Number of parameters of one run."""
        return sum(a * b for a, b in self.shapes)


def initialise(net: Mlp, seeds: Sequence[int], last: float = 0.01) -> torch.Tensor:
    """Return flat parameters (runs, size), run r drawn with ``seeds[r]``: runs of one seed begin alike.

    Orthogonal weights with gain sqrt(2), ``last`` for the last layer; zero biases; adapters A as in Hu et al. 2021
    (arXiv:2106.09685), B zero.
    """
    drawn: dict[int, torch.Tensor] = {}
    layers = len(net.widths) - 1
    for seed in set(seeds):
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for number, (a, b) in enumerate(net.shapes):
            part = torch.zeros(a, b)
            if number < 2 * layers and number % 2 == 0:
                gain = last if number == 2 * layers - 2 else math.sqrt(2)
                torch.nn.init.orthogonal_(part, gain, generator=generator)
            elif number >= 2 * layers and number % 2 == 0:
                part.uniform_(-1 / math.sqrt(a), 1 / math.sqrt(a), generator=generator)
            parts.append(part.reshape(-1))
        drawn[seed] = torch.cat(parts)
    return torch.stack([drawn[seed] for seed in seeds])


def forward(net: Mlp, flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Map ``x`` (runs, batch, in) through each run's network with parameters ``flat`` (runs, size)."""
    runs, layers = len(flat), len(net.widths) - 1
    parts = [
        part.view(runs, a, b)
        for part, (a, b) in zip(flat.split([a * b for a, b in net.shapes], 1), net.shapes, strict=True)
    ]
    for layer in range(layers):
        y = torch.baddbmm(parts[2 * layer + 1], x, parts[2 * layer])
        if net.ranks:
            y = y + x @ parts[2 * layers + 2 * layer] @ parts[2 * layers + 2 * layer + 1]
        x = torch.tanh(y) if layer < layers - 1 else y
    return x


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) for each run by itself; a run may sit an update out."""

    def __init__(self, flat: torch.Tensor, learning_rate: float, max_norm: float = 0.5) -> None:
        self.flat, self.learning_rate, self.max_norm = flat, learning_rate, max_norm
        self.mean, self.square = torch.zeros_like(flat), torch.zeros_like(flat)
        self.steps = torch.zeros(len(flat), 1)

    @torch.no_grad()
    def step(self, gradient: torch.Tensor, runs: torch.Tensor | None = None, mask: torch.Tensor | None = None) -> None:
        """Update ``flat`` in place by ``gradient`` (runs, size), clipped to ``max_norm`` in each run.

        ``runs`` (runs,) bool: those that make the update. ``mask`` (runs, size): 0 for frozen parameters.
        """
        if mask is not None:
            gradient = gradient * mask
        gradient = gradient * (self.max_norm / gradient.norm(dim=1, keepdim=True).clamp_min(self.max_norm))
        on = torch.ones_like(self.steps) if runs is None else runs.view(-1, 1).to(self.steps.dtype)
        # A parameter begins to count when it is thawed, as one of torch's does that had no gradient until then.
        self.steps = self.steps + (on if mask is None else on * mask)
        self.mean.lerp_(gradient, 0.1 * on)
        self.square.lerp_(gradient * gradient, 0.001 * on)
        steps = self.steps.clamp_min(1)
        update = (self.mean / (1 - 0.9**steps)) / ((self.square / (1 - 0.999**steps)).sqrt() + 1e-5)
        update = update * on if mask is None else update * on * mask
        self.flat -= self.learning_rate * update


class CartPole:
    """The cart and pole of Barto, Sutton and Anderson 1983, equations as in gymnasium's CartPole-v1, vectorised.

    ``step`` takes actions (runs, envs) in {0, 1} and returns ``(observation, reward, end)``; the reward is 1 for every
    step, an episode ends when the pole or the cart leaves its range or after ``limit`` steps, and the next begins.
    ``length`` (half the pole, m), ``force`` (N; negative swaps the actions) make another task of it.
    """

    observation_size, actions = 4, 2

    def __init__(self, seeds: Sequence[int], envs: int, limit: int = 200, length: float = 0.5, force: float = 10.0):
        self.random = [np.random.default_rng(seed) for seed in seeds]
        self.limit, self.length, self.force = limit, length, force
        self.state = np.stack([each.uniform(-0.05, 0.05, (envs, 4)) for each in self.random])
        self.steps = np.zeros(self.state.shape[:2], np.int64)

    def observation(self) -> np.ndarray:
        """Return what the next actions are to be chosen by, float32 (runs, envs, 4)."""
        return self.state.astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Advance all environments."""
        x, speed, angle, spin = np.moveaxis(self.state, -1, 0)
        force = np.where(actions == 1, self.force, -self.force)
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + 0.1 * self.length * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (self.length * (4 / 3 - 0.1 * cos**2 / 1.1))
        along = push - 0.1 * self.length * turn * cos / 1.1
        self.state = np.stack(
            [x + 0.02 * speed, speed + 0.02 * along, angle + 0.02 * spin, spin + 0.02 * turn], axis=-1
        )
        self.steps += 1
        fell = (np.abs(self.state[..., 0]) > 2.4) | (np.abs(self.state[..., 2]) > 12 * math.pi / 180)
        end = fell | (self.steps >= self.limit)
        for run, env in np.argwhere(end):
            self.state[run, env] = self.random[run].uniform(-0.05, 0.05, 4)
        self.steps[end] = 0
        return self.observation(), np.ones(end.shape, np.float32), end


class Grid:
    """A ``side`` x ``side`` room: the only reward, 1, is in the corner opposite the start; ``limit`` steps to find it.

    Actions (up, down, left, right) against a wall do nothing. Observations are one-hot row and column. The return of an
    episode is 1 when the goal was reached, else 0.
    """

    actions = 4
    _MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    def __init__(self, seeds: Sequence[int], envs: int, side: int = 6, limit: int = 30) -> None:
        self.side, self.limit, self.observation_size = side, limit, 2 * side
        self.place = np.zeros((len(seeds), envs, 2), np.int64)
        self.steps = np.zeros((len(seeds), envs), np.int64)
        self._codes = np.eye(side, dtype=np.float32)

    def observation(self) -> np.ndarray:
        """Return what the next actions are to be chosen by, float32 (runs, envs, 2 side)."""
        return np.concatenate([self._codes[self.place[..., 0]], self._codes[self.place[..., 1]]], axis=-1)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Advance all environments."""
        self.place = np.clip(self.place + self._MOVES[actions], 0, self.side - 1)
        self.steps += 1
        reached = (self.place == self.side - 1).all(-1)
        end = reached | (self.steps >= self.limit)
        self.place[end] = 0
        self.steps[end] = 0
        return self.observation(), reached.astype(np.float32), end


class Returns:
    """Adds up the rewards of episodes as they end."""

    def __init__(self, runs: int, envs: int) -> None:
        self.running = np.zeros((runs, envs))
        self.total, self.episodes = np.zeros(runs), np.zeros(runs)

    def add(self, rewards: np.ndarray, ends: np.ndarray) -> None:
        """Take one step's rewards and ends, (runs, envs)."""
        self.running += rewards
        self.total += (self.running * ends).sum(1)
        self.episodes += ends.sum(1)
        self.running[ends] = 0

    def take(self) -> np.ndarray:
        """Return the mean return of the episodes ended since the last call, (runs,); NaN where none ended."""
        with np.errstate(invalid="ignore"):
            mean = self.total / self.episodes
        self.total[:], self.episodes[:] = 0, 0
        return mean


def sample(logits: torch.Tensor, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return actions drawn from ``logits`` (runs, envs, actions) by ``uniform`` (runs, envs), and their log-probs."""
    log_prob = torch.log_softmax(logits, -1).numpy()
    actions = (np.exp(log_prob).cumsum(-1) < uniform[..., None]).sum(-1).clip(max=log_prob.shape[-1] - 1)
    return actions, np.take_along_axis(log_prob, actions[..., None], -1)[..., 0]


def uniforms(random: Sequence[np.random.Generator], envs: int) -> np.ndarray:
    """Return uniform numbers (runs, envs), each run's by its own generator."""
    return np.stack([each.random(envs) for each in random])
