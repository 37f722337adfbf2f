"""RL Coach's training by several processes: workers around one parameter server of distributed TensorFlow 1.

Each worker has an environment and a copy of the network, sends its gradients to the server and then copies its weights.
Asynchronous (A3C), each does so on its own; in step (PPO), the server takes the mean of all workers' gradients. Coach's
own launcher knows no end but numbers of steps of each worker, hence these few lines in its place.
"""

import multiprocessing
import queue
import tempfile
import threading

from rl_coach.base_parameters import DistributedTaskParameters, Frameworks
from rl_coach.core_types import EnvironmentSteps, RunPhase
from rl_coach.utils import get_open_port

from rlbench.probe.sampler import library_call

# The name that the network's first layer has in all workers: the server's weights, of which each has a copy.
SHARED = "global"
START_S = 120
# How far apart workers in step may be at the end of a round: they wait for each other at every update.
APART_S = 45


def train_apart(trial, probe, make_manager, tap):
    """Train in ``trial.workers`` processes until the budget is used up; return the weights that one of them ends with.

    ``make_manager(index)`` gives a worker's graph manager, ``tap(agent)`` tells the probe of it. Raises RuntimeError
    when a process has died, or workers in step are so no more.
    """
    fork = multiprocessing.get_context("fork")
    results, built, over = fork.Queue(), fork.Event(), fork.Event()
    # In step, all have to end after the same update: one that is missing is waited for without end.
    last, round_over = fork.Event(), fork.Barrier(trial.workers)
    rollout = trial.n_steps * trial.n_envs
    server, *hosts = ["localhost:%d" % get_open_port() for _ in range(trial.workers + 1)]

    def task(job, index):
        return DistributedTaskParameters(
            framework_type=Frameworks.tensorflow,
            parameters_server_hosts=server,
            worker_hosts=",".join(hosts),
            job_type=job,
            task_index=index,
            num_tasks=trial.workers,
            num_training_tasks=trial.workers,
            use_cpu=True,
            experiment_path=tempfile.mkdtemp(),
            seed=1000 * trial.seed + index,
        )

    def serve():
        make_manager(0).create_graph(task("ps", 0))

    def work(index):
        manager = make_manager(index)
        if index == 0:
            create = manager.create_session

            def create_session(**settings):
                built.set()
                create(**settings)

            manager.create_session = create_session
        manager.create_graph(task("worker", index))
        agent = manager.get_agent()
        tap(agent)
        if trial.mode == "async":
            probe.share(SHARED)
        with manager.phase_context(RunPhase.TRAIN):
            manager.reset_internal_state(force_environment_reset=True)
            rounds = 0
            while not (probe.should_stop() if trial.mode == "async" else last.is_set()):
                manager.act(EnvironmentSteps(1))
                manager.train()
                if trial.mode == "workers" and agent.training_iteration > rounds:
                    rounds = agent.training_iteration
                    # The end is an update's: another round must not go far over the budget.
                    if index == 0 and (probe.should_stop() or probe.steps() + rollout > trial.env_steps):
                        last.set()
                    try:
                        round_over.wait(APART_S)
                    except threading.BrokenBarrierError:
                        results.put("the workers fell out of step: one waits for the others, which wait for it")
                        over.wait()
        manager.close()
        network = agent.networks["main"].online_network
        results.put((network.sess.run(network.weights), agent.training_iteration))
        # A session wants the servers of all workers.
        over.wait()

    processes = [fork.Process(target=serve)]
    processes += [fork.Process(target=work, args=(index,)) for index in range(trial.workers)]
    try:
        for number, process in enumerate(processes):
            # Workers that come before the first one's session wait 30 seconds before they look for it again.
            if number == 2 and not built.wait(START_S):
                raise RuntimeError("the first worker built no graph in %d s" % START_S)
            process.start()
        ended = []
        while len(ended) < trial.workers:
            try:
                ended.append(library_call(results.get, timeout=1))
                if isinstance(ended[-1], str):
                    raise RuntimeError(ended[-1])
            except queue.Empty:
                dead = [each for each in processes if each.exitcode]
                if dead:
                    what = "process %d ended with code %d" % (dead[0].pid, dead[0].exitcode)
                    raise RuntimeError(what) from None
        over.set()
        for process in processes[1:]:
            process.join(10)
    finally:
        # The parameter server never ends by itself.
        for process in multiprocessing.active_children():
            process.kill()
    if trial.mode == "async":
        probe.report("updates", sum(updates for _, updates in ended), "training_iteration of all workers")
    else:
        note = "training_iteration of one worker: all steps on one rollout are one"
        probe.report("updates", ended[0][1], note)
    return ended[0][0]
