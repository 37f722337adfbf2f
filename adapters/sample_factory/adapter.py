"""Drives Sample Factory's APPO by its runner.

Mode "sync" is its serial mode, one process for all; "workers" is its synchronous mode with a process each for the
learner, for inference and for every rollout worker; "async" lets them run on.
"""

import logging
import math
import multiprocessing
import tempfile

import gymnasium
import numpy as np
import torch
from factory import EnvFactory
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.action_distributions import argmax_actions
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.train import make_runner
from signal_slot.signal_slot import EventLoopObject, Timer

ENV = "rlbench"
WATCH_S = 1.0


class Budget(AlgoObserver):
    """Ends training when the budget is used up, asked after each iteration, and notes the lag that is logged."""

    def __init__(self, probe):
        self.probe = probe
        self.lags = []

    def on_training_step(self, runner, training_iteration_since_resume):
        lag = dict(runner.policy_lag[0])
        if lag and lag not in self.lags[-1:]:
            self.lags.append(lag)
        if self.probe.should_stop():
            runner._stop_training()


class Watch(EventLoopObject):
    """Raises in the runner's loop when one of its processes has died: the runner itself goes on without it."""

    def __init__(self, runner):
        super().__init__(runner.event_loop, "rlbench watch")
        self.runner = runner
        timer = Timer(runner.event_loop, WATCH_S)
        timer.timeout.connect(self.look)
        runner.timers.append(timer)
        self.died = None

    def look(self):
        for process in [*self.runner.processes, *self.runner.sampler.processes]:
            if process.exitcode is not None:
                self.died = "process %s of the library died (exit code %d)" % (process.name, process.exitcode)
                raise RuntimeError(self.died)


class Adapter:
    def skip(self, trial):
        if not trial.normalize_advantage:
            return "it always normalises advantages"
        if trial.mode != "sync" and trial.n_envs % trial.workers:
            return "every worker has the same number of environments: n_envs must be a multiple of workers"
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
        try:
            _succeed(runner.init())
            watch = None if trial.mode == "sync" else Watch(runner)
            _succeed(runner.run(), watch)
        finally:
            for process in multiprocessing.active_children():
                process.kill()
        checkpoint = Learner.load_checkpoint(Learner.get_checkpoints(Learner.checkpoint_dir(cfg, 0)), "cpu")
        _report(probe, runner, budget.lags, checkpoint)
        _, _, observations, actions = trial.spaces()
        network = create_actor_critic(cfg, gymnasium.spaces.Dict({"obs": observations}), actions)
        network.load_state_dict(checkpoint["model"])
        return _greedy(network, get_rnn_size(cfg), actions)

    def _settings(self, trial):
        """Settings of the library by its own names; those it does not need for PPO are off."""
        workers = 1 if trial.mode == "sync" else trial.workers
        return {
            "algo": "APPO",
            "env": ENV,
            "experiment": "trial",
            "train_dir": tempfile.mkdtemp(prefix="sample_factory-"),
            "seed": trial.seed,
            "device": "gpu" if trial.device == "cuda" else "cpu",
            "serial_mode": trial.mode == "sync",
            "async_rl": trial.mode == "async",
            "num_workers": workers,
            "num_envs_per_worker": trial.n_envs // workers,
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


def _succeed(status, watch=None):
    if status != ExperimentStatus.SUCCESS:
        died = watch and watch.died
        raise RuntimeError(died or "Sample Factory's runner ended with status %s" % status)


def _report(probe, runner, lags, checkpoint):
    """Pass on what it logs of the run."""
    probe.report("env_steps", runner.env_steps[0], "Collected: steps that were learned from")
    seconds = runner.timing.main_loop
    probe.report("env_steps_per_s", runner.total_env_steps_since_resume / seconds, "FPS: with start-up and stop")
    probe.report("updates", checkpoint["train_step"], "train_step of the last checkpoint")
    if lags:
        mean = sum(lag["version_diff_avg"] for lag in lags) / len(lags)
        note = "last minibatch of the last epoch of an iteration, now and then: %d reports" % len(lags)
        probe.report("lag_mean", mean, note)
        probe.report("lag_max", max(lag["version_diff_max"] for lag in lags), note)


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
