"""Makes Sample Factory's environments in whatever process steps them: spawned children import this module."""

import logging

import gymnasium
from sample_factory.utils.utils import log


class EnvFactory:
    """What is registered with Sample Factory; it pickles into the processes that the library spawns."""

    def __init__(self, trial):
        self.trial = trial

    def __setstate__(self, state):
        self.__dict__.update(state)
        # In a child process: it warns of every loss above 30.
        log.setLevel(logging.ERROR)

    def __call__(self, full_env_name, cfg=None, env_config=None, render_mode=None):
        # A throw-away process asks for an environment without a number, to look at its spaces.
        index = None if env_config is None else env_config.env_id
        return SeededEnv(self.trial.make_env(index), self.trial.seed)


class SeededEnv(gymnasium.Wrapper):
    """Gives each trial seeds of its own: the library's are its environments' numbers, always the same."""

    def __init__(self, env, seed):
        super().__init__(env)
        self._trial_seed = seed

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=None if seed is None else 1000 * self._trial_seed + seed, options=options)
