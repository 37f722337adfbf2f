"""A network for PPO on discrete actions: those of the wheel do not fit its own agent, or are Gaussian."""

from typing import Any

import jax.numpy as jnp
from dopamine.jax.continuous_networks import PPOActorCriticOutput, PPOActorOutput, PPOCriticOutput
from flax import linen as nn
from jax import random
from jax.nn import log_softmax

from rlbench.probe.sampler import library_code


class MLP(nn.Module):
    """Hidden layers and a linear head, initialised as Dopamine's own PPO networks are."""

    widths: tuple[int, ...]
    activation: Any
    outputs: int
    scale: float

    @nn.compact
    @library_code
    def __call__(self, x):
        for width in self.widths:
            x = self.activation(nn.Dense(width, kernel_init=nn.initializers.orthogonal(jnp.sqrt(2.0)))(x))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.scale))(x)


class CategoricalActorCritic(nn.Module):
    """Actor and critic with weights of their own, with the methods that PPOAgent calls."""

    actions: int
    widths: tuple[int, ...]
    activation: Any

    def setup(self):
        self._actor = MLP(self.widths, self.activation, self.actions, 0.01)
        self._critic = MLP(self.widths, self.activation, 1, 1.0)

    def __call__(self, state, key):
        return PPOActorCriticOutput(self.actor(state, key), self.critic(state))

    @library_code
    def logits(self, state):
        return self._actor(state.astype(jnp.float32).reshape(-1))

    @library_code
    def actor(self, state, key=None, action=None):
        logits = log_softmax(self.logits(state))
        # One action as an array of one element: the agent enumerates the elements of an action.
        action = random.categorical(key, logits)[None] if action is None else action
        entropy = -jnp.sum(jnp.exp(logits) * logits)
        return PPOActorOutput(action, logits[action.astype(int)[0]], entropy)

    @library_code
    def critic(self, state):
        return PPOCriticOutput(self._critic(state.astype(jnp.float32).reshape(-1)))
