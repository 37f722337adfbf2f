"""Drives Sample Factory's APPO by its runner; mode "sync" is its serial mode: one process for all."""

import logging
import math
import tempfile

import numpy as np
import torch
from factory import EnvFactory
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.action_distributions import argmax_actions
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.train import make_runner

ENV = "rlbench"


class Budget(AlgoObserver):
    """Ends training when the budget is used up, asked after each iteration, and keeps the network."""

    def __init__(self, probe):
        self.probe = probe
        self.network = None

    def on_training_step(self, runner, training_iteration_since_resume):
        if self.probe.should_stop():
            # The learner drops it as it stops.
            self.network = runner.learners[0].learner.actor_critic
            runner._stop_training()


class Adapter:
    def skip(self, trial):
        if not trial.normalize_advantage:
            return "it always normalises advantages"
        return None

    def train(self, trial, probe):
        # It logs every 5 s and warns of every loss above 30.
        logging.getLogger("rl").setLevel(logging.ERROR)
        register_env(ENV, EnvFactory(trial))
        arguments = ["--%s=%s" % item for item in self._settings(trial).items()]
        arguments += ["--encoder_mlp_layers", *map(str, trial.net_arch)]
        parser, _ = parse_sf_args(arguments)
        cfg, runner = make_runner(parse_full_cfg(parser, arguments))
        budget = Budget(probe)
        runner.register_observer(budget)
        for step in (runner.init, runner.run):
            status = step()
            if status != ExperimentStatus.SUCCESS:
                raise RuntimeError("Sample Factory's runner ended with status %s" % status)
        return _greedy(budget.network, get_rnn_size(cfg), trial.spaces()[3])

    def _settings(self, trial):
        """Settings of the library by its own names; those it does not need for PPO are off."""
        return {
            "algo": "APPO",
            "env": ENV,
            "experiment": "trial",
            "train_dir": tempfile.mkdtemp(prefix="sample_factory-"),
            "seed": trial.seed,
            "device": "gpu" if trial.device == "cuda" else "cpu",
            "serial_mode": True,
            "async_rl": False,
            "num_workers": 1,
            "num_envs_per_worker": trial.n_envs,
            "worker_num_splits": 1,
            # No random steps that nothing learns from.
            "decorrelate_envs_on_one_worker": False,
            # A minibatch must hold whole trajectories: several short ones make up n_steps of an environment.
            "rollout": math.gcd(trial.n_steps, trial.batch_size),
            "batch_size": trial.batch_size,
            "num_batches_per_epoch": trial.n_steps * trial.n_envs // trial.batch_size,
            "num_epochs": trial.n_epochs,
            "shuffle_minibatches": True,
            "learning_rate": trial.learning_rate,
            "gamma": trial.gamma,
            "gae_lambda": trial.gae_lambda,
            "ppo_clip_ratio": trial.clip_range,
            # No clipping of the value loss.
            "ppo_clip_value": 1e9,
            "exploration_loss_coeff": trial.ent_coef,
            "value_loss_coeff": trial.vf_coef,
            "max_grad_norm": trial.max_grad_norm,
            "value_bootstrap": True,
            "use_rnn": False,
            "nonlinearity": trial.activation,
            "actor_critic_share_weights": False,
            "adaptive_stddev": False,
            # These rewrite what the policy sees.
            "normalize_input": False,
            "normalize_returns": False,
        }


def _greedy(network, rnn_size, actions):
    state = torch.zeros(1, rnn_size)
    device = next(network.parameters()).device

    def policy(observation):
        with torch.no_grad():
            rows = torch.as_tensor(np.asarray(observation)[None]).to(device)
            network(network.normalize_obs({"obs": rows}), state.to(device))
            action = argmax_actions(network.action_distribution())[0].cpu().numpy()
        return int(action) if hasattr(actions, "n") else np.clip(action, actions.low, actions.high)

    return policy
