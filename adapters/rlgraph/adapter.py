"""Drives RLgraph's TensorFlow agents under its single-threaded worker."""

import logging
import os
import tempfile
import types

import numpy as np
import tensorflow.compat.v1 as tf1
import tensorflow_probability as tfp
from tensorflow.python.ops.data_flow_ops import StagingArea

from rlbench.probe.tf1 import stand_in_as_tensorflow, tap_graph

# Distributions built from logits no longer know their probabilities by the old name.
for each in (tfp.distributions.Categorical, tfp.distributions.Bernoulli):
    each.probs = property(lambda self: self.probs_parameter())
stand_in_as_tensorflow(
    {
        "framework.nest": tf1.nest,
        "staging.StagingArea": StagingArea,
        "eager": types.ModuleType("tensorflow.contrib.eager"),
    }
)
os.environ.update(RLGRAPH_HOME=tempfile.mkdtemp(), RLGRAPH_BACKEND="tf")
os.environ["RLGRAPH_DISTRIBUTED_BACKEND"] = "distributed_tf"

from impala import train_impala  # noqa: E402
from rlgraph.agents import ActorCriticAgent, DQNAgent, PPOAgent, SACAgent  # noqa: E402
from rlgraph.agents.sac_agent import SyncSpecification  # noqa: E402
from rlgraph.environments.environment import Environment  # noqa: E402
from rlgraph.execution import SingleThreadedWorker  # noqa: E402
from rlgraph.spaces import FloatBox, IntBox  # noqa: E402


class Env(Environment):
    """The instrumented environment in RLgraph's own interface, which has one flag for the end of an episode."""

    def __init__(self, trial, index):
        self._env, self._seed = trial.make_env(index), trial.seed + index
        self._discrete = hasattr(self._env.action_space, "n")
        super().__init__(*self.spaces_of(self._env.observation_space, self._env.action_space))
        self._first = self.reset() if trial.mode == "async" else None

    @staticmethod
    def spaces_of(observations, actions):
        """Return both spaces as RLgraph has them."""
        discrete = hasattr(actions, "n")
        actions = IntBox(int(actions.n)) if discrete else FloatBox(low=actions.low, high=actions.high)
        return FloatBox(shape=observations.shape), actions

    def reset(self):
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)[0]

    def step(self, actions, **ignored):
        action = int(actions) if self._discrete else np.asarray(actions, np.float32).reshape(-1)
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated or truncated, info

    def step_flow(self, action):
        """What IMPALA's actors call: an episode's end gives the first observation of the next."""
        observation, reward, done, _ = self.step(action)
        return self.reset() if done else observation, np.float32(reward), done

    def terminate(self):
        self._env.close()

    def __str__(self):
        return "trial"


class Adapter:
    def skip(self, trial):
        if trial.mode == "async" and trial.algorithm not in ("ppo", "a2c"):
            return "asynchronous training is wired for IMPALA, in place of PPO and A2C"
        if trial.mode == "async" and not hasattr(trial.spaces()[3], "n"):
            return "IMPALA takes discrete actions only"
        return None

    def train(self, trial, probe):
        logging.disable(logging.WARNING)
        if trial.mode == "async":
            return train_impala(trial, probe, Env, _layers(trial, "policy"))
        kernels = tap_graph(lambda names: any("policy" in name for name in names), probe)
        envs = [Env(trial, index) for index in range(trial.n_envs)]
        agent = getattr(self, "_" + trial.algorithm)(
            trial,
            state_space=envs[0].state_space,
            action_space=envs[0].action_space,
            discount=trial.gamma,
            network_spec=_layers(trial, "policy"),
            execution_spec={"mode": "single", "seed": trial.seed},
        )
        made = iter(envs)
        worker = SingleThreadedWorker(
            agent=agent,
            env_spec=lambda: next(made),
            num_environments=trial.n_envs,
            max_timesteps=trial.env_steps,
            worker_executes_preprocessing=False,
            worker_executes_exploration=False,
        )
        read = agent.graph_executor.monitored_session._tf_sess().make_callable(kernels[0])
        get_action = agent.get_action

        def tapped_action(states, **more):
            probe.acted(states, read())
            return get_action(states=states, **more)

        agent.get_action = tapped_action
        chunk = trial.n_steps * trial.n_envs if trial.algorithm in ("ppo", "a2c") else 64
        first = True
        while not probe.should_stop():
            worker.execute_timesteps(num_timesteps=chunk, reset=first)
            first = False
        probe.report("env_steps", agent.timesteps, "the agent's timesteps")
        for env in envs:
            env.terminate()
        discrete = hasattr(trial.spaces()[3], "n")

        def policy(observation):
            action = np.asarray(get_action(observation[None], use_exploration=False))
            return int(action.reshape(-1)[0]) if discrete else np.float32(action).reshape(-1)

        return policy

    def _on_policy(self, trial, rollout):
        adam = {"type": "adam", "learning_rate": trial.learning_rate, "clip_grad_norm": trial.max_grad_norm}
        return {
            "value_function_spec": _layers(trial, "value"),
            "optimizer_spec": dict(adam),
            "value_function_optimizer_spec": dict(adam),
            "observe_spec": {"buffer_enabled": True, "buffer_size": trial.n_steps},
            "memory_spec": {"type": "ring_buffer", "capacity": 4 * rollout},
            "gae_lambda": trial.gae_lambda,
            "sample_episodes": False,
            "weight_entropy": trial.ent_coef,
        }

    def _ppo(self, trial, **common):
        rollout = trial.n_steps * trial.n_envs
        update = {
            "update_interval": rollout,
            "batch_size": rollout,
            "num_iterations": trial.n_epochs * rollout // trial.batch_size,
            "sample_size": trial.batch_size,
        }
        return PPOAgent(
            update_spec=update,
            clip_ratio=trial.clip_range,
            standardize_advantages=trial.normalize_advantage,
            **self._on_policy(trial, rollout),
            **common,
        )

    def _a2c(self, trial, **common):
        rollout = trial.n_steps * trial.n_envs
        agent = ActorCriticAgent(
            update_spec={"update_interval": rollout, "batch_size": rollout},
            **self._on_policy(trial, rollout),
            **common,
        )
        update = agent.update
        # The worker hands every agent a share of time, which this one does not take.
        agent.update = lambda time_percentage=None: update()
        return agent

    def _replay(self, trial):
        return {
            "update_spec": {
                "steps_before_update": trial.learning_starts,
                "update_interval": trial.train_freq,
                "update_steps": trial.gradient_steps,
                "batch_size": trial.batch_size,
            },
            "observe_spec": {"buffer_enabled": False},
            "optimizer_spec": {"type": "adam", "learning_rate": trial.learning_rate},
            "memory_spec": {"type": "replay", "capacity": trial.buffer_size},
        }

    def _dqn(self, trial, **common):
        parts = self._replay(trial)
        parts["update_spec"]["sync_interval"] = trial.target_update_interval
        decay = ["linear", 1.0, trial.exploration_final_eps]
        return DQNAgent(
            exploration_spec={"epsilon_spec": {"decay_spec": decay}},
            double_q=False,
            dueling_q=False,
            huber_loss=True,
            **parts,
            **common,
        )

    def _sac(self, trial, **common):
        return SACAgent(
            value_function_spec=_layers(trial, "value"),
            value_function_sync_spec=SyncSpecification(sync_interval=1, sync_tau=trial.tau),
            **self._replay(trial),
            **common,
        )


def _layers(trial, name):
    """The hidden layers; layers without a scope of their own would collide."""
    return [
        {"type": "dense", "units": size, "activation": trial.activation, "scope": "%s-%d" % (name, number)}
        for number, size in enumerate(trial.net_arch)
    ]
