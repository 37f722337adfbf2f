"""The instrumented environment in TF-Agents' own interface."""

import numpy as np
from tf_agents.environments.py_environment import PyEnvironment
from tf_agents.specs.array_spec import ArraySpec, BoundedArraySpec
from tf_agents.trajectories import time_step as ts


class Env(PyEnvironment):
    """One instrumented environment in TF-Agents' own interface: the step after an end is a reset."""

    def __init__(self, trial, index):
        self._env, self._seed = trial.make_env(index), trial.seed + index
        super().__init__()

    def observation_spec(self):
        return ArraySpec(self._env.observation_space.shape, np.float32)

    def action_spec(self):
        space = self._env.action_space
        if hasattr(space, "n"):
            return BoundedArraySpec((), np.int64, 0, int(space.n) - 1)
        return BoundedArraySpec(space.shape, np.float32, space.low, space.high)

    def _reset(self):
        seed, self._seed = self._seed, None
        return ts.restart(self._env.reset(seed=seed)[0])

    def _step(self, action):
        if self._current_time_step is None or self._current_time_step.is_last():
            return self.reset()
        observation, reward, terminated, truncated, _ = self._env.step(action)
        if terminated:
            return ts.termination(observation, reward)
        return (ts.truncation if truncated else ts.transition)(observation, reward)

    def close(self):
        self._env.close()


def tapped(batch_class, probe):
    """Return ``batch_class`` with an act tap: its step comes right after the policy has chosen."""

    class Tapped(batch_class):
        acting = None

        def _step(self, actions):
            if self.acting is not None:
                probe.acted(self.current_time_step().observation, self.acting.numpy())
            return super()._step(actions)

    return Tapped
