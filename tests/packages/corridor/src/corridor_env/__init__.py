"""A corridor to walk along: an environment as a user of rlbench would bring it."""

import gymnasium
import numpy as np
from toolz import interleave, take


class Corridor(gymnasium.Env):
    """Walk right to the end; every step costs ``cost``, the end pays 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=8, cost=0.02):
        self.length, self.cost = length, cost
        self.position = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = int(self.np_random.integers(self.length // 2))
        return self.observe(), {}

    def step(self, action):
        self.position = max(0, self.position + (1 if self.is_right(action) else -1))
        over = self.position >= self.length
        return self.observe(), 1.0 if over else -self.cost, over, False, {}

    def is_right(self, action):
        return action == 1

    def observe(self):
        done = self.position / self.length
        return np.array(list(take(4, interleave([(done, done * done), (1 - done, 0.5 - done)]))), np.float32)


gymnasium.register("Corridor-v0", Corridor, max_episode_steps=40)
