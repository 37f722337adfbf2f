"""The oracle's environment: episodes of five steps, reward 1 a step, observations that differ from step to step."""

import gymnasium
import numpy as np

EPISODE = 5


class OracleEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        self._steps += 1
        return self._observation(), 1.0, self._steps == EPISODE, False, {}

    def _observation(self):
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


gymnasium.register("Oracle-v0", OracleEnv)
