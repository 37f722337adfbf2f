"""The join: which weights acted on each sample, and by which optimizer steps it was consumed.

All by sample id and by the environment's clock, vectorised; the rules are those that were needed to serve every
library without a line of its code (gradient mode alone does not tell acting from learning: several libraries act with
gradients on).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlbench.analyse.ledgers import Array, Ledgers, Passes, ranges
from rlbench.analyse.policy import UNKNOWN, policy_of, replicas_of
from rlbench.probe.ledger import ACTING, GRADIENT, LEARNING


@dataclass
class Joined:
    """What the figures are computed from.

    Versions count steps of the policy's optimizer: ``version_ns[v - 1]`` is when version v came to be; where several
    processes step it, they count in the order in which they end. ``learning`` holds each learner's process, when its
    steps began (with their first forward pass) and when they ended. Consumption k is one row of a batch that an
    optimizer step learned from: ``consumed[k]`` is its sample (-1: no environment produced it), ``consumed_version[k]``
    the learner's version before that step, ``consumed_ns[k]`` the time of its forward pass. ``acting_version[s]`` is
    the version that acted on sample s (-1: none known, as for random actions), in process ``acted_pid[s]`` at
    ``acted_ns[s]``; its action was taken at ``action_ns[s]`` (0: never).
    """

    version_ns: Array
    learning_rate: Array
    batch_rows: Array
    forward_ns: Array
    consumed: Array
    consumed_version: Array
    consumed_ns: Array
    acting_version: Array
    action_ns: Array
    acted_ns: Array
    acted_pid: Array
    pass_ns: Array
    fed: int
    decoded: int
    module: int
    learning: list[tuple[int, Array, Array]]
    reason: str | None = None

    @property
    def early(self) -> Array:
        """For each consumption, whether its sample's action was not yet taken: it stood in for a bootstrap value.

        The acting pass may have been: then an actor is about to step while the learner has the last frame already.
        """
        taken = np.maximum(self.acted_ns, self.action_ns)
        return (self.consumed >= 0) & (taken[self.consumed] > self.consumed_ns)


def join(ledgers: Ledgers, n_envs: int) -> Joined:
    """Join a trial's ledgers; ``reason`` says why the staleness of this trial cannot be told, where it cannot."""
    passes, samples = ledgers.passes, ledgers.samples
    row_pass = np.repeat(np.arange(len(passes.time_ns)), passes.rows)
    action = (
        np.where(passes.sample >= 0, samples.action_ns[passes.sample], 0) if len(samples.env) else passes.sample * 0
    )
    time = passes.time_ns[row_pass]
    # Acting: the sample has not got its action yet. Later passes over it can only be learning (or logging).
    acting_row = (action > 0) & (time <= action) & (passes.rows[row_pass] <= n_envs)
    acting_row |= (passes.sample >= 0) & (passes.flags[row_pass] & ACTING > 0)
    past_row = (action > 0) & (time > action)
    acting = _any(acting_row, passes)
    # A batch of at most n_envs rows, none of which has had its action, is acting (or asks for a bootstrap value).
    past = _any(past_row, passes) | (passes.rows > n_envs)
    learning = past & (passes.flags & GRADIENT > 0) | (passes.flags & LEARNING > 0)
    policy = policy_of(ledgers, acting, learning)
    if policy is None:
        return _nothing(ledgers, "no optimizer step was seen of a network that acts")
    module, actors, pass_version = policy
    mine = ledgers.updates.module == module
    version_ns = ledgers.updates.time_ns[mine]

    acts = np.flatnonzero(acting_row & actors[passes.module[row_pass]])
    acting_version = np.full(len(samples.env), UNKNOWN, np.int64)
    acted_ns, acted_pid = np.zeros(len(samples.env), np.int64), np.zeros(len(samples.env), np.int64)
    # Rows are in time order and the last assignment stays: the acting pass of a sample is its last one.
    acting_version[passes.sample[acts]] = pass_version[row_pass[acts]]
    acted_ns[passes.sample[acts]] = time[acts]
    acted_pid[passes.sample[acts]] = passes.pid[row_pass[acts]]

    replicas = replicas_of(ledgers, module)
    consuming = np.flatnonzero(np.isin(passes.module, [module, *replicas]) & learning & (passes.flags & ACTING == 0))
    learner_pid = ledgers.updates.pid[mine]
    steps = [(pid, version_ns[learner_pid == pid], np.flatnonzero(learner_pid == pid)) for pid in set(learner_pid)]
    steps += [(ledgers.modules[each]["pid"], made, np.arange(len(made))) for each, made in replicas.items()]
    consuming, step_of = _next_step(passes, consuming, steps, len(version_ns))
    # Of several passes before one step only the last feeds it (earlier ones recompute values or log-probabilities);
    # passes that the adapter itself reported as learning all count.
    pid = passes.pid[consuming]
    last = np.append((step_of[1:] != step_of[:-1]) | (pid[1:] != pid[:-1]), True)[: len(step_of)]
    keep = last | (passes.flags[consuming] & LEARNING > 0)
    consuming, step_of, pid = consuming[keep], step_of[keep], pid[keep]

    batch_rows = np.zeros(len(version_ns), np.int64)
    np.add.at(batch_rows, step_of, passes.rows[consuming])
    forward_ns = np.zeros(len(version_ns), np.int64)
    forward_ns[step_of[::-1]] = passes.time_ns[consuming][::-1]
    relevant = actors | np.isin(np.arange(len(actors)), [module, *replicas])
    counted = relevant[passes.module[row_pass]]
    return Joined(
        version_ns=version_ns,
        learning_rate=ledgers.updates.learning_rate[mine],
        batch_rows=batch_rows,
        forward_ns=forward_ns,
        consumed=passes.sample[ranges(passes.first[consuming], passes.rows[consuming])],
        consumed_version=np.repeat(step_of, passes.rows[consuming]),
        consumed_ns=np.repeat(passes.time_ns[consuming], passes.rows[consuming]),
        acting_version=acting_version,
        action_ns=samples.action_ns,
        acted_ns=acted_ns,
        acted_pid=acted_pid,
        pass_ns=passes.time_ns[acting & actors[passes.module]],
        fed=int(counted.sum()),
        decoded=int((counted & (passes.sample >= 0)).sum()),
        module=module,
        learning=[(each, *_spans(passes.time_ns[consuming], step_of, pid == each, *own)) for each, *own in steps],
    )


def _next_step(
    passes: Passes, consuming: Array, steps: list[tuple[int, Array, Array]], count: int
) -> tuple[Array, Array]:
    """Return those of the passes ``consuming`` that an optimizer step of their own process follows, and that step.

    Ordered by step, process, then time. ``steps``: of each learner its process, when its steps ended, and which of the
    ``count`` steps of all they are.
    """
    step_of = np.full(len(consuming), count)
    for pid, ended, number in steps:
        own = np.flatnonzero(passes.pid[consuming] == pid)
        after = np.searchsorted(ended, passes.time_ns[consuming[own]], side="left")
        step_of[own] = np.append(number, count)[after]
    order = np.lexsort((passes.pid[consuming], step_of))
    order = order[step_of[order] < count]
    return consuming[order], step_of[order]


def _spans(time_ns: Array, step_of: Array, own: Array, ended: Array, number: Array) -> tuple[Array, Array]:
    """Return when a learner's steps began and ended, from its passes: those of all that are its ``own``.

    ``ended``: when its steps ended; ``number``: which of all learners' steps they are.
    """
    step, first = np.unique(step_of[own], return_index=True)
    return time_ns[own][first], ended[np.searchsorted(number, step)]


def _any(row_mask: Array, passes: Passes) -> Array:
    """For each pass, whether any of its rows is set."""
    cumulative = np.concatenate([[0], np.cumsum(row_mask)])
    return cumulative[passes.first + passes.rows] > cumulative[passes.first]


def _nothing(ledgers: Ledgers, reason: str) -> Joined:
    none = np.empty(0, np.int64)
    unknown = np.full(len(ledgers.samples.env), UNKNOWN, np.int64)
    nobody = unknown * 0
    return Joined(
        version_ns=none,
        learning_rate=none.astype(float),
        batch_rows=none,
        forward_ns=none,
        consumed=none,
        consumed_version=none,
        consumed_ns=none,
        acting_version=unknown,
        action_ns=ledgers.samples.action_ns,
        acted_ns=nobody,
        acted_pid=nobody,
        pass_ns=none,
        fed=0,
        decoded=0,
        module=UNKNOWN,
        learning=[],
        reason=reason,
    )
