"""The steady-state window, and the rates over it and over time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlbench.analyse.join import Joined
from rlbench.analyse.ledgers import Array, Ledgers
from rlbench.analyse.policy import UNKNOWN


class Window(NamedTuple):
    """A span of CLOCK_MONOTONIC, ns."""

    start: int
    end: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end - self.start) / 1e9

    def holds(self, times: Array) -> Array:
        """Mask of the times after the start, up to the end."""
        return (times > self.start) & (times <= self.end)


def steady_window(ledgers: Ledgers, joined: Joined) -> Window | None:
    """Return the steady-state window, or None when training ended within its first round of updates.

    It opens with the first environment step after the first round of updates, at the moment the last update before
    that step ended, and closes with the last environment step or update. So it holds whole rounds of collecting and
    learning: closing it with the last environment step would leave the last round of learning out and flatter it.
    """
    action_ns = ledgers.samples.action_ns
    if not len(joined.version_ns):
        return None
    later = action_ns[action_ns > joined.version_ns[0]]
    if not len(later):
        return None
    updates = ledgers.updates.time_ns
    start = int(updates[np.searchsorted(updates, later.min()) - 1])
    end = int(max(action_ns.max(), updates[-1]))
    return Window(start, end) if end > start else None


def rates(ledgers: Ledgers, joined: Joined, window: Window) -> dict[str, float]:
    """Rates over the window, per second of wall time."""
    steps = int(window.holds(ledgers.samples.action_ns).sum())
    return {
        "steady_s": window.seconds,
        "env_steps_per_s": steps / window.seconds,
        "updates_per_s": int(window.holds(joined.version_ns).sum()) / window.seconds,
        "samples_learned_per_s": int(window.holds(joined.consumed_ns).sum()) / window.seconds,
    }


def windows_table(ledgers: Ledgers, joined: Joined, usage: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per second from the first environment step on.

    ``usage`` are the supervisor's samples of the process tree: ``time_ns``, ``memory_mb``, ``cpu_s``.
    """
    steps = ledgers.samples.action_ns[ledgers.samples.step]
    if not len(steps):
        return pd.DataFrame()
    origin = int(steps.min())
    ends = [int(steps.max())] + ([int(joined.version_ns[-1])] if len(joined.version_ns) else [])
    count = max(1, -(-(max(ends) - origin) // 10**9))

    def second(times: Array) -> Array:
        return np.clip((times - origin) // 10**9, 0, count - 1).astype(np.int64)

    lag = lags(joined)
    seen = lag != UNKNOWN
    by_lag = pd.Series(lag[seen]).groupby(second(joined.consumed_ns)[seen])
    table = pd.DataFrame({"second": np.arange(count)})
    table["duration_s"] = np.append(np.ones(count - 1), (max(ends) - origin) / 1e9 - (count - 1))
    for name, times in (
        ("env_steps", steps),
        ("updates", joined.version_ns),
        ("samples_learned", joined.consumed_ns),
    ):
        table[name] = np.bincount(second(times), minlength=count)
    table["lag_mean"] = table["second"].map(by_lag.mean())
    table["lag_max"] = table["second"].map(by_lag.max())
    samples = pd.DataFrame(usage)
    if len(samples) > 1:
        samples["second"] = ((samples["time_ns"] - origin) // 10**9).astype(int)
        samples["cpu_share"] = samples["cpu_s"].diff() / (samples["time_ns"].diff() / 1e9)
        by_second = samples.groupby("second")
        table["memory_mb"] = table["second"].map(by_second["memory_mb"].last())
        table["cpu_share"] = table["second"].map(by_second["cpu_share"].mean())
    return table


def lags(joined: Joined) -> Array:
    """Lag of every consumption in policy versions, UNKNOWN where its acting version is."""
    mine = (joined.consumed >= 0) & ~joined.early
    acted = np.where(mine, joined.acting_version[joined.consumed], UNKNOWN)
    return np.where(acted == UNKNOWN, UNKNOWN, joined.consumed_version - acted)
