"""Bridges from the instrumented Gymnasium environment to the older interfaces that some libraries want.

A bridge translates calls and spaces and changes nothing else: same actions in, same observations, rewards and ends out.
"""


def old_gym(env):
    """Return ``env`` in the interface of gym before 0.26: ``reset() -> observation``, four values from ``step``.

    The spaces become those of the installed ``gym``. ``info["TimeLimit.truncated"]`` tells a time limit from an end.
    """
    import gym

    class OldGymEnv(gym.Env):
        reward_range = (-float("inf"), float("inf"))
        spec = None

        def __init__(self):
            self.metadata = {"render_modes": []}
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


def dm_env(env):
    """Return ``env`` in the interface of ``dm_env``; a time limit ends an episode with discount 1."""
    import dm_env
    import numpy as np
    from dm_env import specs

    discrete = hasattr(env.action_space, "n")

    class DmEnv(dm_env.Environment):
        def __init__(self):
            self._seed = None

        def seed(self, seed):
            self._seed = seed

        def reset(self):
            seed, self._seed = self._seed, None
            return dm_env.restart(env.reset(seed=seed)[0])

        def step(self, action):
            action = int(action) if discrete else np.asarray(action)
            observation, reward, terminated, truncated, _ = env.step(action)
            reward = np.float32(reward)
            if terminated:
                kind, discount = dm_env.StepType.LAST, 0.0
            else:
                kind, discount = dm_env.StepType.LAST if truncated else dm_env.StepType.MID, 1.0
            return dm_env.TimeStep(kind, reward, np.float32(discount), observation)

        def observation_spec(self):
            space = env.observation_space
            return specs.Array(space.shape, space.dtype, name="observation")

        def action_spec(self):
            space = env.action_space
            if discrete:
                return specs.DiscreteArray(int(space.n), np.int32, name="action")
            return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name="action")

        def reward_spec(self):
            return specs.Array((), np.float32, name="reward")

        def discount_spec(self):
            return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")

        def close(self):
            env.close()

    return DmEnv()
