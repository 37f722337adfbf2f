"""Drives Acme's JAX agents by its local layout and environment loop: one process, one environment.

Mode "async" runs PPO's learner and as many actors as there are workers at the same time (threads.py).
"""

import shim  # noqa: F401

# isort: split
import dataclasses
import logging
import math

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from acme import EnvironmentLoop, specs, wrappers
from acme.agents.jax import dqn, ppo, sac
from acme.agents.jax.dqn.actor import behavior_policy
from acme.agents.jax.dqn.losses import PrioritizedDoubleQLearning
from acme.agents.jax.ppo import networks as ppo_networks
from acme.agents.jax.sac import networks as sac_networks
from acme.jax.layouts.local_layout import LocalLayout
from acme.jax.networks import CategoricalHead, FeedForwardNetwork
from acme.utils.loggers import NoOpLogger
from taps import Minibatches, tap_actor, tap_steps
from threads import Distributed, Stop

from rlbench.probe.bridges import dm_env
from rlbench.probe.jaxtap import count
from rlbench.probe.sampler import library_code
from rlbench.probe.trial import BARE


class BudgetEnv(wrappers.EnvironmentWrapper):
    """Raises Stop in place of the first step after the budget."""

    def __init__(self, environment, probe):
        super().__init__(environment)
        self._probe = probe

    def step(self, action):
        if self._probe.should_stop():
            raise Stop
        return self._environment.step(action)


class PromptPPOBuilder(ppo.PPOBuilder):
    """Variant: PPO learns as soon as a rollout is inserted, also when Reverb's data set has fetched it already."""

    def make_replay_tables(self, environment_spec):
        (table,) = super().make_replay_tables(environment_spec)
        learned = 0

        def can_sample(sequences):
            nonlocal learned
            ready = table.info.rate_limiter_info.insert_stats.completed >= learned + sequences
            learned += sequences if ready else 0
            return ready

        table.can_sample = can_sample
        return [table]


class Adapter:
    def skip(self, trial):
        discrete = hasattr(trial.spaces()[3], "n")
        if trial.algorithm in ("dqn", "sac") and trial.gradient_steps != 1:
            return "wired for one gradient step per update"
        if trial.algorithm == "ppo" and not trial.normalize_advantage:
            return "it always normalises advantages"
        if trial.mode != "sync" and trial.algorithm != "ppo":
            return "off-policy algorithms are wired for one actor that waits for the learner"
        written = {"ppo": "tanh", "sac": "relu"}.get(trial.algorithm)
        if not discrete and trial.activation != written:
            return "its own network for continuous actions has %s written in" % written
        return None

    def train(self, trial, probe):
        # Once per traced structure, and there are hundreds: that an argument of dm-tree has no effect.
        logging.getLogger().setLevel(logging.ERROR)
        actors = 1 if trial.mode == "sync" else trial.workers
        environments = [_environment(trial, probe, index) for index in range(actors)]
        spec = specs.make_environment_spec(environments[0])
        agent, greedy = getattr(self, "_" + trial.algorithm)(trial, probe, spec)
        if trial.mode == "sync":
            loops = [EnvironmentLoop(environments[0], agent, logger=NoOpLogger())]
            learner = agent._learner
            try:
                loops[0].run()
            except Stop:
                print("stopped: the budget is used up")
        else:
            loops = agent.run(environments)
            agent = learner = agent.learner
        _report(probe, loops, learner)
        for environment in environments:
            environment.close()
        return _policy(greedy, agent.get_variables(["policy"])[0], trial.spaces()[3])

    def _ppo(self, trial, probe, spec):
        if hasattr(trial.spaces()[3], "n"):
            networks = _categorical_networks(trial, spec)
        else:
            networks = ppo_networks.make_gym_networks(spec, trial.net_arch, trial.net_arch)
        rollout = trial.n_steps * trial.n_envs
        config = ppo.PPOConfig(
            # As many sequences from its one environment as the scenario has environments.
            unroll_length=trial.n_steps,
            batch_size=trial.n_envs,
            num_minibatches=rollout // trial.batch_size,
            num_epochs=trial.n_epochs,
            learning_rate=trial.learning_rate,
            discount=trial.gamma,
            gae_lambda=trial.gae_lambda,
            ppo_clipping_epsilon=trial.clip_range,
            clip_value=False,
            entropy_cost=trial.ent_coef,
            value_cost=trial.vf_coef,
            max_gradient_norm=trial.max_grad_norm,
        )
        taps = Minibatches(probe, networks.network.apply, trial.batch_size, trial.learning_rate)
        learned = networks
        if trial.arm != BARE:
            tapped = FeedForwardNetwork(networks.network.init, taps.apply)
            learned = dataclasses.replace(networks, network=tapped)
        builder = PromptPPOBuilder if trial.variant == "prompt" else ppo.PPOBuilder
        builder = builder(config, logger_fn=NoOpLogger)
        policy = ppo_networks.make_inference_fn(networks)
        if trial.mode == "sync":
            agent = LocalLayout(
                seed=trial.seed,
                environment_spec=spec,
                builder=builder,
                networks=learned,
                policy_network=policy,
                workdir=None,
                batch_size=config.batch_size,
            )
            actors, learner = [agent._actor], agent._learner
        else:
            agent = Distributed(builder, spec, learned, policy, trial.seed, trial.workers)
            actors, learner = agent.actors, agent.learner
        params = learner.get_variables(["policy"])[0]
        probe.describe_optimizer(kind="Adam", parameters=count(params))
        for actor in actors:
            tap_actor(actor, probe, params)
        if trial.arm != BARE:
            taps.tap(learner)
        return agent, lambda params, rows: networks.network.apply(params, rows)[0].mode()

    def _dqn(self, trial, probe, spec):
        @library_code
        def forward(rows):
            return hk.nets.MLP([*trial.net_arch, spec.actions.num_values], activation=_activation(trial))(rows)

        network = _transformed(forward, spec)
        config = dqn.DQNConfig(
            epsilon=trial.exploration_final_eps,
            learning_rate=trial.learning_rate,
            discount=trial.gamma,
            n_step=1,
            target_update_period=_learner_steps(trial, trial.target_update_interval),
            batch_size=trial.batch_size,
            max_replay_size=trial.buffer_size,
            importance_sampling_exponent=0.0,
            priority_exponent=0.0,
            samples_per_insert=trial.batch_size / trial.train_freq,
            **_REPLAY,
        )
        loss = PrioritizedDoubleQLearning(discount=trial.gamma, importance_sampling_exponent=0.0)
        builder = dqn.DQNBuilder(config, loss_fn=loss, logger_fn=NoOpLogger)

        agent = self._off_policy(trial, probe, spec, builder, network, behavior_policy(network), "_sgd_step")
        return agent, lambda params, rows: jnp.argmax(network.apply(params, rows), axis=-1)

    def _sac(self, trial, probe, spec):
        networks = sac_networks.make_networks(spec, tuple(trial.net_arch))
        config = sac.SACConfig(
            batch_size=trial.batch_size,
            learning_rate=trial.learning_rate,
            discount=trial.gamma,
            n_step=1,
            target_entropy=sac.target_entropy_from_env_spec(spec),
            tau=trial.tau,
            max_replay_size=trial.buffer_size,
            samples_per_insert=trial.batch_size / trial.train_freq,
            **_REPLAY,
        )
        builder = sac.SACBuilder(config, logger_fn=NoOpLogger)
        policy = sac_networks.apply_policy_and_sample(networks)
        agent = self._off_policy(trial, probe, spec, builder, networks, policy, "_update_step")
        return agent, lambda params, rows: networks.policy_network.apply(params, rows).mode()

    def _off_policy(self, trial, probe, spec, builder, networks, policy, step):
        agent = LocalLayout(
            seed=trial.seed,
            environment_spec=spec,
            builder=builder,
            networks=networks,
            policy_network=policy,
            workdir=None,
            min_replay_size=trial.learning_starts,
            samples_per_insert=trial.batch_size / trial.train_freq,
            batch_size=trial.batch_size,
        )
        params = agent.get_variables(["policy"])[0]
        probe.describe_optimizer(kind="Adam", parameters=count(params))
        tap_actor(agent._actor, probe, params)
        if trial.algorithm == "dqn":
            picks = lambda batch: batch.data.observation, lambda state: state.params
        else:
            picks = lambda batch: batch.observation, lambda state: state.policy_params
        tap_steps(agent._learner, step, probe, *picks, trial.learning_rate)
        return agent


def _report(probe, loops, learner):
    """Pass on what the library's counters say, that is, what it would log."""
    steps = sum(loop._counter.get_counts().get("steps", 0) for loop in loops)
    probe.report("env_steps", steps, "steps of the environment loops: those of finished episodes")
    updates = learner._counter.get_counts().get("steps", 0)
    probe.report("updates", updates, "steps of the learner: PPO's hold all epochs of a rollout")


def _environment(trial, probe, index):
    env = dm_env(trial.make_env(index))
    env.seed(trial.seed + 1000 * index)
    environment = BudgetEnv(env, probe)
    if not hasattr(trial.spaces()[3], "n"):
        environment = wrappers.CanonicalSpecWrapper(environment, clip=True)
    return environment


# The local layout itself waits for min_replay_size. Acme's own SAC switches Reverb's limiter off like this, since
# the two waiting for each other is a deadlock.
_REPLAY = {"min_replay_size": 1, "samples_per_insert_tolerance_rate": math.inf}


def _learner_steps(trial, env_steps):
    return max(1, env_steps // trial.train_freq)


def _activation(trial):
    return jnp.tanh if trial.activation == "tanh" else jax.nn.relu


def _transformed(forward, spec):
    """Return a Haiku function of observations as a network of Acme's kind."""
    pure = hk.without_apply_rng(hk.transform(forward))
    dummy = jnp.zeros((1, *spec.observations.shape), jnp.float32)
    return FeedForwardNetwork(lambda key: pure.init(key, dummy), pure.apply)


def _categorical_networks(trial, spec):
    """PPO's networks for discrete actions and vectors; Acme has such for images and continuous actions."""

    @library_code
    def forward(rows):
        def torso():
            return hk.nets.MLP(trial.net_arch, activation=_activation(trial), activate_final=True)

        distribution = CategoricalHead(spec.actions.num_values)(torso()(rows))
        return distribution, jnp.squeeze(hk.Linear(1)(torso()(rows)), axis=-1)

    return ppo_networks.make_ppo_networks(_transformed(forward, spec))


def _policy(greedy, params, actions):
    best = jax.jit(lambda observation: greedy(params, observation[None])[0])

    def policy(observation):
        action = np.asarray(best(np.asarray(observation, np.float32)))
        if hasattr(actions, "n"):
            return int(action)
        # The library acts in -1 .. 1.
        return actions.low + (np.clip(action, -1, 1) + 1) / 2 * (actions.high - actions.low)

    return policy
