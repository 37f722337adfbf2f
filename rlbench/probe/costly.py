"""CartPole with a price: ``rlbench.probe.costly:CostlyCartPole-v1``.

Every step computes for ``milliseconds`` more, as a simulator of some size would. The task, its randomness and its
trajectories are those of CartPole-v1, so only the balance between stepping and learning differs.
"""

import time

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class CostlyCartPole(CartPoleEnv):
    """CartPole-v1 whose every step takes ``milliseconds`` of the processor's time.

    Processor time and not wall time: processes that share a core must not have their waiting counted as computing.
    """

    def __init__(self, milliseconds=1.0, **kwargs):
        if not milliseconds >= 0:
            raise ValueError("milliseconds is %r, but must be 0 or more" % (milliseconds,))
        super().__init__(**kwargs)
        self._price_ns = int(milliseconds * 1e6)

    def step(self, action):
        paid = time.thread_time_ns() + self._price_ns
        while time.thread_time_ns() < paid:
            pass
        return super().step(action)


gymnasium.register(id="CostlyCartPole-v1", entry_point=CostlyCartPole, max_episode_steps=500)
