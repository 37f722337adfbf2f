"""Bridges from the instrumented Gymnasium environment to the older interfaces that some libraries want.

A bridge translates calls and spaces and changes nothing else: same actions in, same observations, rewards and ends out.
"""


def old_gym(env):
    """Return ``env`` in the interface of gym before 0.26: ``reset() -> observation``, four values from ``step``.

    The spaces become those of the installed ``gym``. ``info["TimeLimit.truncated"]`` tells a time limit from an end.
    """
    import gym

    class OldGymEnv(gym.Env):
        metadata = {"render_modes": []}
        reward_range = (-float("inf"), float("inf"))
        spec = None

        def __init__(self):
            self.observation_space = gym_space(env.observation_space)
            self.action_space = gym_space(env.action_space)
            self._seed = None

        def seed(self, seed=None):
            self._seed = seed
            return [seed]

        def reset(self, **ignored):
            seed, self._seed = self._seed, None
            return env.reset(seed=seed)[0]

        def step(self, action):
            observation, reward, terminated, truncated, info = env.step(action)
            if truncated:
                info["TimeLimit.truncated"] = not terminated
            return observation, reward, terminated or truncated, info

        def close(self):
            env.close()

    return OldGymEnv()


def gym_space(space):
    """Return a Gymnasium ``Box`` or ``Discrete`` as a space of the installed ``gym``."""
    import gym

    if hasattr(space, "n"):
        return gym.spaces.Discrete(int(space.n))
    return gym.spaces.Box(space.low, space.high, dtype=space.dtype.type)
