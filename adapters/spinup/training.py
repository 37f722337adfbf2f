"""Calls the functions of Spinning Up, in whatever process trains; they make their networks themselves and keep them."""

import logger  # noqa: F401
import numpy as np
import shim  # noqa: F401
from spinup.algos.pytorch.ppo import core as ppo_core
from spinup.algos.pytorch.ppo.ppo import ppo
from spinup.algos.pytorch.sac import core as sac_core
from spinup.algos.pytorch.sac.sac import sac
from torch import nn

from rlbench.probe.bridges import gym_space


class Stop(Exception):
    """Raised from the environment when the budget is used up: the functions end on whole epochs only."""


class Bridge:
    """The instrumented environment as Spinning Up wants it; its functions end episodes at ``max_ep_len``."""

    def __init__(self, env, seed, stop):
        self._env, self._seed, self._stop = env, seed, stop
        self.observation_space, self.action_space = gym_space(env.observation_space), gym_space(env.action_space)
        self.action_space.seed(seed)
        self._box = None if hasattr(env.action_space, "n") else env.action_space

    def reset(self):
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)[0]

    def step(self, action):
        if self._stop():
            raise Stop
        action = np.clip(action, self._box.low, self._box.high) if self._box else int(action)
        observation, reward, terminated, _, info = self._env.step(action)
        return observation, reward, terminated, info


def make_networks(trial, observation_space, action_space):
    """Return policy and value function, as the library makes them."""
    core = ppo_core if trial.algorithm == "ppo" else sac_core
    activation = nn.Tanh if trial.activation == "tanh" else nn.ReLU
    spaces = gym_space(observation_space), gym_space(action_space)
    return core.MLPActorCritic(*spaces, hidden_sizes=trial.net_arch, activation=activation)


def train(trial, env, seed, stop, folder):
    """Train in the instrumented environment ``env`` until the budget is used up, and return the networks.

    ``stop`` is asked before every step; ``folder`` receives what the library logs.
    """
    kept = []

    def make_and_keep(*spaces):
        kept.append(make_networks(trial, env.observation_space, env.action_space))
        return kept[0]

    common = {
        # SAC asks for a second environment, to test in; here it never gets that far.
        "env_fn": lambda: Bridge(env, seed, stop),
        "actor_critic": make_and_keep,
        # The library adds the number of the MPI process to it.
        "seed": trial.seed,
        "gamma": trial.gamma,
        "max_ep_len": env.spec.max_episode_steps or trial.env_steps,
        "logger_kwargs": {"output_dir": folder},
        "save_freq": trial.env_steps,
    }
    try:
        {"ppo": _ppo, "sac": _sac}[trial.algorithm](trial, common)
    except Stop:
        print("stopped: the budget is used up")
    return kept[0]


def _ppo(trial, common):
    rollout = trial.n_steps * trial.n_envs
    ppo(
        **common,
        # All MPI processes together.
        steps_per_epoch=rollout,
        epochs=max(1, trial.env_steps // rollout),
        clip_ratio=trial.clip_range,
        pi_lr=trial.learning_rate,
        vf_lr=trial.learning_rate,
        lam=trial.gae_lambda,
        # One gradient step on the whole rollout is one epoch over it.
        train_pi_iters=trial.n_epochs,
        train_v_iters=trial.n_epochs,
        # No early stopping: the scenario asks for a fixed number of epochs.
        target_kl=float("inf"),
    )


def _sac(trial, common):
    sac(
        **common,
        # At the end of an epoch it tests and logs: the environment stops it before.
        steps_per_epoch=trial.env_steps + 1,
        epochs=1,
        replay_size=trial.buffer_size,
        polyak=1 - trial.tau,
        lr=trial.learning_rate,
        batch_size=trial.batch_size,
        start_steps=trial.learning_starts,
        update_after=trial.learning_starts,
        update_every=trial.train_freq,
    )
