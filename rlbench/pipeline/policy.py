"""Actor-critic of two multi-layer perceptrons, and the distributions of its actions.

A distribution has two sides: numpy where single rows are sampled in the environments' loop, torch where a loss needs
gradients. Noise is drawn for a whole rollout at once: a generator call per step would cost more than the network.
"""

import math
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from rlbench.pipeline.lora import apply_lora

# log sqrt(2 pi), of the normal density.
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Categorical:
    """``n`` discrete actions; the network's output are logits (..., n), an action is an int64 scalar."""

    shape, dtype = (), np.int64

    def __init__(self, n):
        self.n = self.outputs = n

    def noise(self, rng, steps, n_envs):
        """Return Gumbel noise float32 (steps, n_envs, n); adding it to logits and taking the maximum samples."""
        return rng.gumbel(size=(steps, n_envs, self.n)).astype(np.float32)

    def sample(self, outputs, noise, deviation=None):
        """Return actions int64 (n_envs,) for logits and noise (n_envs, n); ``deviation`` is not used."""
        return (outputs + noise).argmax(1)

    def for_env(self, actions):
        """Return what each environment is given: a list of int."""
        return actions.tolist()

    def behaviour_log_prob(self, outputs, noise, log_std, actions):
        """Return the log probability of ``actions`` (T, n_envs), float32, given logits (T, n_envs, n)."""
        top = outputs.max(-1, keepdims=True)
        normal = np.log(np.exp(outputs - top).sum(-1)) + top[..., 0]
        return np.take_along_axis(outputs, actions[..., None], -1)[..., 0] - normal

    def log_prob(self, outputs, actions, log_std=None):
        """Return log probabilities (B,) and the distribution's normalised log probabilities (B, n), for ``entropy``."""
        log_p = outputs.log_softmax(-1)
        return log_p.gather(1, actions.unsqueeze(1)).squeeze(1), log_p

    def entropy(self, log_p, log_std=None):
        """Return the mean entropy over the batch, a scalar tensor."""
        return -(log_p.exp() * log_p).sum(1).mean()

    def greedy(self, outputs):
        """Return the most likely action of one row of logits, an int."""
        return int(outputs.argmax())


class Gaussian:
    """Continuous actions float32 (dim,) with a deviation that does not depend on the observation.

    The network's output is the mean; environments are given the action clipped to ``low`` .. ``high``.
    """

    dtype = np.float32

    def __init__(self, low, high):
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        self.shape = self.low.shape
        self.outputs = self.low.size

    def noise(self, rng, steps, n_envs):
        """Return standard normal noise float32 (steps, n_envs, dim)."""
        return rng.standard_normal((steps, n_envs, self.outputs), np.float32)

    def sample(self, outputs, noise, deviation):
        """Return actions float32 (n_envs, dim): mean + deviation * noise."""
        return outputs + deviation * noise

    def for_env(self, actions):
        """Return what each environment is given: rows clipped to the space."""
        return np.clip(actions, self.low, self.high)

    def behaviour_log_prob(self, outputs, noise, log_std, actions):
        """Return the log probability (T, n_envs) of what was sampled with ``noise`` and ``log_std`` (T, 1, dim)."""
        return (-0.5 * noise**2 - log_std - np.float32(HALF_LOG_2PI)).sum(-1)

    def log_prob(self, outputs, actions, log_std):
        """Return log probabilities (B,) and None."""
        z = (actions - outputs) * torch.exp(-log_std)
        return -0.5 * z.square().sum(1) - log_std.sum() - self.outputs * HALF_LOG_2PI, None

    def entropy(self, log_p, log_std):
        """Return the entropy, a scalar tensor."""
        return log_std.sum() + self.outputs * (0.5 + HALF_LOG_2PI)

    def greedy(self, outputs):
        """Return the mean of one row, clipped to the space."""
        return np.clip(outputs, self.low, self.high)


def distribution_of(space):
    """Return the distribution for a Gymnasium action space; raises ValueError for what is neither Discrete nor 1-D."""
    if hasattr(space, "n"):
        return Categorical(int(space.n))
    if hasattr(space, "low") and len(space.shape) == 1:
        return Gaussian(space.low, space.high)
    raise ValueError("actions of %s are not supported: discrete ones and 1-D boxes are" % (space,))


class ActorCritic(nn.Module):
    """Actor and critic with the same hidden layers and weights of their own; orthogonal initialisation.

    Gains sqrt(2), 0.01 for the actor's head, 1 for the critic's, after Andrychowicz et al. 2021 (arXiv:2006.05990).
    ``distribution``: Categorical or Gaussian; with the latter ``log_std`` is a parameter (dim,), from zero.
    ``activation``: "tanh" or "relu". Raises KeyError for another. ``lora_ranks``: those of low-rank adapters over the
    linear layers of actor and of critic, first layer first, the last for all that follow; None: no adapters.

    >>> net = ActorCritic(4, Categorical(2), [64, 64])
    >>> outputs, values = net(torch.zeros(3, 4))
    >>> outputs.shape, values.shape
    (torch.Size([3, 2]), torch.Size([3]))
    """

    def __init__(self, observation_dim, distribution, net_arch, activation="tanh", lora_ranks=None):
        super().__init__()
        self.distribution = distribution
        kind = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
        self.actor = _mlp([observation_dim, *net_arch, distribution.outputs], kind, head_gain=0.01)
        self.critic = _mlp([observation_dim, *net_arch, 1], kind, head_gain=1.0)
        gaussian = isinstance(distribution, Gaussian)
        self.log_std = nn.Parameter(torch.zeros(distribution.outputs)) if gaussian else None
        if lora_ranks:
            apply_lora(self.actor, lora_ranks)
            apply_lora(self.critic, lora_ranks)

    def forward(self, observations):
        """Return the distribution's outputs (B, outputs) and values (B,) for float32 observations (B, dim)."""
        return self.actor(observations), self.critic(observations).squeeze(-1)

    def greedy(self, observation):
        """Return the greedy action for one numpy observation (dim,)."""
        with torch.inference_mode():
            return self.distribution.greedy(self.actor(torch.as_tensor(observation)[None])[0].numpy())


def _mlp(widths, kind, head_gain):
    layers = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        head = number == len(widths) - 2
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, head_gain if head else math.sqrt(2))
        nn.init.zeros_(linear.bias)
        layers += [linear] if head else [linear, kind()]
    return nn.Sequential(*layers)
