"""RL Coach's asynchronous training: worker processes around one parameter server of distributed TensorFlow 1.

Each worker has an environment and a copy of the network, sends its gradients to the server's weights and then copies
those. Coach's own launcher knows no end but numbers of steps of each worker, hence these few lines in its place.
"""

import multiprocessing
import queue
import tempfile

from rl_coach.base_parameters import DistributedTaskParameters, Frameworks
from rl_coach.core_types import EnvironmentSteps, RunPhase
from rl_coach.utils import get_open_port

from rlbench.probe.sampler import library_call

# The name that the network's first layer has in all workers: the server's weights, of which each has a copy.
SHARED = "global"
START_S = 120


def train_async(trial, probe, make_manager, tap):
    """Train in ``trial.workers`` processes until the budget is used up; return the weights that one of them ends with.

    ``make_manager(index)`` gives a worker's graph manager, ``tap(agent)`` tells the probe of it. Raises RuntimeError
    when a process has died.
    """
    fork = multiprocessing.get_context("fork")
    results, built, over = fork.Queue(), fork.Event(), fork.Event()
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
        probe.share(SHARED)
        with manager.phase_context(RunPhase.TRAIN):
            manager.reset_internal_state(force_environment_reset=True)
            while not probe.should_stop():
                manager.act(EnvironmentSteps(1))
                manager.train()
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
    probe.report("updates", sum(updates for _, updates in ended), "training_iteration of all workers")
    return ended[0][0]
