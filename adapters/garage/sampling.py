"""Garage's samplers, in this process, in forked processes or in Ray actors, and a trainer that stops at the budget."""

import multiprocessing
import os

import ray
import shim
from garage.sampler import FragmentWorker, LocalSampler, MultiprocessingSampler, RaySampler, VecWorker
from garage.trainer import Trainer

from rlbench.probe.sampler import library_call


class Stop(Exception):
    """Raised before a rollout when the budget is used up: the algorithms end on whole epochs only."""


class SeparateVecWorker(VecWorker):
    """VecWorker keeps views of the array that it writes the next observations into; a list has none."""

    def step_episode(self):
        self._prev_obs = list(self._prev_obs)
        return super().step_episode()


def make_sampler(trial, agent, envs, steps):
    """Return a sampler of rollouts of ``steps`` steps of each of ``envs``, which its workers share evenly."""
    n_workers = 1 if trial.mode == "sync" else trial.workers
    n_envs = trial.n_envs // n_workers
    kind, worker = LocalSampler, {"vecworker": VecWorker, "fixed": SeparateVecWorker}.get(trial.variant, FragmentWorker)
    if trial.mode == "workers":
        kind = MultiprocessingSampler if trial.variant != "ray" else RaySampler
    if kind is RaySampler:
        # Its actors import this folder's modules, and Garage, which needs the shim first.
        os.environ["PYTHONPATH"] += os.pathsep + os.path.dirname(shim.__file__)
        library_call(
            ray.init,
            num_cpus=n_workers,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"worker_process_setup_hook": "shim.install"},
        )
    return kind(
        agents=agent,
        envs=[envs[first : first + n_envs] for first in range(0, trial.n_envs, n_envs)],
        max_episode_length=envs[0].spec.max_episode_length,
        seed=trial.seed,
        n_workers=n_workers,
        worker_class=worker,
        worker_args={"n_envs": n_envs, **({"timesteps_per_call": steps} if worker is FragmentWorker else {})},
    )


def end(sampler):
    """Leave no process of ``sampler`` behind, however training has ended."""
    if isinstance(sampler, RaySampler):
        library_call(ray.shutdown)
    for process in multiprocessing.active_children():
        process.kill()
        process.join()


class BudgetTrainer(Trainer):
    """A trainer that ends before the rollout that would exceed the budget, and saves nothing."""

    probe = None

    def obtain_episodes(self, *args, **kwargs):
        if self.probe.should_stop():
            raise Stop
        if isinstance(self._sampler, MultiprocessingSampler):
            # It goes on with those that are left.
            for process in self._sampler._workers:
                if process.exitcode is not None:
                    raise RuntimeError("a worker process of the sampler died (exit code %d)" % process.exitcode)
        return super().obtain_episodes(*args, **kwargs)

    def save(self, epoch):
        pass
