"""Drives Dopamine's JAX agents through its own TrainRunner."""

import shim  # noqa: F401

# isort: split
import functools
import logging
import tempfile

import gin
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging as absl_logging
from discrete import CategoricalActorCritic
from dopamine.discrete_domains.run_experiment import TrainRunner
from dopamine.jax import networks
from dopamine.jax.agents.dqn import dqn_agent
from dopamine.jax.agents.ppo import ppo_agent
from dopamine.jax.agents.sac import sac_agent
from flax import linen as nn

from rlbench.probe.jaxtap import Kernel, count
from rlbench.probe.sampler import library_call


class Stop(Exception):
    """Raised from the environment when the budget is used up: the runner ends on whole episodes only."""


class GameEnv:
    """The instrumented environment as Dopamine's runner wants it."""

    def __init__(self, trial, probe):
        self._env, self._probe, self._seed = trial.make_env(0), probe, trial.seed
        self.action_space, self.observation_space = self._env.action_space, self._env.observation_space
        self._discrete, self.game_over = hasattr(self.action_space, "n"), False

    def reset(self):
        seed, self._seed = self._seed, None
        self.game_over = False
        return self._env.reset(seed=seed)[0]

    def step(self, action):
        if self._probe.should_stop():
            raise Stop
        action = int(action.reshape(())) if self._discrete else action
        observation, reward, terminated, truncated, info = self._env.step(action)
        # A time limit ends the episode, and the agent learns that the state is not terminal.
        self.game_over = terminated or truncated
        return observation, reward, terminated, info

    def close(self):
        self._env.close()


class CurrentObservationPPO(ppo_agent.PPOAgent):
    """Variant: after an update it goes on from the current observation, and not from the one before."""

    def _train_step(self):
        observation, state = self._observation, self.state
        super()._train_step()
        self._observation, self.state = observation, state


def linear_epsilon(decay_period, step, warmup_steps, epsilon):
    """Exploration that falls from 1 over ``decay_period`` steps, counted from the first step."""
    return jnp.maximum(epsilon, 1.0 - (1.0 - epsilon) * step / decay_period)


class Adapter:
    def skip(self, trial):
        discrete = hasattr(trial.spaces()[3], "n")
        stock = trial.algorithm != "ppo" or not discrete
        if stock and len(set(trial.net_arch)) > 1:
            return "its own networks have hidden layers of one width"
        if trial.algorithm in ("dqn", "sac") and trial.activation != "relu":
            return "its own %s network has ReLU written in" % trial.algorithm
        if trial.algorithm in ("dqn", "sac") and trial.gradient_steps != 1:
            return "it makes one gradient step per update"
        if trial.algorithm == "ppo" and not trial.normalize_advantage:
            return "it always normalises advantages"
        return None

    def train(self, trial, probe):
        absl_logging.set_verbosity(absl_logging.ERROR)
        logging.getLogger("jax").setLevel(logging.ERROR)
        rollout = trial.algorithm == "ppo" and trial.n_steps * trial.n_envs
        for name, value in {
            "create_optimizer.learning_rate": trial.learning_rate,
            "ReplayBuffer.batch_size": rollout or trial.batch_size,
            "ReplayBuffer.max_capacity": 2 * rollout or trial.buffer_size,
            "Runner.num_iterations": 1,
            "Runner.training_steps": trial.env_steps,
            "Runner.clip_rewards": False,
            "Runner.use_legacy_logger": False,
            "Runner.fine_grained_print_to_console": False,
            "CollectorDispatcher.collectors": (),
        }.items():
            gin.bind_parameter(name, value)
        make = getattr(self, "_" + trial.algorithm)
        environment = GameEnv(trial, probe)
        agent = make(trial, environment.action_space)
        _tap(trial, probe, agent)
        folder = tempfile.mkdtemp(prefix="dopamine-")
        runner = TrainRunner(folder, lambda session, env, summary_writer: agent, lambda: environment)
        try:
            runner.run_experiment()
        except Stop:
            print("stopped: the budget is used up")
        environment.close()
        # Its steps per second come at the end of a phase of whole episodes, which the budget cuts off.
        probe.report("env_steps", agent.training_steps, "training_steps of the agent")
        return _greedy(trial, agent)

    def _ppo(self, trial, actions):
        agent = CurrentObservationPPO if trial.variant == "current_observation" else ppo_agent.PPOAgent
        settings = {
            "observation_shape": trial.spaces()[2].shape,
            "update_period": trial.n_steps * trial.n_envs,
            "num_epochs": trial.n_epochs,
            "batch_size": trial.batch_size,
            "gamma": trial.gamma,
            "lambda_": trial.gae_lambda,
            "epsilon": trial.clip_range,
            # The agent halves the squared error before it applies the coefficient.
            "vf_coefficient": 2 * trial.vf_coef,
            "entropy_coefficient": trial.ent_coef,
            "clip_critic_loss": False,
            "max_gradient_norm": trial.max_grad_norm,
            "seed": trial.seed,
        }
        if not hasattr(actions, "n"):
            return agent(
                action_shape=actions.shape,
                action_limits=(actions.low, actions.high),
                num_layers=len(trial.net_arch),
                hidden_units=trial.net_arch[0],
                activation=trial.activation,
                **settings,
            )

        def network(action_shape, action_limits):
            return CategoricalActorCritic(int(actions.n), tuple(trial.net_arch), getattr(nn, trial.activation))

        return agent(action_shape=(1,), action_limits=None, network=network, **settings)

    def _dqn(self, trial, actions):
        return dqn_agent.JaxDQNAgent(
            num_actions=int(actions.n),
            observation_shape=trial.spaces()[2].shape,
            observation_dtype=jnp.float32,
            stack_size=1,
            network=functools.partial(
                networks.ClassicControlDQNNetwork,
                num_layers=len(trial.net_arch),
                hidden_units=trial.net_arch[0],
            ),
            gamma=trial.gamma,
            min_replay_history=trial.learning_starts,
            update_period=trial.train_freq,
            target_update_period=trial.target_update_interval,
            epsilon_fn=linear_epsilon,
            epsilon_train=trial.exploration_final_eps,
            epsilon_decay_period=max(1, int(trial.exploration_fraction * trial.env_steps)),
            seed=trial.seed,
        )

    def _sac(self, trial, actions):
        return sac_agent.SACAgent(
            action_shape=actions.shape,
            action_limits=(actions.low, actions.high),
            observation_shape=trial.spaces()[2].shape,
            num_layers=len(trial.net_arch),
            hidden_units=trial.net_arch[0],
            gamma=trial.gamma,
            min_replay_history=trial.learning_starts,
            update_period=trial.train_freq,
            target_smoothing_coefficient=trial.tau,
            target_entropy=-float(np.prod(actions.shape)),
            seed=trial.seed,
        )


def _params(trial, agent):
    return agent.online_params if trial.algorithm == "dqn" else agent.network_params


def _tap(trial, probe, agent):
    """Wrap the functions that act and that make one optimizer step: the agent looks them up at each call."""
    module = {"ppo": ppo_agent, "dqn": dqn_agent, "sac": sac_agent}[trial.algorithm]
    step = "train_minibatch" if trial.algorithm == "ppo" else "train"
    select_action, train = module.select_action, getattr(module, step)
    # Where the states are among the arguments of the step, and the parameters in its result.
    states_at, result = {"ppo": (4, 0), "dqn": (5, 1), "sac": (9, "network_params")}[trial.algorithm]
    kernel = Kernel(_params(trial, agent))
    probe.describe_optimizer(kind="Adam", parameters=count(_params(trial, agent)))

    def acting(network_def, params, state, *rest):
        probe.acted(state[..., -1][None], kernel(params))
        return library_call(select_action, network_def, params, state, *rest)

    def training(*arguments):
        # What is still being computed is waited for here, and that is the library's time.
        states = library_call(jax.block_until_ready, arguments[states_at])
        probe.learned(np.asarray(states)[..., -1])
        results = library_call(jax.block_until_ready, library_call(train, *arguments))
        probe.updated(kernel(results[result]), trial.learning_rate)
        return results

    module.select_action = acting
    setattr(module, step, training)


def _greedy(trial, agent):
    network, params, actions = agent.network_def, _params(trial, agent), trial.spaces()[3]

    @jax.jit
    def best(state):
        if trial.algorithm == "dqn":
            return jnp.argmax(network.apply(params, state).q_values)
        if trial.algorithm == "sac":
            return network.apply(params, state, jax.random.PRNGKey(0), method=network.actor).mean_action
        if hasattr(actions, "n"):
            return jnp.argmax(network.apply(params, state, method=network.logits))
        # Its Gaussian actor only ever samples: the mean is the output of the layer after the hidden ones.
        _, inner = network.apply(params, state, jax.random.PRNGKey(0), method=network.actor, capture_intermediates=True)
        mean = inner["intermediates"]["_actor"]["Dense_%d" % len(trial.net_arch)]["__call__"][0]
        low, high = jnp.asarray(actions.low), jnp.asarray(actions.high)
        return (low + high) / 2 + (high - low) / 2 * jnp.tanh(mean)

    def policy(observation):
        action = np.asarray(best(np.asarray(observation, np.float32)[..., None]))
        return int(action) if hasattr(actions, "n") else action

    return policy
