"""Drives RLgraph's TensorFlow agents: under its single-threaded worker, with Ray's actors, or as IMPALA."""

import logging

import numpy as np
import shim  # noqa: F401

# isort: split
from environment import Env
from impala import train_impala
from rlgraph.agents import ActorCriticAgent, DQNAgent, PPOAgent, SACAgent
from rlgraph.agents.sac_agent import SyncSpecification
from rlgraph.execution import SingleThreadedWorker

from rlbench.probe.tf1 import tap_graph


class Adapter:
    def skip(self, trial):
        if trial.mode == "async" and trial.algorithm not in ("ppo", "a2c"):
            return "asynchronous training is wired for IMPALA, in place of PPO and A2C"
        if trial.mode == "async" and not hasattr(trial.spaces()[3], "n"):
            return "IMPALA takes discrete actions only"
        if trial.mode == "workers" and trial.algorithm != "ppo":
            return "workers in step with the learner are wired for PPO"
        if trial.mode == "workers" and trial.n_envs % trial.workers:
            return "every worker has the same number of environments: n_envs must be a multiple of workers"
        return None

    def train(self, trial, probe):
        logging.disable(logging.WARNING)
        if trial.mode == "async":
            return train_impala(trial, probe, Env, _layers(trial, "policy"))
        common = {
            "discount": trial.gamma,
            "network_spec": _layers(trial, "policy"),
            "execution_spec": {"mode": "single", "seed": trial.seed},
        }
        if trial.mode == "workers":
            # It imports Ray, which the other modes do not pay for.
            from workers import train_apart

            agent = train_apart(trial, probe, Env, {"type": "ppo", **self._ppo_settings(trial), **common})
            return _greedy(trial, agent.get_action)
        kernels = tap_graph(lambda names: any("policy" in name for name in names), probe)
        envs = [Env(trial, index) for index in range(trial.n_envs)]
        make = getattr(self, "_" + trial.algorithm)
        agent = make(trial, state_space=envs[0].state_space, action_space=envs[0].action_space, **common)
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
        return _greedy(trial, get_action)

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

    def _ppo_settings(self, trial):
        rollout = trial.n_steps * trial.n_envs
        return {
            "update_spec": {
                "update_interval": rollout,
                "batch_size": rollout,
                "num_iterations": trial.n_epochs * rollout // trial.batch_size,
                "sample_size": trial.batch_size,
            },
            "clip_ratio": trial.clip_range,
            "standardize_advantages": trial.normalize_advantage,
            **self._on_policy(trial, rollout),
        }

    def _ppo(self, trial, **common):
        return PPOAgent(**self._ppo_settings(trial), **common)

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


def _greedy(trial, get_action):
    """Return the agent's policy without exploration."""
    discrete = hasattr(trial.spaces()[3], "n")

    def policy(observation):
        action = np.asarray(get_action(observation[None], use_exploration=False))
        return int(action.reshape(-1)[0]) if discrete else np.float32(action).reshape(-1)

    return policy


def _layers(trial, name):
    """The hidden layers; layers without a scope of their own would collide."""
    return [
        {"type": "dense", "units": size, "activation": trial.activation, "scope": "%s-%d" % (name, number)}
        for number, size in enumerate(trial.net_arch)
    ]
