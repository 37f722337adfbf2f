"""Drives MushroomRL: one agent, one environment, its own Core."""

import numpy as np
import torch
from mushroom_rl.algorithms.actor_critic import A2C, PPO, SAC
from mushroom_rl.algorithms.value import DQN
from mushroom_rl.approximators.parametric import TorchApproximator
from mushroom_rl.core import Core, Environment, MDPInfo
from mushroom_rl.policy import BoltzmannTorchPolicy, EpsGreedy, GaussianTorchPolicy
from mushroom_rl.utils.parameters import LinearParameter
from mushroom_rl.utils.spaces import Box, Discrete
from network import Network
from torch import nn


class Stop(Exception):
    """Raised after a fit when the budget in seconds is used up; the budget in steps is Core's own n_steps."""


class Bridge(Environment):
    """The instrumented environment as MushroomRL's own; Core ends episodes at ``horizon``, the time limit."""

    def __init__(self, env, gamma, seed):
        self._env, self._seed = env, seed
        self._bounds = None if hasattr(env.action_space, "n") else (env.action_space.low, env.action_space.high)
        actions = Box(*self._bounds) if self._bounds else Discrete(int(env.action_space.n))
        states = Box(env.observation_space.low, env.observation_space.high)
        super().__init__(MDPInfo(states, actions, gamma, env.spec.max_episode_steps or np.inf))

    def reset(self, state=None):
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)[0]

    def step(self, action):
        action = np.clip(action, *self._bounds) if self._bounds else int(action[0])
        state, reward, terminated, _, _ = self._env.step(action)
        return state, reward, terminated, {}

    def stop(self):
        self._env.close()


class Adapter:
    def skip(self, trial):
        return None

    def train(self, trial, probe):
        torch.manual_seed(trial.seed)
        np.random.seed(trial.seed)
        mdp = Bridge(trial.make_env(0), trial.gamma, trial.seed)
        agent, greedy, steps_per_fit = getattr(self, "_" + trial.algorithm)(trial, mdp.info)

        def after_fit(dataset):
            if trial.seconds and probe.should_stop():
                raise Stop

        core = Core(agent, mdp, callbacks_fit=[after_fit])
        try:
            core.learn(n_steps=trial.env_steps, n_steps_per_fit=steps_per_fit, quiet=True)
        except Stop:
            print("stopped: the budget in seconds is used up")
            mdp.stop()
        probe.report("env_steps", core._total_steps_counter, "what its progress bar counts")
        return greedy

    def _approximator(self, trial, input_shape, output_shape, **more):
        return {
            "network": Network,
            "input_shape": input_shape,
            "output_shape": output_shape,
            "hidden": trial.net_arch,
            "activation": nn.Tanh if trial.activation == "tanh" else nn.ReLU,
            **more,
        }

    def _adam(self, trial):
        return {"class": torch.optim.Adam, "params": {"lr": trial.learning_rate}}

    def _actor_critic(self, trial, info, batch_size):
        """Return policy, critic parameters and greedy policy of PPO and A2C; the critic is fitted apart."""
        shape = info.observation_space.shape
        critic = self._approximator(
            trial,
            shape,
            (1,),
            optimizer=self._adam(trial),
            loss=nn.functional.mse_loss,
            batch_size=batch_size,
        )
        if isinstance(info.action_space, Box):
            policy = GaussianTorchPolicy(**self._approximator(trial, shape, info.action_space.shape))
            low, high = info.action_space.low, info.action_space.high
            return (
                policy,
                critic,
                lambda o: np.clip(policy.distribution(o[None]).mean.detach().numpy()[0], low, high),
            )
        policy = BoltzmannTorchPolicy(**self._approximator(trial, shape, (info.action_space.n,)), beta=1.0)
        return policy, critic, lambda o: int(policy.distribution(o[None]).probs.argmax())

    def _ppo(self, trial, info):
        policy, critic, greedy = self._actor_critic(trial, info, trial.batch_size)
        agent = PPO(
            info,
            policy,
            actor_optimizer=self._adam(trial),
            critic_params=critic,
            critic_fit_params={"n_epochs": trial.n_epochs},
            n_epochs_policy=trial.n_epochs,
            batch_size=trial.batch_size,
            eps_ppo=trial.clip_range,
            lam=trial.gae_lambda,
            ent_coeff=trial.ent_coef,
        )
        return agent, greedy, trial.n_steps * trial.n_envs

    def _a2c(self, trial, info):
        policy, critic, greedy = self._actor_critic(trial, info, batch_size=0)
        agent = A2C(
            info,
            policy,
            actor_optimizer=self._adam(trial),
            critic_params=critic,
            ent_coeff=trial.ent_coef,
            max_grad_norm=trial.max_grad_norm,
        )
        return agent, greedy, trial.n_steps * trial.n_envs

    def _dqn(self, trial, info):
        n = info.action_space.n
        fall = max(1, round(trial.exploration_fraction * trial.env_steps))
        agent = DQN(
            info,
            EpsGreedy(LinearParameter(1.0, trial.exploration_final_eps, fall)),
            TorchApproximator,
            approximator_params=self._approximator(
                trial,
                info.observation_space.shape,
                (n,),
                n_actions=n,
                optimizer=self._adam(trial),
                loss=nn.functional.smooth_l1_loss,
            ),
            batch_size=trial.batch_size,
            # Counted in fits, of which there is one every train_freq steps.
            target_update_frequency=max(1, trial.target_update_interval // trial.train_freq),
            initial_replay_size=trial.learning_starts,
            max_replay_size=trial.buffer_size,
            fit_params={"n_epochs": trial.gradient_steps},
        )
        return agent, lambda o: int(agent.approximator.predict(o[None]).argmax()), trial.train_freq

    def _sac(self, trial, info):
        states, actions = info.observation_space.shape, info.action_space.shape
        low, high = info.action_space.low, info.action_space.high
        critic = self._approximator(
            trial,
            (states[0] + actions[0],),
            (1,),
            joined=True,
            optimizer=self._adam(trial),
            loss=nn.functional.mse_loss,
        )
        agent = SAC(
            info,
            actor_mu_params=self._approximator(trial, states, actions),
            actor_sigma_params=self._approximator(trial, states, actions),
            actor_optimizer=self._adam(trial),
            critic_params=critic,
            batch_size=trial.batch_size,
            initial_replay_size=trial.learning_starts,
            max_replay_size=trial.buffer_size,
            warmup_transitions=trial.learning_starts,
            tau=trial.tau,
            lr_alpha=trial.learning_rate,
        )

        def greedy(o):
            mean = np.tanh(agent.policy._mu_approximator.predict(o[None])[0])
            return (low + high) / 2 + mean * (high - low) / 2

        return agent, greedy, trial.train_freq
