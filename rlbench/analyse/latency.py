"""Latencies: what an environment waits for an action, what an update takes, how old samples and weights are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlbench.analyse.join import Joined
from rlbench.analyse.ledgers import Array, Ledgers
from rlbench.analyse.policy import UNKNOWN
from rlbench.analyse.staleness import first_uses
from rlbench.analyse.steady import Window

PERCENTILES = {
    "action": ("action_latency_ms", ("p50", "p95", "p99", "max")),
    "update": ("update_latency_ms", ("p50", "p99")),
    "age": ("sample_age_ms", ("p50", "p95", "max")),
    "sync": ("sync_latency_ms", ("p50", "p99")),
}


def latencies(
    ledgers: Ledgers, joined: Joined, window: Window, asynchronous: bool
) -> tuple[dict[str, float], pd.DataFrame]:
    """Return ``(figures, latencies table)`` of the window; a kind with no events is left out.

    Where actors never wait for the learner (``asynchronous``) every wait counts as action latency; elsewhere waits
    that contain updates are the stall.
    """
    waits, stalled = _waits(ledgers, window, asynchronous)
    kinds = {
        "action": waits[~stalled],
        "update": _update(joined, window),
        "age": _age(ledgers, joined, window),
        "sync": _sync(ledgers, joined, window),
    }
    figures: dict[str, float] = {}
    tables = []
    for kind, values in kinds.items():
        if not len(values):
            continue
        prefix, which = PERCENTILES[kind]
        for name in which:
            value = values.max() if name == "max" else np.percentile(values, int(name[1:]))
            figures[f"{prefix}_{name}"] = float(value) / 1e6
        unique, counts = np.unique(values // 1000, return_counts=True)
        tables.append(pd.DataFrame({"kind": kind, "value_us": unique, "count": counts}))
    environments = len(np.unique(ledgers.samples.env))
    figures["stall_share"] = float(waits[stalled].sum()) / (window.end - window.start) / max(1, environments)
    return figures, pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _waits(ledgers: Ledgers, window: Window, asynchronous: bool) -> tuple[Array, Array]:
    """Time from observation to action of every step in the window, ns, and whether updates were made meanwhile."""
    samples, updates = ledgers.samples, ledgers.updates.time_ns
    steps = np.flatnonzero(window.holds(samples.action_ns))
    ready, action = samples.ready_ns[steps], samples.action_ns[steps]
    # The first step's wait reaches back into the learning that closed the start-up.
    ready = np.maximum(ready, window.start)
    if asynchronous:
        return action - ready, np.zeros(len(steps), bool)
    made = np.searchsorted(updates, action) - np.searchsorted(updates, ready, side="right")
    return action - ready, made > 0


def _update(joined: Joined, window: Window) -> Array:
    seen = (joined.forward_ns > 0) & window.holds(joined.version_ns)
    return joined.version_ns[seen] - joined.forward_ns[seen]


def _age(ledgers: Ledgers, joined: Joined, window: Window) -> Array:
    samples, first = first_uses(joined)
    inside = window.holds(joined.consumed_ns[first])
    return joined.consumed_ns[first][inside] - ledgers.samples.ready_ns[samples[inside]]


def _sync(ledgers: Ledgers, joined: Joined, window: Window) -> Array:
    """For each version, the time until the first action by that version or a later one; versions never acted by
    are left out."""
    steps = ledgers.samples.step
    steps = steps[joined.acting_version[steps] != UNKNOWN]
    steps = steps[np.argsort(ledgers.samples.action_ns[steps], kind="stable")]
    if not len(steps):
        return np.empty(0, np.int64)
    newest = np.maximum.accumulate(joined.acting_version[steps])
    made = np.flatnonzero(window.holds(joined.version_ns))
    position = np.searchsorted(newest, made + 1)
    made, position = made[position < len(steps)], position[position < len(steps)]
    waits = ledgers.samples.action_ns[steps[position]] - joined.version_ns[made]
    return np.maximum(waits, 0)
