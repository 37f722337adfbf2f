"""Drives RLlib's new API stack; mode "sync" is a local env runner and a local learner in this process."""

import logging
import math

import factory
import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.spaces.space_utils import unsquash_action
from ray.tune.registry import register_env

ENV = "rlbench"
# Off-policy algorithms: environment steps in one call of train().
ITERATION = 1000


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "ppo" and not trial.normalize_advantage:
            return "PPO always normalises advantages"
        if trial.algorithm != "ppo" and trial.n_envs != 1:
            return "off-policy algorithms are wired for one environment"
        return None

    def train(self, trial, probe):
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Even all-local RLlib keeps its configuration in Ray's object store.
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        factory.use(trial)
        register_env(ENV, factory.make)
        config = getattr(self, "_" + trial.algorithm)(trial)
        config.environment(ENV, normalize_actions=trial.algorithm == "sac", clip_actions=True)
        config.framework("torch")
        config.env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=trial.n_envs,
            gym_env_vectorize_mode="sync",
            observation_filter="NoFilter",
        )
        config.learners(num_learners=0)
        config.rl_module(model_config=self._model(trial))
        config.debugging(seed=trial.seed, log_level="ERROR")
        algorithm = config.build_algo()
        while not probe.should_stop():
            algorithm.train()
        module = algorithm.get_module()
        algorithm.stop()
        ray.shutdown()
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
