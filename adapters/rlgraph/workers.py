"""RLgraph's SyncBatchExecutor: Ray actors with copies of the agent collect rollouts, in step with PPO in this process.

It was written for a Ray of 2019. What that one had and today's has not is replaced here, in this process and in the
actors, which import this module; the library's files stay as they are.
"""

import os
import sys
import types

import shim

# isort: split
import ray
import rlgraph

from rlbench.probe import children
from rlbench.probe.sampler import library_call
from rlbench.probe.tf1 import tap_graph

# RLgraph's Ray modules import Ray only if this says so when they are imported.
rlgraph.DISTRIBUTED_BACKEND = "ray"
method = ray.method
# Its old name is refused where a class is defined; pyarrow is for compressed states, which need functions that it lost.
ray.method = lambda num_return_vals: method(num_returns=num_return_vals)
sys.modules["pyarrow"] = types.ModuleType("pyarrow")
try:
    from rlgraph.execution.ray.ray_policy_worker import RayPolicyWorker
    from rlgraph.execution.ray.sync_batch_executor import SyncBatchExecutor
finally:
    ray.method = method
    del sys.modules["pyarrow"]


def is_policy(names):
    """Tell the policy's variables from the value function's, by their names."""
    return any("policy" in name for name in names)


class Envs:
    """Makes the environments of one actor, one with each call; their numbers begin with ``first``."""

    def __init__(self, trial, make, first):
        self.trial, self.make, self._next = trial, make, first

    def __call__(self):
        env = self.make(self.trial, self._next)
        self._next += 1
        return env

    def beginning(self, first):
        """Return the same with other numbers."""
        return Envs(self.trial, self.make, first)


class TappedWorker(RayPolicyWorker):
    """Tells this process's taps what its agent acts on, and with which weights."""

    _read = _acting = None

    def setup_agent(self, agent_config, worker_spec):
        if not children.tapped():
            return super().setup_agent(agent_config, worker_spec)
        taps = children.taps()
        kernels = tap_graph(is_policy, taps)
        agent = super().setup_agent(agent_config, worker_spec)
        self._read = agent.graph_executor.monitored_session._tf_sess().make_callable(kernels[0])
        get_action = agent.get_action

        def tapped_action(states, **more):
            taps.acted(states, self._acting)
            return get_action(states=states, **more)

        agent.get_action = tapped_action
        return agent

    def set_weights(self, weights):
        super().set_weights(weights)
        if self._read:
            # Read back, not taken from what was sent: nobody looks whether an actor could take it.
            self._acting = self._read()


class Executor(SyncBatchExecutor):
    """Starts today's Ray, and actors with environments and random numbers of their own."""

    def ray_init(self):
        # Its actors import this folder's modules.
        os.environ["PYTHONPATH"] += os.pathsep + os.path.dirname(shim.__file__)
        library_call(ray.init, num_cpus=self.num_sample_workers, include_dashboard=False, log_to_driver=False)

    def create_remote_workers(self, cls, num_actors, agent_config, worker_spec, envs, *args):
        execution, made = agent_config["execution_spec"], []
        for index in range(num_actors):
            spec = {**worker_spec, "execution_spec": {**execution, "seed": execution["seed"] + 1000 * (1 + index)}}
            own = envs.beginning(index * worker_spec["num_worker_environments"])
            made += super().create_remote_workers(TappedWorker, 1, agent_config, spec, own, *args)
        return made


def train_apart(trial, probe, make_env, agent_config):
    """Train until the budget is used up and return the learner's agent.

    ``make_env``: the class of the environment. ``agent_config``: the agent's settings. Raises Ray's error when an actor
    has died.
    """
    tap_graph(is_policy, probe)
    rollout = trial.n_steps * trial.n_envs
    agent_config["execution_spec"]["ray_spec"] = {
        "executor_spec": {"num_sample_workers": trial.workers, "num_worker_samples": rollout // trial.workers},
        "worker_spec": {"num_worker_environments": trial.n_envs // trial.workers, "compress_states": False},
    }
    steps = 0
    try:
        executor = Executor(Envs(trial, make_env, 0), agent_config)
        # execute_workload, which calls this, sums up after each call, and fails while an environment has ended no
        # episode.
        while not probe.should_stop():
            steps += executor._execute_step()[0]
    finally:
        library_call(ray.shutdown)
    probe.report("env_steps", steps, "worker steps of all rollouts")
    return executor.local_agent
