"""RLgraph's single-process IMPALA: actor threads and learner share one TensorFlow graph, environments are processes.

It has no worker to drive it: queue runners act as soon as the session is there, and ``update`` is the learner's loop.
"""

import numpy as np
import tensorflow.compat.v1 as tf1
from rlgraph.agents import SingleIMPALAAgent

from rlbench.probe.tf1 import tap_graph, tap_product

ACTIVATIONS = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


def train_impala(trial, probe, make_env, layers):
    """Train until the budget is used up and return the greedy policy.

    ``make_env``: the class of the environment, which is made in a process of its own. ``layers``: specs of the hidden
    layers. Raises RuntimeError when one of those processes has died: RLgraph would go on without it, or wait for ever.
    """
    samples = trial.batch_size if trial.algorithm == "ppo" else trial.n_steps * trial.n_envs
    length = max(1, samples // trial.workers)
    agent = build(trial, probe, make_env, layers, length)
    servers = [stepper.environment_server for stepper in agent.environment_steppers]
    session = agent.graph_executor.monitored_session._tf_sess()
    while not probe.should_stop():
        agent.update()
        dead = [server.process.pid for server in servers if not server.process.is_alive()]
        if dead:
            raise RuntimeError("the environment's process %d has died" % dead[0])
    policy = greedy(session, trial)
    # Actors first: RLgraph closes an environment's pipe while its actor still waits for it, and hangs.
    coordinator = agent.graph_executor.monitored_session._coordinated_creator.coord
    coordinator.request_stop()
    coordinator.join()
    counters = [stepper.time_step for stepper in agent.environment_steppers]
    counted, updates = session.run([counters, agent.graph_executor.global_training_timestep])
    probe.report("env_steps", sum(counted), "time-step of all actors")
    probe.report("updates", updates, "global training timestep")
    agent.terminate()
    return policy


def build(trial, probe, make_env, layers, length):
    """Return the agent: each update learns from ``workers`` records of ``length`` steps."""
    # A record ends with the observation that the next one begins with: it is there for its value only.
    learned = length * trial.workers
    tap_graph(lambda names: any("policy" in name for name in names), probe, rows=learned)
    _, _, observations, actions = trial.spaces()
    sample = make_env.spaces_of(observations, actions)
    agent = SingleIMPALAAgent(
        state_space=sample[0],
        action_space=sample[1],
        discount=trial.gamma,
        network_spec=layers,
        preprocessing_spec=[],
        environment_spec={"type": make_env, "trial": trial, "index": 0},
        feed_previous_action_through_nn=False,
        feed_previous_reward_through_nn=False,
        weight_baseline=trial.vf_coef,
        weight_entropy=trial.ent_coef,
        num_workers=trial.workers,
        worker_sample_size=length,
        update_spec={"batch_size": trial.workers},
        optimizer_spec={
            "type": "adam",
            "learning_rate": trial.learning_rate,
            "clip_grad_norm": trial.max_grad_norm,
        },
        execution_spec={
            "mode": "single",
            "seed": trial.seed,
            # An actor that waits for its environment holds a thread of TensorFlow's pool: with four on two cores all
            # waited for ever.
            "session_config": {"inter_op_parallelism_threads": 2 * trial.workers + 2},
        },
        auto_build=False,
    )
    for index, stepper in enumerate(agent.environment_steppers):
        server = stepper.environment_server
        server.spec["index"] = index
        server.step_flow = tapped(server.step_flow, probe)
    agent.build()
    return agent


def tapped(step_flow, probe):
    """Tell ``probe`` of the observation and the weights that an action comes from, before the environment has it."""

    def step(action):
        told = tap_product(action, probe.acted)
        with tf1.control_dependencies([told]):
            return step_flow(tf1.identity(action))

    return step


def greedy(session, trial):
    """Return the policy as a function: the agent has none, since its actors act inside the graph."""
    variables = session.graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)
    arrays = session.run([each for each in variables if "value-function" not in each.name])
    *hidden, head = zip(arrays[::2], arrays[1::2])

    def policy(observation):
        values = observation
        for kernel, bias in hidden:
            values = ACTIVATIONS[trial.activation](values @ kernel + bias)
        return int((values @ head[0] + head[1]).argmax())

    return policy
