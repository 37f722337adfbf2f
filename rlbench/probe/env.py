"""The env tap: stamps every observation and notes when it was handed over and when its action came back."""

import errno
import os
import struct
import time

import gymnasium
import numpy as np

from rlbench.probe import clock, plugins, stamp
from rlbench.probe.ledger import ENV, HEADER, RESETS_AT, TERMINATED, TRUNCATED, Ledger

# action_ns, reward, flags of one observation and ready_ns of the next lie side by side, so a step is one write.
_STEP = struct.Struct("<qdqq").pack_into
_TIME = struct.Struct("<q").pack_into
_ROW = ENV.itemsize


def make_plain(env_id, kwargs):
    """Return the bare environment, without gymnasium's checkers, as every library gets it.

    Raises ValueError with one sentence when it cannot be made.
    """
    try:
        try:
            env = gymnasium.make(env_id, disable_env_checker=True, **kwargs)
        except gymnasium.error.UnregisteredEnv:
            if not plugins.register():
                raise
            env = gymnasium.make(env_id, disable_env_checker=True, **kwargs)
        ours = type(env.unwrapped).__module__.startswith("gymnasium.envs.classic_control")
        return DoubleAction(env) if ours and isinstance(env.action_space, gymnasium.spaces.Box) else env
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError("environment '%s' cannot be made: %s" % (env_id, " ".join(str(error).split()))) from error


class DoubleAction(gymnasium.ActionWrapper):
    """Gives float64 actions to Gymnasium's own continuous environments.

    They compute in the action's type, and NumPy 1 and 2 promote float32 differently: with float32 actions Pendulum's
    trajectories would differ between libraries' interpreters.
    """

    def action(self, action):
        return np.asarray(action, np.float64)


def stamped_space(space):
    """Return ``(layout, dim, space)`` of the observations as a library sees them (float32 vector or uint8 image)."""
    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError("observation space %s cannot be stamped: float vectors and uint8 images can" % (space,))
    layout = stamp.layout_of(space.shape, space.dtype)
    if layout == "pixel":
        return layout, int(np.prod(space.shape)), space
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    if layout == "tail4":
        low = np.concatenate([low, np.zeros(4, np.float32)])
        high = np.concatenate([high, np.full(4, 2e-30, np.float32)])
    return layout, low.shape[0], gymnasium.spaces.Box(low, high, dtype=np.float32)


class TapEnv(gymnasium.Wrapper):
    """A Gymnasium environment whose observations carry stamps and whose steps are in a ledger.

    ``folder`` receives ``env-<index>.ledger`` at the first reset, in the process that steps; so instances can be
    copied and pickled before. ``index`` None takes the lowest index that no other environment of the trial has.
    """

    def __init__(self, env, folder, index=None):
        super().__init__(env)
        self._layout, self._dim, self.observation_space = stamped_space(env.observation_space)
        self._folder, self._wanted = folder, index
        self._step = env.step
        self._now = clock.now_ns
        self._ledger = None
        self._number = self._resets = self._stop = 0

    @property
    def steps(self):
        """Environment steps made so far: every observation but those of resets came from one."""
        return self._number - self._resets

    def __getstate__(self):
        if self._ledger is not None:
            raise TypeError("an instrumented environment that has stepped cannot be copied or pickled")
        state = self.__dict__.copy()
        del state["_step"], state["_now"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._step = self.env.step
        self._now = clock.now_ns

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        if self._ledger is None:
            self._open()
        self._resets += 1
        _TIME(self._map, RESETS_AT, self._resets)
        number = self._number
        self._number = number + 1
        if number >= self._stop:
            self._grow()
        stamped = self._encode(observation, number)
        _TIME(self._map, HEADER + number * _ROW, self._now())
        return stamped, info

    def step(self, action):
        action_ns = self._now()
        observation, reward, terminated, truncated, info = self._step(action)
        number = self._number
        self._number = number + 1
        if number >= self._stop:
            self._grow()
        stamped = self._encode(observation, number)
        flags = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
        _STEP(self._map, HEADER + number * _ROW - 24, action_ns, reward, flags, self._now())
        return stamped, reward, terminated, truncated, info

    def _open(self):
        indices = [self._wanted] if self._wanted is not None else range(stamp.MAX_ENVS[self._layout])
        for index in indices:
            header = {"env": index, "pid": os.getpid(), "layout": self._layout, "dim": self._dim}
            try:
                self._ledger = Ledger(os.path.join(self._folder, "env-%d.ledger" % index), header)
            except FileExistsError:
                continue
            self._encode = stamp.make_encoder(self._layout, index)
            self._map = self._ledger.map
            self._stop = (self._ledger.limit - HEADER) // _ROW
            return
        raise FileExistsError(errno.EEXIST, "environment index %s is in use in this trial" % (self._wanted,))

    def _grow(self):
        if self._number >= stamp.MAX_NUMBER[self._layout]:
            raise OverflowError("more observations in one environment than layout %s can number" % self._layout)
        self._ledger.at = HEADER + self._number * _ROW
        self._ledger.grow(_ROW)
        self._stop = (self._ledger.limit - HEADER) // _ROW


class CountEnv(gymnasium.Wrapper):
    """The bare step counter that the probe's overhead is measured against.

    ``marks`` grows by ``(steps, wall ns, process CPU ns)`` every ``every`` steps. Observations keep the shape and type
    that the env tap would give them, without a stamp.
    """

    def __init__(self, env, marks, every):
        super().__init__(env)
        layout, _, self.observation_space = stamped_space(env.observation_space)
        self._tail = layout == "tail4"
        self._cast = env.observation_space.dtype not in (np.float32, np.uint8)
        self._marks, self._every = marks, every
        self._step, self._now = env.step, clock.now_ns
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._same(observation), info

    def step(self, action):
        self.steps += 1
        if self.steps % self._every == 0:
            self._marks.append((self.steps, self._now(), time.process_time_ns()))
        observation, reward, terminated, truncated, info = self._step(action)
        return self._same(observation), reward, terminated, truncated, info

    def _same(self, observation):
        if self._tail:
            return np.concatenate([np.asarray(observation, np.float32), stamp.TAIL])
        return np.asarray(observation, np.float32) if self._cast else observation
