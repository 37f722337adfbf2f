"""Corridors of other kinds: continuous, faulty, and with spaces that the harness does not run."""

import gymnasium
import numpy as np

from corridor_env import Corridor


class Push(Corridor):
    """Right when the push is positive."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def is_right(self, action):
        return action[0] > 0


class Trap(Corridor):
    """Has a trapdoor at its end."""

    def step(self, action):
        if self.position == self.length - 1:
            raise RuntimeError("fell through the trapdoor")
        return super().step(action)


class Described(Corridor):
    observation_space = gymnasium.spaces.Dict({"position": gymnasium.spaces.Discrete(9)})


class Photographed(Corridor):
    observation_space = gymnasium.spaces.Box(0, 1, (8, 8, 3), np.float32)


class Crowded(Corridor):
    action_space = gymnasium.spaces.MultiDiscrete([2, 2])


for name, kind in {
    "CorridorPush-v0": Push,
    "CorridorTrap-v0": Trap,
    "CorridorDescribed-v0": Described,
    "CorridorPhotographed-v0": Photographed,
    "CorridorCrowded-v0": Crowded,
}.items():
    gymnasium.register(name, kind, max_episode_steps=40)
