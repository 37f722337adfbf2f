"""Drives skrl: its agents and memories, stepped by its StepTrainer; skrl leaves the networks to its user."""

import itertools

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from skrl import config
from skrl.agents.torch.a2c import A2C
from skrl.agents.torch.dqn import DQN
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import StepTrainer
from skrl.utils import set_seed
from torch import nn

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class Adapter:
    def skip(self, trial):
        return None

    def train(self, trial, probe):
        config.torch.device = trial.device
        set_seed(trial.seed)  # also the seed of the environments' first reset
        env = wrap_env(environment(trial), wrapper="gymnasium", verbose=False)
        agent, network = (dqn if trial.algorithm == "dqn" else on_policy)(env, trial)
        trainer = StepTrainer(
            env=env,
            agents=agent,
            cfg={
                "timesteps": max(1, trial.env_steps // trial.n_envs),
                "headless": True,
                "disable_progressbar": True,
                "close_environment_at_exit": False,
            },
        )
        while not probe.should_stop():
            trainer.train()
        env.close()
        return greedy(network, trial)


def environment(trial):
    """One environment as it is; several in a vector environment that resets in the step that ends an episode.

    Gymnasium's default resets one step later; skrl would store and learn that step, whose action is ignored. The price:
    skrl does not read ``final_obs``, so a time limit bootstraps from the next episode's first observation.
    """
    if trial.n_envs == 1 and trial.mode == "sync":
        return instrumented(trial, 0)
    makers = [lambda index=index: instrumented(trial, index) for index in range(trial.n_envs)]
    vector = SyncVectorEnv if trial.mode == "sync" else AsyncVectorEnv
    return vector(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def instrumented(trial, index):
    """skrl's Gaussian policy is not bounded: actions are clipped for the environment and stored as sampled."""
    env = trial.make_env(index)
    return gymnasium.wrappers.ClipAction(env) if isinstance(env.action_space, gymnasium.spaces.Box) else env


def on_policy(env, trial):
    spaces = spaces_of(env, trial)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    policy = (CategoricalPolicy if discrete else GaussianPolicy)(trial, **spaces)
    models = {"policy": policy, "value": Network(trial, 1, **spaces)}
    memory = RandomMemory(memory_size=trial.n_steps, num_envs=env.num_envs, device=trial.device)
    cfg = {
        "rollouts": trial.n_steps,
        "discount_factor": trial.gamma,
        "gae_lambda": trial.gae_lambda,
        "learning_rate": trial.learning_rate,
        "grad_norm_clip": trial.max_grad_norm,
        "entropy_loss_scale": trial.ent_coef,
        "time_limit_bootstrap": True,
        "experiment": silent(),
    }
    if trial.algorithm == "a2c":  # which has no scale for its value loss: vf_coef is 1
        return A2C(models=models, memory=memory, cfg=cfg | {"mini_batches": 1}, **spaces), policy
    cfg |= {
        "learning_epochs": trial.n_epochs,
        "mini_batches": max(1, trial.n_steps * env.num_envs // trial.batch_size),
        "ratio_clip": trial.clip_range,
        "value_clip": 0.0,
        "value_loss_scale": trial.vf_coef,
    }
    return PPO(models=models, memory=memory, cfg=cfg, **spaces), policy


def dqn(env, trial):
    spaces = spaces_of(env, trial)
    models = {name: Network(trial, int(env.action_space.n), **spaces) for name in ("q_network", "target_q_network")}
    decay = trial.exploration_fraction * trial.env_steps / env.num_envs

    def epsilon(timestep, timesteps):
        return 1.0 + min(1.0, timestep / decay) * (trial.exploration_final_eps - 1.0)

    agent = DQN(
        models=models,
        memory=RandomMemory(memory_size=trial.buffer_size // env.num_envs, num_envs=env.num_envs, device=trial.device),
        cfg={
            "batch_size": trial.batch_size,
            "discount_factor": trial.gamma,
            "learning_rate": trial.learning_rate,
            "gradient_steps": trial.gradient_steps,
            # Settings count environment steps; skrl counts steps of the vector environment, and updates.
            "update_interval": max(1, trial.train_freq // env.num_envs),
            "learning_starts": trial.learning_starts // env.num_envs,
            "random_timesteps": trial.learning_starts // env.num_envs,
            "target_update_interval": max(1, trial.target_update_interval // trial.train_freq * trial.gradient_steps),
            "polyak": 1.0,
            "exploration_scheduler": epsilon,
            "experiment": silent(),
        },
        **spaces,
    )
    return agent, models["q_network"]


def spaces_of(env, trial):
    return {"observation_space": env.observation_space, "action_space": env.action_space, "device": trial.device}


def silent():
    return {"write_interval": 0, "checkpoint_interval": 0}


def mlp(trial, inputs, outputs):
    sizes = [inputs, *trial.net_arch]
    hidden = [[nn.Linear(a, b), ACTIVATIONS[trial.activation]()] for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*itertools.chain(*hidden), nn.Linear(sizes[-1], outputs))


class Network(DeterministicMixin, Model):
    """State value, or one value per action."""

    def __init__(self, trial, outputs, **spaces):
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = mlp(trial, self.num_observations, outputs)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class CategoricalPolicy(CategoricalMixin, Model):
    def __init__(self, trial, **spaces):
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = mlp(trial, self.num_observations, self.num_actions)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class GaussianPolicy(GaussianMixin, Model):
    def __init__(self, trial, **spaces):
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self)
        self.net = mlp(trial, self.num_observations, self.num_actions)
        self.log_std = nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs, role):
        mean = self.net(inputs["observations"])
        return mean, {"log_std": self.log_std.expand_as(mean)}


def greedy(network, trial):
    """The likeliest action, the mean action, or the action of the highest value."""

    def policy(observation):
        row = torch.as_tensor(np.asarray(observation), device=trial.device).float().unsqueeze(0)
        with torch.no_grad():
            output = network.compute({"observations": row}, "")[0][0].cpu().numpy()
        return output if isinstance(network, GaussianPolicy) else int(output.argmax())

    return policy
