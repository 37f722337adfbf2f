"""Drives the PyTorch functions of Spinning Up; the source on the guest's path is unchanged."""

import csv
import tempfile
from pathlib import Path

import numpy as np
import shim  # noqa: F401
import torch
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


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "sac" and trial.gradient_steps != trial.train_freq:
            return "sac makes as many gradient steps as environment steps"
        return None

    def train(self, trial, probe):
        # SAC asks for a second environment, to test in; here it never gets that far.
        made = [trial.make_env(0)]
        limit = made[0].spec.max_episode_steps
        kept = []

        def stop():
            return bool(trial.seconds or trial.algorithm == "sac") and probe.should_stop()

        def keep(make):
            def make_and_keep(*spaces, **kwargs):
                kept.append(make(*spaces, **kwargs))
                return kept[0]

            return make_and_keep

        core = ppo_core if trial.algorithm == "ppo" else sac_core
        with tempfile.TemporaryDirectory() as folder:
            common = {
                "env_fn": lambda: Bridge(made[0], trial.seed, stop),
                "actor_critic": keep(core.MLPActorCritic),
                "ac_kwargs": {
                    "hidden_sizes": trial.net_arch,
                    "activation": nn.Tanh if trial.activation == "tanh" else nn.ReLU,
                },
                "seed": trial.seed,
                "gamma": trial.gamma,
                "max_ep_len": limit or trial.env_steps,
                "logger_kwargs": {"output_dir": folder},
                "save_freq": trial.env_steps,
            }
            try:
                getattr(self, "_" + trial.algorithm)(trial, common)
            except Stop:
                print("stopped: the budget is used up")
            _report(probe, Path(folder) / "progress.txt")
        made[0].close()
        model, box = kept[0], made[0].action_space

        def policy(observation):
            observation = torch.as_tensor(observation)
            with torch.no_grad():
                if trial.algorithm == "sac":
                    return model.act(observation, deterministic=True)
                if hasattr(box, "n"):
                    return int(model.pi._distribution(observation).probs.argmax())
                return np.clip(model.pi._distribution(observation).mean.numpy(), box.low, box.high)

        return policy

    def _ppo(self, trial, common):
        rollout = trial.n_steps * trial.n_envs
        ppo(
            **common,
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

    def _sac(self, trial, common):
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


def _report(probe, path):
    """Pass on what the logger wrote last; SAC is stopped before it writes."""
    with open(path) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if rows:
        steps = float(rows[-1]["TotalEnvInteracts"])
        probe.report("env_steps", steps, "TotalEnvInteracts of the last epoch")
        note = "TotalEnvInteracts / Time: since the first reset"
        probe.report("env_steps_per_s", steps / float(rows[-1]["Time"]), note)
