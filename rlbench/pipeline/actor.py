"""Actors: environments stepped with a copy of the policy, rollouts written in place into the buffer."""

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rlbench.pipeline.lora import base_last
from rlbench.pipeline.sync import FlatBuffer, WeightReader

# An actor or learner that has nothing to do looks again after this long, then after ever longer.
_POLL_S, _LONGEST_POLL_S = 0.0001, 0.002


def wait_until(ready):
    """Wait until ``ready()`` is true and return for how long, ns; looking seldom once it takes long."""
    begun, pause = time.monotonic_ns(), _POLL_S
    while not ready():
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_S)
    return time.monotonic_ns() - begun


def without_modules(network):
    """Return a function that computes what the nn.Sequential ``network`` does, with less Python around each layer.

    The first layer is called as a module, so that whoever hooks it still sees what the network is fed with. Holds the
    parameters, not their values: they may change in place.
    """
    first, *others = network
    steps = [_plain(layer) for layer in others]

    def forward(x):
        x = first(x)
        for step in steps:
            x = step(x)
        return x

    return forward


def _plain(layer):
    if type(layer) is nn.Linear:
        weight, bias = layer.weight, layer.bias
        return lambda x: functional.linear(x, weight, bias)
    return {nn.Tanh: torch.tanh, nn.ReLU: torch.relu}.get(type(layer), layer)


def rollout_dtype(n_steps, n_envs, observation_dim, distribution):
    """Return the dtype of one rollout: what one actor hands over at a time.

    ``version`` (n_steps) is the policy version that acted, ``time_ns`` (n_steps) when (CLOCK_MONOTONIC).
    ``observation`` has one more step than the rest. ``final`` is written only where ``truncated``: the observation
    that the time limit cut the episode at.
    """
    rows = (n_steps, n_envs)
    return np.dtype(
        [
            ("version", "<i8", (n_steps,)),
            ("time_ns", "<i8", (n_steps,)),
            ("observation", "<f4", (n_steps + 1, n_envs, observation_dim)),
            ("final", "<f4", (*rows, observation_dim)),
            ("action", distribution.dtype, (*rows, *distribution.shape)),
            ("log_prob", "<f4", rows),
            ("reward", "<f4", rows),
            ("terminated", "?", rows),
            ("truncated", "?", rows),
        ],
        align=True,
    )


class Collector:
    """Steps ``envs`` (Gymnasium environments) with ``policy`` (ActorCritic on the CPU), all in this process.

    ``seed`` (int or sequence) seeds sampling, ``env_seeds`` each environment's first reset.
    """

    def __init__(self, envs, policy, seed, env_seeds):
        self.envs, self.policy = envs, policy
        self._actor = without_modules(policy.actor)
        self._rng = np.random.default_rng(seed)
        self._last = np.stack([env.reset(seed=s)[0] for env, s in zip(envs, env_seeds)])

    def rollout(self, record, refresh):
        """Fill ``record`` (one rollout, a row of ``rollout_dtype``).

        ``refresh()`` is called before every step and returns the version of the weights that act.
        """
        distribution, actor = self.policy.distribution, self._actor
        observation, action, reward = record["observation"], record["action"], record["reward"]
        terminated, truncated = record["terminated"], record["truncated"]
        version, time_ns = record["version"], record["time_ns"]
        steps, n_envs = reward.shape
        noise = distribution.noise(self._rng, steps, n_envs)
        outputs = np.empty((steps, n_envs, distribution.outputs), np.float32)
        log_std = np.zeros((steps, 1, distribution.outputs), np.float32)
        observation[0] = self._last
        terminated[:], truncated[:] = False, False
        deviation, std = None, self.policy.log_std
        acted = None
        pairs = list(enumerate(env.step for env in self.envs))
        with torch.inference_mode():
            for t, batch in enumerate(torch.from_numpy(observation[:-1]).unbind(0)):
                version[t] = now = refresh()
                time_ns[t] = time.monotonic_ns()
                if std is not None and now != acted:
                    acted, deviation = now, std.exp().numpy()
                if std is not None:
                    log_std[t] = std.numpy()
                outputs[t] = out = actor(batch).numpy()
                action[t] = chosen = distribution.sample(out, noise[t], deviation)
                rewards, following = [], observation[t + 1]
                given = distribution.for_env(chosen)
                for i, step in pairs:
                    seen, gain, ends, cut, _ = step(given[i])
                    rewards.append(gain)
                    if ends or cut:
                        terminated[t, i] = ends
                        if cut and not ends:
                            truncated[t, i] = True
                            record["final"][t, i] = seen
                        seen, _ = self.envs[i].reset()
                    following[i] = seen
                reward[t] = rewards
        record["log_prob"][:] = distribution.behaviour_log_prob(outputs, noise, log_std, action)
        self._last = observation[-1].copy()


def run_actor(index, make_env, policy, settings, buffer, publisher, board):
    """Be actor ``index``: fill its shard with rollouts until the board says stop (or, in turn, the rounds are done).

    ``make_env(i)`` makes environment ``i``; this actor has ``envs_per_actor`` of them.
    """
    row, shard = board.actor(index), buffer.shard(index)
    first = index * settings.envs_per_actor
    numbers = range(first, first + settings.envs_per_actor)
    envs = [make_env(i) for i in numbers]
    flat, reader = FlatBuffer(base_last(policy)[0]), WeightReader(publisher)
    version = reader.read(flat.flat)
    collector = Collector(envs, policy, [settings.seed, index], [1000 * settings.seed + i for i in numbers])
    in_turn = settings.mode == "workers"

    beat = row["beat"]

    def refresh():
        nonlocal version
        beat[0] += 1
        if reader.changed():
            version = reader.read(flat.flat)
        return version

    def keep():
        beat[0] += 1
        return version

    def may_go():
        beat[0] += 1
        return board.rounds[0] >= done if in_turn else shard.free()

    done = 0
    while not board.stop[0] and not (in_turn and done == settings.rounds):
        row["wait_ns"][0] += wait_until(lambda: board.stop[0] or may_go())
        if board.stop[0]:
            break
        if in_turn:
            refresh()
        collector.rollout(shard.reserve()[0], keep if in_turn else refresh)
        shard.commit()
        done += 1
        row["rollouts"][0] = done
        row["env_steps"][0] = done * settings.n_steps * settings.envs_per_actor
    for env in envs:
        env.close()
