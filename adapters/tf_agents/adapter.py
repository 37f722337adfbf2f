"""Drives TF-Agents: its step driver collects in a compiled loop, its learners train.

Mode "sync" has all environments in this process, "workers" one process for each; "async" is its distributed layout,
PPO over Reverb (distributed.py).
"""

import gc
import logging
import queue
import tempfile
import threading

import agents
import distributed
import tensorflow as tf
from environment import Env, tapped
from tf_agents.drivers.dynamic_step_driver import DynamicStepDriver
from tf_agents.environments.batched_py_environment import BatchedPyEnvironment
from tf_agents.environments.parallel_py_environment import ParallelPyEnvironment
from tf_agents.environments.tf_py_environment import TFPyEnvironment
from tf_agents.policies.random_tf_policy import RandomTFPolicy
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.system import system_multiprocessing
from tf_agents.train.learner import Learner
from tf_agents.train.ppo_learner import PPOLearner
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory
from tf_agents.utils import common

from rlbench.probe.tftap import tap_batch, tap_optimizer


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "dqn" and "n" not in vars(trial.spaces()[3]):
            return "DQN takes discrete actions only"
        if trial.algorithm == "sac" and "n" in vars(trial.spaces()[3]):
            return "SAC takes continuous actions only"
        if trial.mode == "async" and trial.algorithm != "ppo":
            return "its distributed layout is wired for PPO"
        if trial.mode == "async" and trial.variant:
            return "its variant is for collecting and learning in turn"
        return None

    def train(self, trial, probe):
        logging.getLogger().setLevel(logging.ERROR)
        tf.config.threading.set_intra_op_parallelism_threads(trial.threads)
        # One more than asked for: a thread waits for the next rollout while the others compute.
        tf.config.threading.set_inter_op_parallelism_threads(trial.threads + 1)
        tf.random.set_seed(trial.seed)
        if trial.mode == "async":
            return self._train_async(trial, probe)
        makers = [lambda index=index: Env(trial, index) for index in range(trial.n_envs)]
        if trial.mode == "sync":
            batch = tapped(BatchedPyEnvironment, probe)([make() for make in makers], multithreading=False)
        else:
            system_multiprocessing.enable_interactive_mode()
            batch = tapped(ParallelPyEnvironment, probe)(makers)
        env = TFPyEnvironment(batch)
        agent, kernel = _tapped_agent(trial, probe, env)
        loop = self._train_ppo if trial.algorithm == "ppo" else self._train_replay
        loop(trial, probe, env, batch, agent, kernel)
        batch.close()
        probe.report("updates", agent.train_step_counter.numpy(), "train_step")
        return _greedy(agent)

    def _train_async(self, trial, probe):
        agent, _ = _tapped_agent(trial, probe, TFPyEnvironment(Env(trial, 0)))
        distributed.train(trial, probe, agent)
        probe.report("updates", agent.train_step_counter.numpy(), "train_step")
        return _greedy(agent)

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


def _tapped_agent(trial, probe, env):
    """Return an agent whose optimizer steps and batches are tapped, and its policy's first kernel."""
    agent, network, optimizer = getattr(agents, trial.algorithm)(trial, env)
    agent.initialize()
    kernel = network.trainable_weights[0]
    tap_optimizer(optimizer, kernel, probe)
    train = agent.train

    def tapped_train(experience, weights=None):
        # With a time axis: [:, 0] is the sample, [:, 1] (replay only) what came after it.
        tap_batch(experience.observation[:, 0], probe)
        return train(experience, weights=weights)

    agent.train = tapped_train
    return agent, kernel


def _greedy(agent):
    act = common.function(agent.policy.action)
    return lambda observation: act(ts.restart(tf.constant(observation[None]), 1)).action.numpy()[0]


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
