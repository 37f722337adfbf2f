"""What counts as a consumption of an acted-on sample, and what as a look ahead for a bootstrap value."""

from __future__ import annotations

import dataclasses

import numpy as np

from rlbench.analyse.join import Joined, join
from rlbench.analyse.ledgers import Ledgers, Passes, Samples, Updates
from rlbench.analyse.steady import lags
from rlbench.probe.ledger import ACTING, GRADIENT


def test_a_frame_whose_action_is_still_to_come_is_a_bootstrap_value() -> None:
    """An actor has asked for its action and the learner has the frame, but the environment has not moved."""
    nothing = {field.name: np.empty(0, np.int64) for field in dataclasses.fields(Joined) if field.type == "Array"}
    joined = Joined(
        **nothing
        | {
            "consumed": np.array([0, 1, 2, -1]),
            "consumed_ns": np.array([50, 50, 50, 50]),
            "consumed_version": np.array([7, 7, 7, 7]),
            "acting_version": np.array([4, 5, 6]),
            "acted_ns": np.array([10, 40, 60]),
            "action_ns": np.array([20, 55, 70]),
        },
        fed=4,
        decoded=3,
        module=0,
        learning=[],
    )
    assert joined.early.tolist() == [False, True, True, False]
    assert lags(joined).tolist() == [3, -1, -1, -1]


def mark(version: int) -> bytes:
    """Weights that are zero at first, as those of a low-rank adapter are."""
    return np.full(4, version, np.float32).tobytes()


def ledgers_of(fed: list[tuple[int, int, int, int, int, list[int]]], made: list[tuple[int, int, int, int]]) -> Ledgers:
    """Ledgers of one environment whose sample k is ready at 10 k and gets its action at 10 k + 5, four in all.

    ``fed``: passes as (time, process, module, flags, version, samples); ``made``: steps as (time, process, module,
    version). Module m is of process m + 1.
    """
    samples = Samples(
        env=np.zeros(5, np.int64),
        ready_ns=np.array([0, 10, 20, 30, 40]),
        action_ns=np.array([5, 15, 25, 35, 0]),
        reward=np.ones(5),
        terminated=np.zeros(5, bool),
        truncated=np.zeros(5, bool),
        start={0: 0},
        length={0: 5},
        pid={0: fed[0][1]},
    )
    counts = np.array([len(each[5]) for each in fed])
    passes = Passes(
        time_ns=np.array([each[0] for each in fed]),
        pid=np.array([each[1] for each in fed]),
        module=np.array([each[2] for each in fed]),
        flags=np.array([each[3] for each in fed]),
        weights=np.array([mark(each[4]) for each in fed], "V16"),
        rows=counts,
        first=np.cumsum(counts) - counts,
        sample=np.concatenate([each[5] for each in fed]),
    )
    updates = Updates(
        time_ns=np.array([each[0] for each in made]),
        pid=np.array([each[1] for each in made]),
        module=np.array([each[2] for each in made]),
        optimizer=np.array([each[2] for each in made]),
        learning_rate=np.ones(len(made)),
        weights=np.array([mark(each[3]) for each in made], "V16"),
    )
    modules = [{"type": "Linear", "optimizer": 0, "pid": pid} for pid in (1, 2, 3)]
    return Ledgers(samples, passes, updates, modules, [{}, {}], [])


def test_learners_in_step_are_one_policy() -> None:
    """An actor, and two learners that average their gradients: each consumes half of a rollout at the same version."""
    actor, first, second = 3, 1, 2
    fed = [(4 + 10 * number, actor, 2, ACTING, 0, [number]) for number in range(4)]
    fed += [(50, first, 0, GRADIENT, 0, [0, 1]), (51, second, 1, GRADIENT, 0, [2, 3])]
    fed += [(70, first, 0, GRADIENT, 1, [1, 0]), (72, second, 1, GRADIENT, 1, [3, 2])]
    made = [(60, first, 0, 1), (61, second, 1, 1), (80, first, 0, 2), (83, second, 1, 2)]
    joined = join(ledgers_of(fed, made), n_envs=1)
    assert joined.version_ns.tolist() == [60, 80]
    assert joined.batch_rows.tolist() == [4, 4]
    assert joined.consumed.tolist() == [0, 1, 2, 3, 1, 0, 3, 2]
    assert joined.consumed_version.tolist() == [0] * 4 + [1] * 4
    assert lags(joined).tolist() == [0] * 4 + [1] * 4
    assert joined.decoded == joined.fed == 12
    spans = {pid: (begun.tolist(), ended.tolist()) for pid, begun, ended in joined.learning}
    assert spans == {first: ([50, 70], [60, 80]), second: ([51, 72], [61, 83])}


def test_an_actor_may_see_weights_before_their_step_is_noted() -> None:
    """Weights in shared memory: they are there before the learner's row is. Weights of a later step stay unknown."""
    actor, learner = 3, 1
    fed = [(4, actor, 2, ACTING, 0, [0]), (8, learner, 0, GRADIENT, 0, [0])]
    fed += [(14, actor, 2, ACTING, 2, [1]), (24, actor, 2, ACTING, 2, [2]), (34, actor, 2, ACTING, 5, [3])]
    fed += [(50, learner, 0, GRADIENT, 3, [1, 2, 3])]
    made = [(9, learner, 0, 1), (16, learner, 0, 2), (26, learner, 0, 3), (60, learner, 0, 4), (70, learner, 0, 5)]
    joined = join(ledgers_of(fed, made), n_envs=1)
    assert joined.acting_version.tolist() == [0, 2, 2, -1, -1]
    assert joined.consumed.tolist() == [0, 1, 2, 3]
    assert lags(joined).tolist() == [0, 1, 1, -1]
