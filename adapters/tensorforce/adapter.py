"""Drives Tensorforce: its generic agent set up as PPO, its DQN and A2C agents, under its own Runner."""

import logging

from tensorforce import Agent, Environment, Runner
from tensorforce.core.optimizers.tf_optimizer import TFOptimizer

from rlbench.probe.tftap import acting, tap_batch, tap_optimizer

TERMINATED, TRUNCATED = 1, 2


class Env(Environment):
    """One instrumented environment in Tensorforce's own interface."""

    def __init__(self, trial, index):
        super().__init__()
        self._env, self._seed = trial.make_env(index), trial.seed + index

    def states(self):
        # No bounds: with them the library rescales what it observes.
        return {"type": "float", "shape": self._env.observation_space.shape}

    def actions(self):
        space = self._env.action_space
        if hasattr(space, "n"):
            return {"type": "int", "num_values": int(space.n)}
        low, high = float(space.low.min()), float(space.high.max())
        return {"type": "float", "shape": space.shape, "min_value": low, "max_value": high}

    def max_episode_timesteps(self):
        return self._env.spec.max_episode_steps

    def reset(self):
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)[0]

    def execute(self, actions):
        observation, reward, terminated, truncated, _ = self._env.step(actions)
        return observation, TERMINATED if terminated else TRUNCATED if truncated else 0, reward

    def close(self):
        self._env.close()


class Adapter:
    def skip(self, trial):
        if not trial.make_env().spec.max_episode_steps:
            return "needs an environment with a limit on the length of episodes"
        if trial.algorithm == "dqn" and "n" not in vars(trial.spaces()[3]):
            return "DQN takes discrete actions only"
        return None

    def train(self, trial, probe):
        logging.getLogger().setLevel(logging.ERROR)
        remote = None if trial.mode == "sync" else "multiprocessing"
        # Processes first: TensorFlow must not have started its threads when they are forked.
        envs = [
            Environment.create(environment=Env, remote=remote, trial=trial, index=index)
            for index in range(trial.n_envs)
        ]
        _tap_learning(probe)
        agent = Agent.create(
            environment=envs[0],
            parallel_interactions=trial.n_envs,
            config={"seed": trial.seed, "device": "CPU", "create_tf_assertions": False},
            state_preprocessing=None,
            **getattr(self, "_" + trial.algorithm)(trial),
        )
        _tap_learning.policy = agent.model.policy
        tell = acting(agent.model.policy.trainable_variables[0], probe)
        act = agent.act

        def tapped_act(states, **more):
            tell(states)
            return act(states=states, **more)

        agent.act = tapped_act
        runner = Runner(agent=agent, environments=envs)
        runner.run(
            num_timesteps=trial.env_steps,
            batch_agent_calls=trial.n_envs > 1,
            callback=lambda runner, parallel: not probe.should_stop(),
            callback_timestep_frequency=64,
            use_tqdm=False,
        )
        probe.report("env_steps", runner.timesteps, "timesteps of the runner")
        probe.report(
            "updates", runner.updates, "updates of the runner: calls that update, whatever their optimizer steps"
        )
        runner.close()
        for env in envs:
            env.close()
        return lambda observation: act(states=observation, independent=True, deterministic=True)

    def _network(self, trial):
        return [{"type": "dense", "size": size, "activation": trial.activation} for size in trial.net_arch]

    def _ppo(self, trial):
        rollout = trial.n_steps * trial.n_envs
        adam = {
            "optimizer": "adam",
            "learning_rate": trial.learning_rate,
            "gradient_norm_clipping": trial.max_grad_norm,
            "multi_step": trial.n_epochs * rollout // trial.batch_size,
            "subsampling_fraction": trial.batch_size,
        }
        return {
            "agent": "tensorforce",
            "policy": {"type": "parametrized_distributions", "network": self._network(trial)},
            "memory": {"type": "recent", "capacity": 4 * rollout},
            "update": {"unit": "timesteps", "batch_size": rollout},
            "optimizer": adam,
            "objective": {
                "type": "policy_gradient",
                "importance_sampling": True,
                "clipping_value": trial.clip_range,
            },
            "reward_estimation": {
                "horizon": 1,
                "discount": trial.gamma,
                "gae_decay": trial.gae_lambda,
                "predict_horizon_values": "early",
                "estimate_advantage": "late",
                "advantage_processing": "batch_normalization" if trial.normalize_advantage else None,
            },
            "baseline": {"type": "parametrized_state_value", "network": self._network(trial)},
            "baseline_optimizer": dict(adam),
            "baseline_objective": {"type": "state_value"},
            "entropy_regularization": trial.ent_coef,
        }

    def _a2c(self, trial):
        adam = {
            "optimizer": "adam",
            "learning_rate": trial.learning_rate,
            "gradient_norm_clipping": trial.max_grad_norm,
        }
        return {
            "agent": "a2c",
            "network": self._network(trial),
            "batch_size": trial.n_steps * trial.n_envs,
            "learning_rate": trial.learning_rate,
            "horizon": trial.n_steps,
            "discount": trial.gamma,
            "critic": self._network(trial),
            "critic_optimizer": adam,
            "memory": "minimum",
            "entropy_regularization": trial.ent_coef,
        }

    def _dqn(self, trial):
        return {
            "agent": "dqn",
            "network": self._network(trial),
            "memory": trial.buffer_size,
            "batch_size": trial.batch_size,
            "update_frequency": trial.train_freq,
            "start_updating": trial.learning_starts,
            "learning_rate": trial.learning_rate,
            "discount": trial.gamma,
            "target_sync_frequency": max(1, trial.target_update_interval // trial.train_freq),
            "target_update_weight": 1.0,
            "exploration": {
                "type": "linear",
                "unit": "timesteps",
                "num_steps": int(trial.exploration_fraction * trial.env_steps),
                "initial_value": 1.0,
                "final_value": trial.exploration_final_eps,
            },
        }


def _tap_learning(probe):
    """Tap the steps that train the policy; the baseline has an optimizer of its own."""
    step = TFOptimizer.step

    def tapped(self, *, arguments, variables, **more):
        policy = {id(each) for each in _tap_learning.policy.trainable_variables}
        if all(id(each) in policy for each in variables):
            tap_batch(arguments["states"].value(), probe)
            if not hasattr(self.tf_optimizer, "tapped"):
                self.tf_optimizer.tapped = True
                tap_optimizer(self.tf_optimizer, _tap_learning.policy.trainable_variables[0], probe)
        return step(self, arguments=arguments, variables=variables, **more)

    TFOptimizer.step = tapped
