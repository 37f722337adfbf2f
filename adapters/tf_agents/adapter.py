"""Drives TF-Agents: its step driver collects in a compiled loop, its learners train."""

import gc
import logging
import queue
import tempfile
import threading

import numpy as np
import tensorflow as tf
from tf_agents.agents import DqnAgent, PPOClipAgent, SacAgent
from tf_agents.agents.ddpg.critic_network import CriticNetwork
from tf_agents.agents.sac.tanh_normal_projection_network import TanhNormalProjectionNetwork
from tf_agents.drivers.dynamic_step_driver import DynamicStepDriver
from tf_agents.environments.batched_py_environment import BatchedPyEnvironment
from tf_agents.environments.parallel_py_environment import ParallelPyEnvironment
from tf_agents.environments.py_environment import PyEnvironment
from tf_agents.environments.tf_py_environment import TFPyEnvironment
from tf_agents.networks.actor_distribution_network import ActorDistributionNetwork
from tf_agents.networks.q_network import QNetwork
from tf_agents.networks.value_network import ValueNetwork
from tf_agents.policies.random_tf_policy import RandomTFPolicy
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.specs.array_spec import ArraySpec, BoundedArraySpec
from tf_agents.system import system_multiprocessing
from tf_agents.train.learner import Learner
from tf_agents.train.ppo_learner import PPOLearner
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory
from tf_agents.utils import common

from rlbench.probe.tftap import tap_batch, tap_optimizer


class Env(PyEnvironment):
    """One instrumented environment in TF-Agents' own interface: the step after an end is a reset."""

    def __init__(self, trial, index):
        self._env, self._seed = trial.make_env(index), trial.seed + index
        super().__init__()

    def observation_spec(self):
        return ArraySpec(self._env.observation_space.shape, np.float32)

    def action_spec(self):
        space = self._env.action_space
        if hasattr(space, "n"):
            return BoundedArraySpec((), np.int64, 0, int(space.n) - 1)
        return BoundedArraySpec(space.shape, np.float32, space.low, space.high)

    def _reset(self):
        seed, self._seed = self._seed, None
        return ts.restart(self._env.reset(seed=seed)[0])

    def _step(self, action):
        if self._current_time_step is None or self._current_time_step.is_last():
            return self.reset()
        observation, reward, terminated, truncated, _ = self._env.step(action)
        if terminated:
            return ts.termination(observation, reward)
        return (ts.truncation if truncated else ts.transition)(observation, reward)

    def close(self):
        self._env.close()


def tapped(batch_class, probe):
    """Return ``batch_class`` with an act tap: its step comes right after the policy has chosen."""

    class Tapped(batch_class):
        acting = None

        def _step(self, actions):
            if self.acting is not None:
                probe.acted(self.current_time_step().observation, self.acting.numpy())
            return super()._step(actions)

    return Tapped


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "dqn" and "n" not in vars(trial.spaces()[3]):
            return "DQN takes discrete actions only"
        if trial.algorithm == "sac" and "n" in vars(trial.spaces()[3]):
            return "SAC takes continuous actions only"
        return None

    def train(self, trial, probe):
        logging.getLogger().setLevel(logging.ERROR)
        tf.config.threading.set_intra_op_parallelism_threads(trial.threads)
        # One more than asked for: a thread waits for the next rollout while the others compute.
        tf.config.threading.set_inter_op_parallelism_threads(trial.threads + 1)
        tf.random.set_seed(trial.seed)
        makers = [lambda index=index: Env(trial, index) for index in range(trial.n_envs)]
        if trial.mode == "sync":
            batch = tapped(BatchedPyEnvironment, probe)([make() for make in makers], multithreading=False)
        else:
            system_multiprocessing.enable_interactive_mode()
            batch = tapped(ParallelPyEnvironment, probe)(makers)
        env = TFPyEnvironment(batch)
        agent, network, optimizer = getattr(self, "_agent_" + trial.algorithm)(trial, env)
        agent.initialize()
        kernel = network.trainable_weights[0]
        tap_optimizer(optimizer, kernel, probe)
        train = agent.train

        def tapped_train(experience, weights=None):
            # With a time axis: [:, 0] is the sample, [:, 1] (replay only) what came after it.
            tap_batch(experience.observation[:, 0], probe)
            return train(experience, weights=weights)

        agent.train = tapped_train
        loop = self._train_ppo if trial.algorithm == "ppo" else self._train_replay
        loop(trial, probe, env, batch, agent, kernel)
        batch.close()
        act = common.function(agent.policy.action)
        return lambda observation: act(ts.restart(tf.constant(observation[None]), 1)).action.numpy()[0]

    def _train_ppo(self, trial, probe, env, batch, agent, kernel):
        rollout = trial.n_steps * trial.n_envs
        # Every end of an episode adds a frame that is no step.
        buffer = TFUniformReplayBuffer(agent.collect_data_spec, trial.n_envs, max_length=3 * trial.n_steps)
        collect = _driver(env, agent.collect_policy, buffer, rollout)
        if trial.variant == "whole_rollouts":
            learn, close = _whole_rollouts(trial, env, agent)
        else:
            learn, close = _ppo_learner(trial, agent)
        batch.acting = kernel
        while not probe.should_stop():
            collect.run()
            learn(buffer.gather_all())
            buffer.clear()
        close()

    def _train_replay(self, trial, probe, env, batch, agent, kernel):
        size = trial.buffer_size // trial.n_envs
        buffer = TFUniformReplayBuffer(agent.collect_data_spec, trial.n_envs, max_length=size)
        warm_up = RandomTFPolicy(env.time_step_spec(), env.action_spec(), info_spec=())
        _driver(env, warm_up, buffer, trial.learning_starts).run()
        collect = _driver(env, agent.collect_policy, buffer, trial.train_freq)
        data = buffer.as_dataset(sample_batch_size=trial.batch_size, num_steps=2)
        counter = agent.train_step_counter
        learner = Learner(tempfile.mkdtemp(), counter, agent, lambda: data, summary_interval=0)
        batch.acting = kernel
        while not probe.should_stop():
            collect.run()
            learner.run(iterations=trial.gradient_steps)

    def _agent_ppo(self, trial, env):
        network = {"fc_layer_params": trial.net_arch, "activation_fn": _activation(trial)}
        actor = ActorDistributionNetwork(env.observation_spec(), env.action_spec(), **network)
        optimizer = tf.keras.optimizers.Adam(trial.learning_rate)
        agent = PPOClipAgent(
            env.time_step_spec(),
            env.action_spec(),
            optimizer=optimizer,
            actor_net=actor,
            value_net=ValueNetwork(env.observation_spec(), **network),
            importance_ratio_clipping=trial.clip_range,
            lambda_value=trial.gae_lambda,
            discount_factor=trial.gamma,
            entropy_regularization=trial.ent_coef,
            value_pred_loss_coef=trial.vf_coef,
            gradient_clipping=trial.max_grad_norm,
            num_epochs=1,
            use_gae=True,
            use_td_lambda_return=True,
            normalize_rewards=False,
            normalize_observations=False,
            compute_value_and_advantage_in_train=False,
            update_normalizers_in_train=False,
            train_step_counter=tf.Variable(0, dtype=tf.int64),
        )
        return agent, actor, optimizer

    def _agent_dqn(self, trial, env):
        network = QNetwork(
            env.observation_spec(),
            env.action_spec(),
            fc_layer_params=trial.net_arch,
            activation_fn=_activation(trial),
        )
        optimizer = tf.keras.optimizers.Adam(trial.learning_rate)
        counter = tf.Variable(0, dtype=tf.int64)

        def epsilon():
            steps = trial.learning_starts + tf.cast(counter, tf.float32) * trial.train_freq / trial.gradient_steps
            done = tf.minimum(1.0, steps / max(1.0, trial.exploration_fraction * trial.env_steps))
            return 1.0 + done * (trial.exploration_final_eps - 1.0)

        agent = DqnAgent(
            env.time_step_spec(),
            env.action_spec(),
            q_network=network,
            optimizer=optimizer,
            epsilon_greedy=epsilon,
            target_update_period=max(1, trial.target_update_interval * trial.gradient_steps // trial.train_freq),
            td_errors_loss_fn=common.element_wise_huber_loss,
            gamma=trial.gamma,
            train_step_counter=counter,
        )
        return agent, network, optimizer

    def _agent_sac(self, trial, env):
        actor = ActorDistributionNetwork(
            env.observation_spec(),
            env.action_spec(),
            fc_layer_params=trial.net_arch,
            activation_fn=_activation(trial),
            continuous_projection_net=TanhNormalProjectionNetwork,
        )
        critic = CriticNetwork(
            (env.observation_spec(), env.action_spec()),
            joint_fc_layer_params=trial.net_arch,
            activation_fn=_activation(trial),
        )
        actor_optimizer, critic_optimizer, alpha_optimizer = (
            tf.keras.optimizers.Adam(trial.learning_rate) for _ in range(3)
        )
        agent = SacAgent(
            env.time_step_spec(),
            env.action_spec(),
            critic_network=critic,
            actor_network=actor,
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
            alpha_optimizer=alpha_optimizer,
            target_update_tau=trial.tau,
            gamma=trial.gamma,
            train_step_counter=tf.Variable(0, dtype=tf.int64),
        )
        # The agent has made itself an optimizer of Keras' older kind from the one it was given.
        return agent, actor, agent._actor_optimizer


def _activation(trial):
    return tf.keras.activations.tanh if trial.activation == "tanh" else tf.keras.activations.relu


def _driver(env, policy, buffer, steps):
    driver = DynamicStepDriver(env, policy, observers=[buffer.add_batch], num_steps=steps)
    # The loop is meant to be compiled; its own run() stays in front.
    driver._run_fn = common.function(driver._run_fn)
    return driver


def _ppo_learner(trial, agent):
    """PPO as the library ships it: PPOLearner, and rollouts that overlap by one frame, as in its examples."""
    held, learner, last, waiting = [], None, None, (queue.Queue(), queue.Queue())
    closed = threading.Event()

    def dataset(rollouts, spec):
        def generate():
            # Blocks until there is a new rollout: the data set asks ahead, and would take the old one again.
            yield last if closed.is_set() else rollouts.get(), ()

        return tf.data.Dataset.from_generator(generate, output_signature=(spec, ()))

    def learn(frames):
        nonlocal learner, last
        if held:
            frames = tf.nest.map_structure(lambda old, new: tf.concat([old, new], 1), held.pop(), frames)
        held.append(tf.nest.map_structure(lambda each: each[:, -1:], frames))
        last = frames = agent.preprocess_sequence(frames)
        if learner is None:
            spec = tf.nest.map_structure(
                lambda each: tf.TensorSpec([trial.n_envs, None, *each.shape[2:]], each.dtype), frames
            )
            learner = PPOLearner(
                tempfile.mkdtemp(),
                agent.train_step_counter,
                agent,
                experience_dataset_fn=lambda: dataset(waiting[0], spec),
                normalization_dataset_fn=lambda: dataset(waiting[1], spec),
                num_samples=1,
                num_epochs=trial.n_epochs,
                minibatch_size=trial.batch_size,
                shuffle_buffer_size=trial.n_steps * trial.n_envs,
                summary_interval=0,
            )
        for rollouts in waiting:
            rollouts.put(frames)
        learner.run()

    def close():
        # The data sets still ask ahead: let them have something, and end them before the interpreter ends.
        nonlocal learner
        closed.set()
        for rollouts in waiting:
            rollouts.put(last)
        learner = None
        gc.collect()

    return learn, close


def _whole_rollouts(trial, env, agent):
    """PPO with the plain Learner, fed with just the frames that can be learned from: nothing is left over."""
    size = trial.n_steps * trial.n_envs
    learner = Learner(tempfile.mkdtemp(), agent.train_step_counter, agent, summary_interval=0)

    def learn(frames):
        # One more frame, for its value: it is not learned from.
        now = env.current_time_step()
        step = agent.collect_policy.action(now)
        bootstrap = trajectory.from_transition(now, step, now)
        frames = tf.nest.map_structure(lambda old, new: tf.concat([old, new[:, None]], 1), frames, bootstrap)
        frames = agent.preprocess_sequence(frames)
        usable = tf.concat([~frames.is_boundary()[:, :-1], tf.zeros([trial.n_envs, 1], tf.bool)], 1)
        where = tf.where(usable)[:size]
        samples = tf.nest.map_structure(lambda each: tf.gather_nd(each, where), frames)
        data = tf.data.Dataset.from_tensor_slices((samples, ()))
        data = data.shuffle(size).repeat(trial.n_epochs).batch(1).batch(trial.batch_size, drop_remainder=True)
        learner.run(trial.n_epochs * size // trial.batch_size, iter(data))

    return learn, lambda: None
