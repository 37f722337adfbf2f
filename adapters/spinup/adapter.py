"""Drives the PyTorch functions of Spinning Up; the source on the guest's path is unchanged.

Mode "sync" is one function in this process, "workers" the same function in several MPI processes (launch.py).
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
import torch
from launch import train_apart
from training import make_networks, train


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "sac" and trial.gradient_steps != trial.train_freq:
            return "sac makes as many gradient steps as environment steps"
        if trial.mode == "workers" and trial.algorithm != "ppo":
            return "its PyTorch SAC has no training in several processes, PPO has"
        if trial.mode == "workers" and trial.n_steps * trial.n_envs % trial.workers:
            rollout = trial.n_steps * trial.n_envs
            return "each of %d processes takes an equal part of a rollout of %d" % (trial.workers, rollout)
        return None

    def train(self, trial, probe):
        _, _, observation_space, box = trial.spaces()
        with tempfile.TemporaryDirectory() as folder:
            if trial.mode == "workers":
                model = make_networks(trial, observation_space, box)
                model.load_state_dict(train_apart(trial, folder))
            else:
                model = _train_here(trial, probe, folder)
            _report(probe, Path(folder) / "progress.txt")

        def policy(observation):
            observation = torch.as_tensor(observation)
            with torch.no_grad():
                if trial.algorithm == "sac":
                    return model.act(observation, deterministic=True)
                if hasattr(box, "n"):
                    return int(model.pi._distribution(observation).probs.argmax())
                return np.clip(model.pi._distribution(observation).mean.numpy(), box.low, box.high)

        return policy


def _train_here(trial, probe, folder):
    env = trial.make_env(0)

    def stop():
        return bool(trial.seconds or trial.algorithm == "sac") and probe.should_stop()

    model = train(trial, env, trial.seed, stop, folder)
    env.close()
    return model


def _report(probe, path):
    """Pass on what the logger wrote last; SAC is stopped before it writes."""
    with open(path) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if rows:
        steps = float(rows[-1]["TotalEnvInteracts"])
        probe.report("env_steps", steps, "TotalEnvInteracts of the last epoch")
        note = "TotalEnvInteracts / Time: since the first reset"
        probe.report("env_steps_per_s", steps / float(rows[-1]["Time"]), note)
