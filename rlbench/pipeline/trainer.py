"""The trainer: starts actors and learners, watches them, ends them, and says what became of the run."""

import sys
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np
import torch

from rlbench.pipeline.actor import Collector, rollout_dtype, run_actor
from rlbench.pipeline.board import FIELDS, Board
from rlbench.pipeline.buffer import ShardedBuffer
from rlbench.pipeline.learner import Learner, overtaken, run_learner
from rlbench.pipeline.lora import base_last
from rlbench.pipeline.policy import ActorCritic
from rlbench.pipeline.processes import Crew, PipelineError
from rlbench.pipeline.sync import FlatBuffer, WeightPublisher, WeightReader

_LOOK_S = 0.01
_STOP_S = 60.0
_LOST = ": the run ends, its weights are lost"


@dataclass
class Result:
    """What a run made: the trained ``policy`` and its own account of the run.

    Lags are in optimizer steps, over all consumptions of samples. ``learned`` are samples that were learned from,
    ``dropped`` those that were not, because they were too stale or overwritten; the rest of ``env_steps`` was under
    way when the run ended, ``overtaken`` of them by newer samples. ``sent_bytes`` are those of the weights that were
    published to actors, the first ones aside. ``actor_wait`` is the share of the actors' time
    that they waited for the learner or for room. ``deaths`` and ``silences`` are sentences about processes that died,
    or did not move for a while, while the rest went on.
    """

    policy: ActorCritic
    env_steps: int
    updates: int
    seconds: float
    lag_mean: float
    lag_max: int
    learned: int
    dropped: int
    overtaken: int
    sent_bytes: int
    actor_wait: float
    deaths: list = field(default_factory=list)
    silences: list = field(default_factory=list)


def train(make_env, observation_dim, distribution, settings, should_stop=lambda: False, note=None):
    """Train an ActorCritic on environments ``make_env(0)`` .. ``make_env(n_envs - 1)`` and return a Result.

    Environments follow Gymnasium's API and give float32 vectors (``observation_dim``); ``distribution`` is that of
    their actions. ``should_stop()`` is asked now and then and may end the run before its budget. ``note(crew)`` is
    called once all processes run (see Crew). With start_method "spawn", ``make_env`` must be picklable.

    A dead actor is named on standard error and the rest goes on, as long as actors and learner do not take turns and
    every learner has one left. Raises PipelineError when they do, or when a learner died; none is left running.
    """
    torch.manual_seed(settings.seed)
    policy = ActorCritic(observation_dim, distribution, settings.net_arch, settings.activation, settings.lora_ranks)
    if settings.mode == "sync":
        return _in_process(make_env, observation_dim, policy, settings, should_stop)
    dtype = rollout_dtype(settings.n_steps, settings.envs_per_actor, observation_dim, distribution)
    buffer = ShardedBuffer(settings.actors, settings.depth, dtype, settings.overwrite)
    weights = FlatBuffer(base_last(policy)[0], attach=False)
    publisher = WeightPublisher(weights.flat.numel())
    publisher.publish(weights.pack(), 0)
    board = Board(settings.actors, settings.learners)
    crew = Crew(board, settings.start_method)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for i in range(settings.actors):
                crew.start("actor %d" % i, run_actor, i, make_env, policy, settings, buffer, publisher, board)
            for i in range(settings.learners):
                store = folder + "/store"
                crew.start("learner %d" % i, run_learner, i, policy, settings, buffer, publisher, board, store)
            if note is not None:
                note(crew)
            deaths, silences = _watch(crew, board, settings, should_stop)
        except BaseException:
            crew.kill()
            raise
        crew.end()
    if len({board.learner(i)["checksum"][0] for i in range(settings.learners)}) > 1:
        raise PipelineError("the learners ended with different weights: the last broadcast did not reach all of them")
    version = WeightReader(publisher).read(weights.flat)
    weights.unpack()
    overwritten, left = _leftovers(buffer, max(board.learner(i)["newest_ns"][0] for i in range(settings.learners)))
    overwritten *= settings.n_steps * settings.envs_per_actor
    return _result(policy, board, settings, begun, version, overwritten, left, deaths, silences)


def _leftovers(buffer, newest_ns):
    """Return how many rollouts were overwritten, and how many samples that wait are older than ``newest_ns``."""
    overwritten, left = 0, 0
    for shard in (buffer.shard(i) for i in range(buffer.shards)):
        waiting = True
        while waiting:
            found = shard.get()
            left += overtaken(found, newest_ns)
            shard.release()
            waiting = len(found)
        overwritten += shard.dropped
    return overwritten, left


def _watch(crew, board, settings, should_stop):
    """Look after the processes until the learners are done; return sentences about the dead, and about the silent."""
    deaths, silences, stopped_at = [], [], None
    movement = _Movement(board, settings.silent_s)
    while crew.running("learner"):
        for name, sentence in crew.wait(_LOOK_S):
            left = _left_after(name, sentence, crew, settings)
            deaths.append(sentence)
            print("%s: %d actors go on" % (sentence, left), file=sys.stderr, flush=True)
        for sentence in movement.silent(crew):
            silences.append(sentence)
            print(sentence, file=sys.stderr, flush=True)
        steps = sum(board.actor(i)["env_steps"][0] for i in range(settings.actors))
        spent = settings.mode == "async" and steps >= settings.env_steps
        if stopped_at is None and (spent or should_stop()):
            board.stop[0] = 1
            stopped_at = time.monotonic()
        if stopped_at is not None and time.monotonic() - stopped_at > _STOP_S:
            raise PipelineError("%s did not stop within %d s" % (crew.running("learner")[0], _STOP_S))
    for name, sentence in crew.wait(0):
        if name.startswith("learner"):
            raise PipelineError(sentence + _LOST)
    board.stop[0] = 1
    return deaths, silences


class _Movement:
    """Tells once of each process that does nothing, not even wait: stopped, or stuck in an environment's step."""

    def __init__(self, board, after_s):
        self._board, self._after_s = board, after_s
        self._moved = {}

    def silent(self, crew):
        """Return a sentence for each running process that has newly been silent for so long."""
        now, found = time.monotonic(), []
        for name in [*crew.running("actor"), *crew.running("learner")]:
            kind, number = name.split()
            row = (self._board.actor if kind == "actor" else self._board.learner)(int(number))
            progress = sum(each[0] for each in row.values())
            before, since = self._moved.get(name, (None, now))
            if progress != before:
                self._moved[name] = (progress, now)
            elif since is not None and now - since > self._after_s:
                # None: it was told of, and is told of again only after it has moved.
                self._moved[name] = (progress, None)
                found.append("%s (process %d) has not moved for %g s" % (name, crew.pid(name), self._after_s))
        return found


def _left_after(name, sentence, crew, settings):
    """Return how many actors go on after the death of process ``name``; raises PipelineError when the run cannot."""
    if name.startswith("learner"):
        raise PipelineError(sentence + _LOST)
    if settings.mode == "workers":
        raise PipelineError(sentence + ": the rollout it owed will never be complete")
    left = crew.running("actor")
    served = {int(each.split()[1]) % settings.learners for each in left}
    for rank in range(settings.learners):
        if rank not in served:
            raise PipelineError(sentence + ": it was the last actor of learner %d" % rank)
    return len(left)


def _in_process(make_env, observation_dim, policy, settings, should_stop):
    """Actor and learner in turn, in this process, with one set of weights."""
    s = settings
    board = Board(1, 1)
    envs = [make_env(i) for i in range(s.n_envs)]
    learner = Learner(policy, s, board.learner(0))
    collector = Collector(envs, policy, [s.seed, 0], [1000 * s.seed + i for i in range(s.n_envs)])
    record = np.zeros(1, rollout_dtype(s.n_steps, s.n_envs, observation_dim, policy.distribution))[0]
    begun = time.monotonic()
    for done in range(1, s.rounds + 1):
        collector.rollout(record, lambda: learner.version)
        learner.learn([record])
        board.actor(0)["env_steps"][0] = done * s.n_steps * s.n_envs
        if should_stop():
            break
    for env in envs:
        env.close()
    return _result(policy, board, s, begun, learner.version)


def _result(policy, board, settings, begun, updates, overwritten=0, left=0, deaths=(), silences=()):
    seconds = time.monotonic() - begun
    totals = {name: board.total(name) for name in FIELDS}
    waited = sum(board.actor(i)["wait_ns"][0] for i in range(settings.actors)) / 1e9
    return Result(
        policy=policy,
        env_steps=totals["env_steps"],
        updates=updates,
        seconds=seconds,
        lag_mean=totals["lag_sum"] / max(1, totals["consumed"]),
        lag_max=max(board.learner(i)["lag_max"][0] for i in range(settings.learners)),
        learned=totals["learned"],
        dropped=totals["dropped"] + overwritten,
        overtaken=totals["overtaken"] + left,
        sent_bytes=totals["sent_bytes"],
        actor_wait=waited / (seconds * settings.actors),
        deaths=list(deaths),
        silences=list(silences),
    )
