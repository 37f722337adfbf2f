"""Where an environment-stepping process spends its wall time: environment, acting, learning, other."""

from __future__ import annotations

import numpy as np

from rlbench.analyse.join import Joined
from rlbench.analyse.ledgers import Array, Ledgers
from rlbench.analyse.steady import Window


def time_shares(ledgers: Ledgers, joined: Joined, window: Window) -> dict[str, float]:
    """Return ``time_env``, ``time_act``, ``time_learn``, ``time_other``, shares of wall time that sum to 1.

    Taken per process that steps environments, mean over processes. Between two calls into an environment the process
    waits: with updates in between it learns up to the last of them and acts from there; with an acting pass and no
    update it acts; else it does something else. A reset's own time counts as environment.
    """
    totals = np.zeros(4)
    pids = sorted(set(ledgers.samples.pid.values()))
    for pid in pids:
        envs = [env for env, owner in ledgers.samples.pid.items() if owner == pid]
        totals += _process(ledgers, joined, window, np.isin(ledgers.samples.env, envs))
    shares = totals / (window.end - window.start) / max(1, len(pids))
    return dict(zip(("time_env", "time_act", "time_learn", "time_other"), map(float, shares), strict=True))


def _process(ledgers: Ledgers, joined: Joined, window: Window, mine: Array) -> Array:
    samples = ledgers.samples
    ready, action, env = samples.ready_ns[mine], samples.action_ns[mine], samples.env[mine]
    # Observation k comes from the step taken on observation k - 1 of the same environment, or from a reset.
    same = np.append(False, env[1:] == env[:-1])
    before = np.where(same, np.append(0, action[:-1]), 0)
    begin, end = np.where(before > 0, before, -1), ready
    order = np.argsort(end, kind="stable")
    begin, end = begin[order], end[order]
    previous = np.append(window.start, end[:-1])
    updates, passes = ledgers.updates.time_ns, joined.pass_ns
    # A reset's beginning is not booked: it starts when what came before it, call or update, ended.
    last_update = _last_before(updates, end)
    begin = np.where(begin < 0, np.maximum(previous, last_update), begin)
    begin, end, previous = (np.clip(x, window.start, window.end) for x in (begin, end, previous))
    begin = np.maximum(begin, previous)
    gap_start = np.append(previous, end[-1:])
    gap_end = np.append(begin, window.end)
    learn = np.clip(_last_before(updates, gap_end) - gap_start, 0, None)
    rest = gap_end - gap_start - learn
    acts = np.searchsorted(passes, gap_end, side="right") > np.searchsorted(passes, gap_start, side="right")
    acting = acts | (learn > 0)
    return np.array([(end - begin).clip(0).sum(), rest[acting].sum(), learn.sum(), rest[~acting].sum()], dtype=float)


def _last_before(updates: Array, times: Array) -> Array:
    """Time of the last update at or before each time, 0 where there is none."""
    position = np.searchsorted(updates, times, side="right")
    return np.where(position > 0, np.append(0, updates)[position], 0)
