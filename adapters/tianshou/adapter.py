"""Drives Tianshou 2 through its algorithm and trainer classes."""

import torch
from tianshou.algorithm import A2C, DQN, PPO, SAC
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import nn


class Stop(Exception):
    """Raised before a collect when the budget is used up: the trainer ends on whole epochs only."""


class Adapter:
    def skip(self, trial):
        return None

    def train(self, trial, probe):
        makers = [lambda index=index: trial.make_env(index) for index in range(trial.n_envs)]
        envs = (DummyVectorEnv if trial.mode == "sync" else SubprocVectorEnv)(makers)
        envs.seed(trial.seed)
        spaces = trial.spaces()
        algorithm = getattr(self, "_" + trial.algorithm)(trial, *spaces[2:]).to(trial.device)
        on_policy = trial.algorithm in ("ppo", "a2c")
        size = trial.n_steps * trial.n_envs if on_policy else trial.buffer_size
        collector = Collector(algorithm, envs, VectorReplayBuffer(size, trial.n_envs))
        collector.reset()

        def before_collect(epoch, steps):
            if probe.should_stop():
                raise Stop
            if trial.algorithm == "dqn":
                done = min(1.0, steps / max(1.0, trial.exploration_fraction * trial.env_steps))
                algorithm.policy.set_eps_training(1 + done * (trial.exploration_final_eps - 1))

        trainer_params = (self._on_policy if on_policy else self._off_policy)(trial, collector, before_collect)
        try:
            algorithm.run_training(trainer_params)
        except Stop:
            print("stopped: the budget is used up")
        envs.close()
        algorithm.policy.eval()

        def policy(observation):
            with torch.no_grad():
                result = algorithm.policy(Batch(obs=observation[None], info=Batch()))
            return algorithm.policy.map_action(result.act)[0]

        return policy

    def _on_policy(self, trial, collector, before_collect):
        rollout = trial.n_steps * trial.n_envs
        return OnPolicyTrainerParams(
            max_epochs=1,
            epoch_num_steps=trial.env_steps,
            training_collector=collector,
            collection_step_num_env_steps=rollout,
            batch_size=trial.batch_size if trial.algorithm == "ppo" else None,
            update_step_num_repetitions=trial.n_epochs if trial.algorithm == "ppo" else 1,
            training_fn=before_collect,
            test_collector=None,
            show_progress=False,
            verbose=False,
        )

    def _off_policy(self, trial, collector, before_collect):
        collector.collect(n_step=trial.learning_starts, random=True)
        collected = max(trial.train_freq, trial.n_envs)
        return OffPolicyTrainerParams(
            max_epochs=1,
            epoch_num_steps=trial.env_steps - trial.learning_starts,
            training_collector=collector,
            collection_step_num_env_steps=collected,
            batch_size=trial.batch_size,
            update_step_num_gradient_steps_per_sample=trial.gradient_steps / collected,
            training_fn=before_collect,
            test_collector=None,
            show_progress=False,
            verbose=False,
        )

    def _body(self, trial, observations, **more):
        activation = nn.Tanh if trial.activation == "tanh" else nn.ReLU
        return Net(state_shape=observations.shape, hidden_sizes=trial.net_arch, activation=activation, **more)

    def _actor_critic(self, trial, observations, actions):
        """The policy and the critic of PPO and A2C, with networks of their own."""
        critic = DiscreteCritic(preprocess_net=self._body(trial, observations))
        if hasattr(actions, "n"):
            actor = DiscreteActor(
                preprocess_net=self._body(trial, observations),
                action_shape=int(actions.n),
                softmax_output=False,
            )
            policy = DiscreteActorPolicy(
                actor=actor, action_space=actions, observation_space=observations, deterministic_eval=True
            )
        else:
            actor = ContinuousActorProbabilistic(
                preprocess_net=self._body(trial, observations), action_shape=actions.shape, unbounded=True
            )
            policy = ProbabilisticActorPolicy(
                actor=actor,
                dist_fn=lambda head: torch.distributions.Independent(torch.distributions.Normal(*head), 1),
                action_space=actions,
                observation_space=observations,
                deterministic_eval=True,
                action_scaling=False,
                action_bound_method="clip",
            )
        return {"policy": policy, "critic": critic, "optim": AdamOptimizerFactory(lr=trial.learning_rate)}

    def _ppo(self, trial, observations, actions):
        return PPO(
            **self._actor_critic(trial, observations, actions),
            eps_clip=trial.clip_range,
            advantage_normalization=trial.normalize_advantage,
            vf_coef=trial.vf_coef,
            ent_coef=trial.ent_coef,
            max_grad_norm=trial.max_grad_norm,
            gae_lambda=trial.gae_lambda,
            gamma=trial.gamma,
        )

    def _a2c(self, trial, observations, actions):
        return A2C(
            **self._actor_critic(trial, observations, actions),
            vf_coef=trial.vf_coef,
            ent_coef=trial.ent_coef,
            max_grad_norm=trial.max_grad_norm,
            gae_lambda=trial.gae_lambda,
            gamma=trial.gamma,
        )

    def _dqn(self, trial, observations, actions):
        model = self._body(trial, observations, action_shape=int(actions.n))
        policy = DiscreteQLearningPolicy(
            model=model, action_space=actions, observation_space=observations, eps_training=1.0
        )
        return DQN(
            policy=policy,
            optim=AdamOptimizerFactory(lr=trial.learning_rate),
            gamma=trial.gamma,
            target_update_freq=max(1, trial.target_update_interval * trial.gradient_steps // trial.train_freq),
            is_double=False,
        )

    def _sac(self, trial, observations, actions):
        optim = AdamOptimizerFactory(lr=trial.learning_rate)
        actor = ContinuousActorProbabilistic(
            preprocess_net=self._body(trial, observations),
            action_shape=actions.shape,
            unbounded=True,
            conditioned_sigma=True,
        )

        def critic():
            return ContinuousCritic(
                preprocess_net=self._body(trial, observations, action_shape=actions.shape, concat=True)
            )

        size = float(actions.shape[0])
        return SAC(
            policy=SACPolicy(actor=actor, action_space=actions, observation_space=observations),
            policy_optim=optim,
            critic=critic(),
            critic_optim=optim,
            critic2=critic(),
            critic2_optim=optim,
            tau=trial.tau,
            gamma=trial.gamma,
            alpha=AutoAlpha(target_entropy=-size, log_alpha=0.0, optim=AdamOptimizerFactory(lr=trial.learning_rate)),
        )
