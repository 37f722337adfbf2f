"""Drives Stable-Baselines3."""

from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from torch import nn


class Budget(BaseCallback):
    """Ends learning when the budget in seconds is used up; the budget in steps is SB3's own total_timesteps."""

    def __init__(self, probe):
        super().__init__()
        self.probe = probe

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        # SB3 reads num_timesteps before the next rollout: raising it ends learning after the last update.
        if self.num_timesteps and self.probe.should_stop():
            self.model._total_timesteps = self.model.num_timesteps


class Adapter:
    def skip(self, trial):
        if trial.algorithm in ("dqn", "sac") and trial.mode != "sync":
            return "off-policy algorithms are wired for in-process environments only"
        return None

    def train(self, trial, probe):
        makers = [lambda index=index: trial.make_env(index) for index in range(trial.n_envs)]
        env = DummyVecEnv(makers) if trial.mode == "sync" else SubprocVecEnv(makers, start_method="fork")
        activation = nn.Tanh if trial.activation == "tanh" else nn.ReLU
        common = {
            "env": env,
            "learning_rate": trial.learning_rate,
            "gamma": trial.gamma,
            "seed": trial.seed,
            "device": trial.device,
            "policy_kwargs": {"net_arch": trial.net_arch, "activation_fn": activation},
        }
        model = getattr(self, "_" + trial.algorithm)(trial, common)
        model.learn(trial.env_steps, callback=Budget(probe))
        env.close()
        probe.report("env_steps", model.num_timesteps, "num_timesteps")
        logged = model.logger.name_to_value.get("time/fps")
        if logged:
            probe.report("env_steps_per_s", logged, "time/fps: since learn() began, start-up included")
        return lambda observation: model.predict(observation, deterministic=True)[0]

    def _ppo(self, trial, common):
        return PPO(
            "MlpPolicy",
            n_steps=trial.n_steps,
            batch_size=trial.batch_size,
            n_epochs=trial.n_epochs,
            gae_lambda=trial.gae_lambda,
            clip_range=trial.clip_range,
            normalize_advantage=trial.normalize_advantage,
            ent_coef=trial.ent_coef,
            vf_coef=trial.vf_coef,
            max_grad_norm=trial.max_grad_norm,
            **common,
        )

    def _a2c(self, trial, common):
        return A2C(
            "MlpPolicy",
            n_steps=trial.n_steps,
            gae_lambda=trial.gae_lambda,
            ent_coef=trial.ent_coef,
            vf_coef=trial.vf_coef,
            max_grad_norm=trial.max_grad_norm,
            **common,
        )

    def _dqn(self, trial, common):
        return DQN(
            "MlpPolicy",
            buffer_size=trial.buffer_size,
            batch_size=trial.batch_size,
            learning_starts=trial.learning_starts,
            train_freq=max(1, trial.train_freq // trial.n_envs),
            gradient_steps=trial.gradient_steps,
            target_update_interval=trial.target_update_interval,
            exploration_fraction=trial.exploration_fraction,
            exploration_final_eps=trial.exploration_final_eps,
            **common,
        )

    def _sac(self, trial, common):
        return SAC(
            "MlpPolicy",
            buffer_size=trial.buffer_size,
            batch_size=trial.batch_size,
            learning_starts=trial.learning_starts,
            train_freq=max(1, trial.train_freq // trial.n_envs),
            gradient_steps=trial.gradient_steps,
            tau=trial.tau,
            **common,
        )
