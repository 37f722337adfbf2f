"""Staleness: lag in policy versions, its two parts, reuse, and what share of the consumed samples is genuine."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlbench.analyse.join import Joined
from rlbench.analyse.ledgers import Array, Ledgers
from rlbench.analyse.policy import UNKNOWN
from rlbench.analyse.steady import Window, lags

DECODED_AT_LEAST = 0.999


def staleness(
    ledgers: Ledgers, joined: Joined, window: Window, threshold: int
) -> tuple[dict[str, float], dict[str, str], pd.DataFrame]:
    """Return ``(figures, reasons for those left out, lags table)`` of the consumptions in the window.

    lag = version at consumption - version that acted = sync lag (versions made, but not yet acting, when the action
    was taken) + queue lag (versions made while the sample waited). ``threshold``: lag above it counts as stale.
    """
    inside = window.holds(joined.consumed_ns)
    consumed, at = joined.consumed[inside], joined.consumed_version[inside]
    if not len(consumed):
        return {}, {"": "no consumption of samples was seen in the steady state"}, pd.DataFrame()
    figures = {"stamps_decoded": joined.decoded / joined.fed, **_provenance(ledgers, consumed, joined.early[inside])}
    if figures["stamps_decoded"] < DECODED_AT_LEAST:
        share = f"{100 * figures['stamps_decoded']:.2f} %"
        return (
            figures,
            {"": f"only {share} of the rows fed to the policy carried a readable stamp"},
            pd.DataFrame(),
        )
    figures |= _reuse(ledgers, joined)
    acting = np.where((consumed >= 0) & ~joined.early[inside], joined.acting_version[consumed], UNKNOWN)
    known = acting != UNKNOWN
    figures["acting_version_known"] = float(known.mean())
    times = np.bincount(joined.consumed[(joined.consumed >= 0) & ~joined.early])
    histograms = [_histogram("reuse", times[times > 0])]
    if not known.any():
        return figures, {"": "the weights that acted could not be identified"}, pd.concat(histograms)
    sample, at, acting = consumed[known], at[known], acting[known]
    lag = at - acting
    newest = np.searchsorted(joined.version_ns, ledgers.samples.action_ns[sample], side="right")
    # An actor that sees weights before the learner's step is booked cannot be ahead of the learner.
    newest = np.maximum(newest, acting)
    for name, values in (("lag", lag), ("sync_lag", newest - acting), ("queue_lag", at - newest)):
        figures[f"{name}_mean"] = float(values.mean())
        histograms.append(_histogram(name, values))
    figures |= {
        "lag_min": float(lag.min()),
        "lag_p50": float(np.percentile(lag, 50)),
        "lag_p95": float(np.percentile(lag, 95)),
        "lag_p99": float(np.percentile(lag, 99)),
        "lag_max": float(lag.max()),
        "lag_over_threshold": float((lag > threshold).mean()),
    }
    samples, first = first_uses(joined)
    used = np.zeros(len(ledgers.samples.env), bool)
    used[sample] = True
    early = lags(joined)[first[used[samples]]]
    early = early[early != UNKNOWN]
    figures |= {"first_use_lag_mean": float(early.mean()), "first_use_lag_max": float(early.max())}
    histograms.append(_histogram("first_use_lag", early))
    return figures, {}, pd.concat(histograms, ignore_index=True)


def first_uses(joined: Joined) -> tuple[Array, Array]:
    """Return ``(samples, index of their first consumption)`` over the whole trial; foreign rows left out."""
    mine = np.flatnonzero((joined.consumed >= 0) & ~joined.early)
    first = np.full(len(joined.acting_version), UNKNOWN, np.int64)
    # Backwards, so that of a sample's consumptions the first one is assigned last and stays.
    first[joined.consumed[mine[::-1]]] = mine[::-1]
    samples = np.flatnonzero(first != UNKNOWN)
    return samples, first[samples]


def _provenance(ledgers: Ledgers, consumed: Array, early: Array) -> dict[str, float]:
    known = consumed >= 0
    acted = np.zeros(len(consumed), bool)
    acted[known] = ledgers.samples.action_ns[consumed[known]] > 0
    acted &= ~early
    return {
        "provenance_genuine": float(acted.mean()),
        "provenance_never_acted": float((known & ~acted).mean()),
        "provenance_foreign": float((~known).mean()),
    }


def _reuse(ledgers: Ledgers, joined: Joined) -> dict[str, float]:
    """Reuse, and the share of acted samples never consumed, over the whole trial.

    Samples acted on after the newest sample that was ever consumed were in flight when training ended.
    """
    action_ns = ledgers.samples.action_ns
    times = np.bincount(joined.consumed[(joined.consumed >= 0) & ~joined.early], minlength=len(action_ns))
    if not times.any():
        return {}
    arrived = (action_ns > 0) & (action_ns <= action_ns[times > 0].max())
    return {
        "reuse_mean": float(times[times > 0].mean()),
        "reuse_max": float(times.max()),
        "never_learned": float((times[arrived] == 0).mean()) if arrived.any() else 0.0,
    }


def _histogram(kind: str, values: Array) -> pd.DataFrame:
    counts = np.bincount(values.astype(np.int64))
    seen = np.flatnonzero(counts)
    return pd.DataFrame({"kind": kind, "value": seen, "count": counts[seen]})
