"""Drives RLlib's new API stack.

Mode "sync" is a local env runner and a local learner in this process; "workers" is PPO with remote env runners and
the learner in this process; "async" is APPO (variant "impala": IMPALA) with remote env runners and a remote learner.
"""

import logging
import math
import os

import factory
import numpy as np
import ray
import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.spaces.space_utils import unsquash_action
from ray.tune.registry import register_env

ENV = "rlbench"
# Off-policy algorithms: environment steps in one call of train().
ITERATION = 1000
LAG = "diff_num_grad_updates_vs_sampler_policy"
# Figure, where in a result, key, note.
FIGURES = (
    ("env_steps", "runners", "num_env_steps_sampled_lifetime", ""),
    ("env_steps_per_s", "runners", "num_env_steps_sampled_lifetime_throughput", ": throughput_since_last_restore"),
)


class Reports:
    """What the results of ``train()`` say, to be shown beside what was measured."""

    def __init__(self):
        self.last, self.lags = {}, []

    def add(self, result):
        runners, learner = result.get("env_runners", {}), result.get("learners", {}).get("default_policy", {})
        for name, values, key, note in FIGURES:
            value = {"runners": runners, "learner": learner}[values].get(key)
            if isinstance(value, dict):
                value = value.get("throughput_since_last_restore")
            if value is not None and not math.isnan(value):
                self.last[name] = (value, key + note)
        lag = learner.get(LAG, math.nan)
        if not math.isnan(lag):
            self.lags.append(lag)

    def report(self, probe):
        for name, (value, note) in self.last.items():
            probe.report(name, value, note)
        if self.lags:
            note = "%s: mean of %d results; counts calls of update()" % (LAG, len(self.lags))
            probe.report("lag_mean", sum(self.lags) / len(self.lags), note)


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "ppo" and not trial.normalize_advantage:
            return "PPO always normalises advantages"
        if trial.algorithm != "ppo" and trial.n_envs != 1:
            return "off-policy algorithms are wired for one environment"
        if trial.mode != "sync" and trial.algorithm != "ppo":
            return "off-policy algorithms are wired for in-process environments only"
        if trial.mode != "sync" and trial.n_envs % trial.workers:
            return "every env runner has the same number of environments: n_envs must be a multiple of workers"
        if trial.mode == "async" and trial.batch_size * trial.workers % trial.n_envs:
            return "a fragment of every environment of a runner makes one batch: its size must divide by them"
        if trial.mode != "async" and trial.variant:
            return "its variants are for mode async"
        return None

    def train(self, trial, probe):
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Its workers import the module that makes environments.
        os.environ["PYTHONPATH"] += os.pathsep + os.path.dirname(factory.__file__)
        remote = 0 if trial.mode == "sync" else trial.workers
        # Even all-local RLlib keeps its configuration in Ray's object store. One more each for learner and state
        # server: these are no processor cores but permissions to start an actor.
        cpus = remote + 3 if remote else 1
        ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            return self._train(trial, probe, remote)
        finally:
            ray.shutdown()

    def _train(self, trial, probe, remote):
        if not remote:
            factory.use(trial)
        register_env(ENV, factory.make)
        kind = trial.algorithm if trial.mode != "async" else trial.variant or "appo"
        config = getattr(self, "_" + kind)(trial)
        config.environment(
            ENV,
            env_config={"trial": trial} if remote else {},
            normalize_actions=trial.algorithm == "sac",
            clip_actions=True,
        )
        config.framework("torch")
        config.env_runners(
            num_env_runners=remote,
            num_envs_per_env_runner=trial.n_envs // max(1, remote),
            gym_env_vectorize_mode="sync",
            observation_filter="NoFilter",
        )
        config.learners(num_learners=1 if trial.mode == "async" else 0)
        # An actor that dies is an error, not started anew.
        config.fault_tolerance(restart_failed_env_runners=False, ignore_env_runner_failures=False)
        config.rl_module(model_config=self._model(trial))
        config.debugging(seed=trial.seed, log_level="ERROR")
        algorithm = config.build_algo()
        own = Reports()
        while not probe.should_stop():
            own.add(algorithm.train())
        module = algorithm.get_module()
        if remote:
            # Nobody sends the weights to the module of this process.
            state = algorithm.learner_group.get_state(components="learner/rl_module", inference_only=True)
            module.set_state(state["learner"]["rl_module"]["default_policy"])
        algorithm.stop()
        own.report(probe)
        return _greedy(module, trial.spaces()[3], trial.algorithm)

    def _model(self, trial):
        return DefaultModelConfig(
            fcnet_hiddens=trial.net_arch,
            fcnet_activation=trial.activation,
            head_fcnet_hiddens=[],
            vf_share_layers=False,
            free_log_std=trial.algorithm == "ppo" and not hasattr(trial.spaces()[3], "n"),
        )

    def _ppo(self, trial):
        config = PPOConfig()
        config.env_runners(rollout_fragment_length=trial.n_steps, batch_mode="truncate_episodes")
        config.training(
            lr=trial.learning_rate,
            gamma=trial.gamma,
            lambda_=trial.gae_lambda,
            clip_param=trial.clip_range,
            vf_clip_param=math.inf,
            vf_loss_coeff=trial.vf_coef,
            entropy_coeff=trial.ent_coef,
            use_kl_loss=False,
            grad_clip=trial.max_grad_norm,
            grad_clip_by="global_norm",
            train_batch_size_per_learner=trial.n_steps * trial.n_envs,
            minibatch_size=trial.batch_size,
            num_epochs=trial.n_epochs,
            shuffle_batch_per_epoch=True,
        )
        return config

    def _asynchronous(self, trial, config):
        """Settings that APPO and IMPALA share: a learner's step for each batch."""
        envs = trial.n_envs // trial.workers
        config.env_runners(rollout_fragment_length=trial.batch_size // envs, batch_mode="truncate_episodes")
        config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=trial.n_steps)
        config.training(
            lr=trial.learning_rate,
            gamma=trial.gamma,
            vf_loss_coeff=trial.vf_coef,
            entropy_coeff=trial.ent_coef,
            grad_clip=trial.max_grad_norm,
            grad_clip_by="global_norm",
            train_batch_size_per_learner=trial.batch_size,
        )
        return config

    def _appo(self, trial):
        config = self._asynchronous(trial, APPOConfig())
        config.training(
            lambda_=trial.gae_lambda,
            clip_param=trial.clip_range,
            use_kl_loss=False,
            # Its buffer is the rollout, and a batch is drawn as often as there are epochs.
            circular_buffer_num_batches=trial.n_steps * trial.n_envs // trial.batch_size,
            circular_buffer_iterations_per_batch=trial.n_epochs,
        )
        return config

    def _impala(self, trial):
        return self._asynchronous(trial, IMPALAConfig())

    def _off_policy(self, trial, config):
        """Settings that DQN and SAC share: one update of the library follows each fragment of experience."""
        config.env_runners(rollout_fragment_length=trial.train_freq)
        config.reporting(
            min_time_s_per_iteration=None,
            min_sample_timesteps_per_iteration=math.gcd(trial.env_steps, ITERATION),
        )
        config.training(
            gamma=trial.gamma,
            n_step=1,
            grad_clip=None,
            train_batch_size_per_learner=trial.batch_size,
            num_steps_sampled_before_learning_starts=trial.learning_starts,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": trial.buffer_size},
            training_intensity=None
            if trial.gradient_steps == 1
            else trial.gradient_steps * trial.batch_size / trial.train_freq,
        )
        return config

    def _dqn(self, trial):
        config = self._off_policy(trial, DQNConfig())
        decay = max(1, int(trial.exploration_fraction * trial.env_steps))
        config.training(
            lr=trial.learning_rate,
            double_q=False,
            dueling=False,
            num_atoms=1,
            noisy=False,
            td_error_loss_fn="mse",
            target_network_update_freq=trial.target_update_interval,
            epsilon=[(0, 1.0), (decay, trial.exploration_final_eps)],
        )
        return config

    def _sac(self, trial):
        config = self._off_policy(trial, SACConfig())
        config.training(
            actor_lr=trial.learning_rate,
            critic_lr=trial.learning_rate,
            alpha_lr=trial.learning_rate,
            lr=None,
            twin_q=True,
            tau=trial.tau,
            initial_alpha=1.0,
            target_entropy="auto",
            target_network_update_freq=1,
        )
        return config


def _greedy(module, actions, algorithm):
    def policy(observation):
        with torch.no_grad():
            rows = torch.as_tensor(np.asarray(observation)[None])
            output = module.forward_inference({Columns.OBS: rows})
            if Columns.ACTIONS in output:
                return int(output[Columns.ACTIONS][0])
            kind = module.get_inference_action_dist_cls()
            distribution = kind.from_logits(output[Columns.ACTION_DIST_INPUTS])
            action = distribution.to_deterministic().sample()[0].cpu().numpy()
        if hasattr(actions, "n"):
            return int(action)
        if algorithm == "sac":
            action = unsquash_action(action, actions)
        return np.clip(action, actions.low, actions.high)

    return policy
