"""The instrumented environment in RLgraph's own interface."""

import numpy as np
import shim  # noqa: F401

# isort: split
from rlgraph.environments.environment import Environment
from rlgraph.spaces import FloatBox, IntBox


class Env(Environment):
    """An environment with one flag for the end of an episode."""

    def __init__(self, trial, index):
        self._env, self._seed = trial.make_env(index), trial.seed + index
        self._discrete = hasattr(self._env.action_space, "n")
        super().__init__(*self.spaces_of(self._env.observation_space, self._env.action_space))
        self._first = self.reset() if trial.mode == "async" else None

    @staticmethod
    def spaces_of(observations, actions):
        """Return both spaces as RLgraph has them."""
        discrete = hasattr(actions, "n")
        actions = IntBox(int(actions.n)) if discrete else FloatBox(low=actions.low, high=actions.high)
        return FloatBox(shape=observations.shape), actions

    def reset(self):
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)[0]

    def step(self, actions, **ignored):
        action = int(actions) if self._discrete else np.asarray(actions, np.float32).reshape(-1)
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated or truncated, info

    def step_flow(self, action):
        """What IMPALA's actors call: an episode's end gives the first observation of the next."""
        observation, reward, done, _ = self.step(action)
        return self.reset() if done else observation, np.float32(reward), done

    def terminate(self):
        self._env.close()

    def __str__(self):
        return "trial"
