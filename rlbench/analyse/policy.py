"""Which network is the policy, and which version of it every pass was made with, told by fingerprints of weights."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlbench.analyse.ledgers import Array, Ledgers
from rlbench.probe.ledger import UNTOLD

UNKNOWN = -1


def policy_of(ledgers: Ledgers, acting: Array, learning: Array) -> tuple[int, Array, Array] | None:
    """Find the learner's policy module, the modules that act with its weights, and the version of every pass.

    The policy's module is one that learns (``learning``) and whose weights, at any version, were those of
    most acting passes; among equals (a policy and a value network that both look at the observation) the one fed
    first. Weights are told by fingerprint, so an actor may hold a copy, in any process.
    """
    passes, updates = ledgers.passes, ledgers.updates
    key = _key(passes.weights)
    told = key != _key(np.array([UNTOLD], "V16"))
    pids = np.array([each["pid"] for each in ledgers.modules])
    shared = np.array([each["type"] is not None for each in ledgers.modules])
    best: tuple[int, int, Array] | None = None
    for module in np.unique(updates.module):
        if not (learning & (passes.module == module)).any():
            continue
        mine = updates.module == module
        made = updates.time_ns[mine]
        # Before the first update there is only version 0, in this module and in copies of other processes.
        before = told & (passes.time_ns <= made[0])
        before &= (passes.module == module) | (pids[passes.module] != pids[module])
        initial = np.unique(key[before])
        history = pd.DataFrame(
            {
                "time": np.concatenate([np.zeros(len(initial), np.int64), made]),
                "key": np.concatenate([initial, _key(updates.weights[mine])]),
                "version": np.concatenate([np.zeros(len(initial), np.int64), np.arange(1, 1 + len(made))]),
            }
        )
        asked = pd.DataFrame({"time": passes.time_ns, "key": key})
        version = (
            pd.merge_asof(asked, history, on="time", by="key")["version"].fillna(UNKNOWN).to_numpy(np.int64, copy=True)
        )
        # Untold marks are all alike: that of another network says nothing of this policy.
        version[~told] = UNKNOWN
        # A module whose weights the optimizer changes in place holds the newest version, told or not.
        own = (passes.module == module) & (version == UNKNOWN) & (shared[module] | ~told)
        version[own] = np.searchsorted(made, passes.time_ns[own], side="right")
        # Weights are there a moment before their step is noted: who shares them may act with them already.
        coming = np.searchsorted(made, passes.time_ns, side="right")
        soon = np.flatnonzero(told & (version == UNKNOWN) & (coming < len(made)))
        soon = soon[key[soon] == _key(updates.weights[mine])[coming[soon]]]
        version[soon] = coming[soon] + 1
        score = int((acting & (version != UNKNOWN)).sum())
        if score and (best is None or score > best[0]):
            best = (score, int(module), version)
    if best is None:
        return None
    _, module, version = best
    known = np.bincount(passes.module[acting & (version != UNKNOWN)], minlength=len(ledgers.modules) + 1)
    total = np.bincount(passes.module[acting], minlength=len(ledgers.modules) + 1)
    return module, known * 2 > total, version


def replicas_of(ledgers: Ledgers, module: int) -> dict[int, Array]:
    """Return the modules of other processes that learn in step with ``module``, and when each of their steps ended.

    Data-parallel learners average their gradients, so after each step all hold the same weights: they are one policy,
    and step k of each is version k. Told by the fingerprints, which must have changed at all.
    """
    updates = ledgers.updates
    mine = _key(updates.weights[updates.module == module])
    found = {}
    for other in np.unique(updates.module):
        theirs = _key(updates.weights[updates.module == other])
        both = min(len(mine), len(theirs))
        apart = ledgers.modules[other]["pid"] != ledgers.modules[module]["pid"]
        if apart and both and len(np.unique(theirs)) > 1 and (mine[:both] == theirs[:both]).mean() > 0.5:
            found[int(other)] = updates.time_ns[updates.module == other]
    return found


def _key(weights: Array) -> Array:
    """One 64-bit key per 16-byte fingerprint."""
    halves = np.ascontiguousarray(weights).view("<u8").reshape(-1, 2)
    with np.errstate(over="ignore"):
        return halves[:, 0] * np.uint64(0x9E3779B97F4A7C15) + halves[:, 1]
