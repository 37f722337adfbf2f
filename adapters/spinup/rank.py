"""One MPI process of Spinning Up's data-parallel PPO: ``rank.py TRIAL_FOLDER SHARED_FOLDER DEADLINE``.

Each steps an environment and has a copy of the networks; the library averages the gradients over all. ``DEADLINE`` is
a moment of the probe's clock, or "none".
"""

import json
import sys
import traceback
from pathlib import Path

import torch
from launch import FAILED, WEIGHTS
from mpi4py import MPI
from training import train

from rlbench.probe import clock
from rlbench.probe.trial import Trial

# As the library tells the processes' random numbers apart.
SEEDS_APART = 10_000


class Deadline:
    """Says before a step whether to stop: in all processes before the same one, the first of an epoch.

    One that went on alone would wait for the others without end.
    """

    def __init__(self, world, deadline_ns, steps_per_epoch):
        self._world, self._deadline_ns, self._steps_per_epoch = world, deadline_ns, steps_per_epoch
        self._asked = 0

    def __call__(self):
        first = self._asked % self._steps_per_epoch == 0
        self._asked += 1
        return first and self._world.bcast(clock.now_ns() > self._deadline_ns)


def never():
    """Leave it to the library, which ends after a number of steps."""
    return False


def main(trial_folder, shared_folder, deadline):
    """Be the process that mpiexec has made this one."""
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    try:
        with open(Path(trial_folder) / "job.json") as file:
            trial = Trial(json.load(file))
        steps_per_epoch = trial.n_steps * trial.n_envs // trial.workers
        stop = never if deadline == "none" else Deadline(world, int(deadline), steps_per_epoch)
        env = trial.make_env(rank)
        model = train(trial, env, trial.seed + SEEDS_APART * rank, stop, shared_folder)
        env.close()
        if rank == 0:
            torch.save(model.state_dict(), Path(shared_folder) / WEIGHTS)
    except Exception as error:
        traceback.print_exc()
        text = "MPI process %d failed: %s: %s" % (rank, type(error).__name__, error)
        (Path(shared_folder) / (FAILED % rank)).write_text(text)
        # The others would wait for it without end.
        world.Abort(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
