"""The instrumented environment in Garage's own interface."""

import akro
import numpy as np
import shim  # noqa: F401
from garage import Environment, EnvSpec, EnvStep, StepType


class Bridge(Environment):
    """The instrumented environment as Garage's own. Samplers copy environments; this one is theirs already."""

    def __init__(self, env, seed):
        self._env, self._seed, self._length = env, seed, 0
        actions, observations = env.action_space, env.observation_space
        self._box = None if hasattr(actions, "n") else actions
        space = akro.Box(actions.low, actions.high) if self._box else akro.Discrete(int(actions.n))
        limit = env.spec.max_episode_steps or np.inf
        self._spec = EnvSpec(akro.Box(observations.low, observations.high), space, max_episode_length=limit)

    action_space = property(lambda self: self._spec.action_space)
    observation_space = property(lambda self: self._spec.observation_space)
    spec = property(lambda self: self._spec)
    render_modes = property(lambda self: [])

    def reset(self):
        seed, self._seed, self._length = self._seed, None, 0
        return self._env.reset(seed=seed)[0], {}

    def step(self, action):
        taken = np.clip(action, self._box.low, self._box.high) if self._box else int(action)
        observation, reward, terminated, _, _ = self._env.step(taken)
        self._length += 1
        kind = StepType.get_step_type(self._length, self._spec.max_episode_length, terminated)
        return EnvStep(self._spec, action, reward, observation, {}, kind)

    # Garage's interface demands these two; with no render modes, it asks for this error.
    def render(self, mode):
        raise ValueError("environments under measurement are not drawn")

    def visualize(self):
        self.render(None)

    def close(self):
        self._env.close()

    def __deepcopy__(self, memo):
        return self


class OverAtOnce(Bridge):
    """Episodes of one step that nobody sees: DQN evaluates in it, once, before it starts."""

    def reset(self):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return EnvStep(self._spec, action, 0.0, self.reset()[0], {}, StepType.TERMINAL)
