"""A policy that Garage lacks; a module of its own, since policies are pickled into other processes."""

import shim  # noqa: F401
from garage.torch.modules import MLPModule
from garage.torch.policies.stochastic_policy import StochasticPolicy
from torch.distributions import Categorical

from rlbench.probe.sampler import library_call


class CategoricalPolicy(StochasticPolicy):
    """A policy for discrete actions, of which Garage has none with a multilayer perceptron."""

    def __init__(self, spec, **network):
        super().__init__(spec, "CategoricalPolicy")
        self._module = MLPModule(spec.observation_space.flat_dim, spec.action_space.flat_dim, **network)

    def forward(self, observations):
        # As Garage's own policy for images does; its time is no business of the adapter.
        return library_call(Categorical, logits=self._module(observations)), {}
