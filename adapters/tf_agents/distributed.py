"""TF-Agents' distributed layout with PPO: a learner, a Reverb server, and actor processes that never wait for it.

As in the library's distributed examples: actors send trajectories to a Reverb table and fetch variables from another;
the learner takes the trajectories in order, and the table drops the oldest when it is full.
"""

import multiprocessing
import tempfile

import agents
import reverb
import tensorflow as tf
from environment import Env
from tf_agents.environments.tf_py_environment import TFPyEnvironment
from tf_agents.experimental.distributed import ReverbVariableContainer
from tf_agents.experimental.distributed import reverb_variable_container as variables_in_reverb
from tf_agents.policies.py_tf_eager_policy import PyTFEagerPolicy
from tf_agents.replay_buffers.reverb_replay_buffer import ReverbReplayBuffer
from tf_agents.replay_buffers.reverb_utils import ReverbTrajectorySequenceObserver
from tf_agents.train.actor import Actor
from tf_agents.train.ppo_learner import PPOLearner

from rlbench.probe import children
from rlbench.probe.sampler import library_call

# PPOLearner reads everything twice: to learn from it, and for normalisation, which is off here.
TABLES = ("training", "normalization")
# What one step of the environment and one request may take.
LAST_STEP_S = 10.0


class TappedPolicy(PyTFEagerPolicy):
    """Reports what it acts on, and the variable ``kernel`` of the weights that act."""

    kernel = None

    def _action(self, time_step, policy_state, seed=None):
        children.taps().acted(time_step.observation, self.kernel.numpy())
        return super()._action(time_step, policy_state, seed)


def train(trial, probe, agent):
    """Train ``agent`` until the budget is used up."""
    shared = _shared(agent)
    server = library_call(
        reverb.Server, [*(_table(name, trial.n_envs) for name in TABLES), _variable_table(shared)], port=None
    )
    address = "localhost:%d" % server.port
    container = ReverbVariableContainer(address)
    container.push(shared)
    spawn = multiprocessing.get_context("spawn")
    stopping = spawn.Event()
    actors = [
        spawn.Process(target=act, args=(trial, index, address, stopping), name="actor %d" % index, daemon=True)
        for index in range(trial.workers)
    ]
    for actor in actors:
        library_call(actor.start)
    try:
        learner = _learner(trial, agent, address)
        while not probe.should_stop():
            for actor in actors:
                # The learner would go on with the others.
                if actor.exitcode is not None:
                    raise RuntimeError("%s died (exit code %d)" % (actor.name, actor.exitcode))
            learner.run()
            container.push(shared)
        stopping.set()
        for actor in actors:
            library_call(actor.join, LAST_STEP_S)
    finally:
        for actor in actors:
            actor.kill()
            library_call(actor.join)
        library_call(server.stop)


def act(trial, index, address, stopping):
    """Be actor ``index``: step one environment with a copy of the policy until told to stop."""
    tf.config.threading.set_intra_op_parallelism_threads(trial.threads)
    tf.config.threading.set_inter_op_parallelism_threads(trial.threads)
    tf.random.set_seed(trial.seed + 1000 * (1 + index))
    env = Env(trial, index)
    agent, network, _ = agents.ppo(trial, TFPyEnvironment(env))
    agent.initialize()
    policy = (TappedPolicy if children.tapped() else PyTFEagerPolicy)(agent.collect_policy, use_tf_function=True)
    policy.kernel = network.trainable_weights[0]
    # Sequences overlap by the frame that PPO cannot learn from, as its return is not known.
    observer = ReverbTrajectorySequenceObserver(
        reverb.Client(address), TABLES, sequence_length=trial.n_steps + 1, stride_length=trial.n_steps
    )
    actor = Actor(
        env,
        policy,
        agent.train_step_counter,
        steps_per_run=trial.batch_size,
        observers=[observer],
    )
    container, shared = ReverbVariableContainer(address), _shared(agent)
    while not stopping.is_set():
        container.update(shared)
        actor.run()
    env.close()


def _shared(agent):
    return {
        variables_in_reverb.POLICY_KEY: agent.collect_policy.variables(),
        variables_in_reverb.TRAIN_STEP_KEY: agent.train_step_counter,
    }


def _table(name, sequences):
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
        max_size=sequences,
        max_times_sampled=1,
    )


def _variable_table(shared):
    return reverb.Table(
        name=variables_in_reverb.DEFAULT_TABLE,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
        max_size=1,
        signature=tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), shared),
    )


def _learner(trial, agent, address):
    def dataset(table):
        buffer = ReverbReplayBuffer(
            agent.collect_data_spec,
            table,
            sequence_length=trial.n_steps + 1,
            server_address=address,
            max_cycle_length=1,
            # More would take sequences out of order.
            num_workers_per_iterator=1,
        )
        return buffer.as_dataset(sample_batch_size=trial.n_envs, sequence_preprocess_fn=agent.preprocess_sequence)

    return PPOLearner(
        tempfile.mkdtemp(),
        agent.train_step_counter,
        agent,
        experience_dataset_fn=lambda: dataset(TABLES[0]),
        normalization_dataset_fn=lambda: dataset(TABLES[1]),
        num_samples=1,
        num_epochs=trial.n_epochs,
        minibatch_size=trial.batch_size,
        shuffle_buffer_size=trial.n_steps * trial.n_envs,
        summary_interval=0,
    )
