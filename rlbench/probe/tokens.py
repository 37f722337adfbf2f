"""A token environment with a verifiable reward: ``rlbench.probe.tokens:Tokens-v0``.

One step is one generated token: the action is the token, the episode is the completion of a prompt. The task is to
write the prompt's tokens in ascending order; each token in its right place earns ``1 / length``, so a perfect
completion returns 1. Prompt and completion both have ``length`` tokens.

A library that knows nothing of tokens sees a float vector: the completion so far (each token scaled to (0, 1], -1 for
those to come), the number of the token to write as a share, the prompt and that number one-hot. ``tokens_of`` reads the
tokens back from it, for a language model.
"""

from typing import ClassVar

import gymnasium
import numpy as np


class Tokens(gymnasium.Env):
    """Sort a prompt of ``length`` tokens, each drawn from the first ``digits`` of ``vocabulary`` tokens.

    ``reset(options={"prompt": tokens})`` sets the prompt instead of drawing it.
    """

    # Read by the harness: with it, tokens per second are environment steps per second.
    metadata: ClassVar = {"render_modes": [], "tokens_per_step": 1}

    def __init__(self, length=5, digits=4, vocabulary=32):
        if not 0 < digits <= vocabulary:
            raise ValueError("digits is %r, but must be 1 .. vocabulary, which is %r" % (digits, vocabulary))
        if length < 1:
            raise ValueError("length is %r, but must be at least 1" % (length,))
        self.length, self.digits, self.vocabulary = length, digits, vocabulary
        self._position = length + 1 + length * vocabulary
        size = self._position + length
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(vocabulary)
        self.prompt, self.completion, self._target = [], [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        given = (options or {}).get("prompt")
        prompt = self.np_random.integers(0, self.digits, self.length).tolist() if given is None else list(given)
        if len(prompt) != self.length or not all(0 <= token < self.vocabulary for token in prompt):
            raise ValueError("prompt %r is not %d tokens below %d" % (prompt, self.length, self.vocabulary))
        self.prompt, self.completion, self._target = prompt, [], sorted(prompt)
        self._observation = np.zeros(self.observation_space.shape, np.float32)
        self._observation[: self.length] = -1.0
        self._observation[self.length] = 1 / (self.length + 1)
        for place, token in enumerate(prompt):
            self._observation[self.length + 1 + place * self.vocabulary + token] = 1.0
        self._observation[self._position] = 1.0
        return self._observation.copy(), {}

    def step(self, action):
        at, token, observation = len(self.completion), int(action), self._observation
        if at == self.length:
            raise RuntimeError("the completion is finished: reset before the next step")
        self.completion.append(token)
        observation[at] = (token + 1) / self.vocabulary
        observation[self.length] = (at + 2) / (self.length + 1)
        observation[self._position + at] = 0.0
        over = at + 1 == self.length
        if not over:
            observation[self._position + at + 1] = 1.0
        reward = 1.0 / self.length if token == self._target[at] else 0.0
        return observation.copy(), reward, over, False, {}


def tokens_of(observation, length, vocabulary):
    """Return ``(prompt, completion so far)`` as lists of tokens, from an observation, stamped or not."""
    prompt = observation[length + 1 : length + 1 + length * vocabulary].reshape(length, vocabulary).argmax(1)
    written = observation[:length][observation[:length] > 0]
    return prompt.tolist(), (np.rint(written * vocabulary) - 1).astype(int).tolist()


gymnasium.register(id="Tokens-v0", entry_point=Tokens)
