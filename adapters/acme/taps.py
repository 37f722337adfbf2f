"""Where Acme's actor and learners are tapped."""

import jax
import numpy as np

from rlbench.probe.jaxtap import Kernel
from rlbench.probe.sampler import library_call


def tap_actor(actor, probe, params):
    """Report each batch that the actor's compiled policy is given, and the parameters it acts with."""
    policy, kernel = actor._policy, Kernel(params)

    def acting(params, observation, state):
        probe.acted(observation[None], kernel(params))
        return library_call(policy, params, observation, state)

    actor._policy = acting


def tap_steps(learner, name, probe, observations, params, learning_rate):
    """Report one optimizer step for each call of the learner's compiled function ``name``.

    ``observations(batch)`` and ``params(state)`` pick what is reported.
    """
    step, kernel = getattr(learner, name), Kernel(params(learner._state))

    def learning(state, batch):
        probe.learned(observations(batch))
        result = library_call(step, state, batch)
        probe.updated(kernel(params(result[0])), learning_rate)
        return result

    setattr(learner, name, learning)


class Minibatches:
    """Reports the minibatches of PPO's learner, all of whose epochs are one compiled function.

    ``apply`` is to be the network's function in the learner alone: whenever a minibatch passes through it, it
    calls out with the observations and the parameters, which are those that the step before has left. Acting is
    not slowed.
    """

    def __init__(self, probe, apply, size, learning_rate):
        self._probe, self._apply, self._size, self._rate = probe, apply, size, learning_rate
        self._kernel, self._pending = None, False

    def apply(self, params, observations):
        if observations.shape[0] == self._size:
            self._kernel = self._kernel or Kernel(params)
            jax.debug.callback(self._seen, observations, self._kernel.leaf(params))
        return self._apply(params, observations)

    def _seen(self, observations, weights):
        if self._pending:
            self._probe.updated(np.asarray(weights), self._rate)
        self._probe.learned(np.asarray(observations))
        self._pending = True

    def tap(self, learner):
        """Report the last step of each update, which no minibatch follows."""
        step = learner._sgd_step

        def learning(state, sample):
            result = library_call(step, state, sample)
            library_call(jax.block_until_ready, result[0].params)
            library_call(jax.effects_barrier)
            self._probe.updated(self._kernel(result[0].params), self._rate)
            self._pending = False
            return result

        learner._sgd_step = learning
