"""What the tables show, as plain data for JSON: every figure of every group, with interval and reasons."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from rlbench.present import groups as g
from rlbench.present.figures import FIGURES, Figure
from rlbench.store.schema import SCHEMA_VERSION

CONFIDENCE = 0.95


def run_json(
    trials: pd.DataFrame, audit: pd.DataFrame | None = None, figures: list[Figure] | None = None
) -> dict[str, Any]:
    """Return per group its identity, statuses, markers and figures (``figures``: all unless given).

    A figure has ``mean``, ``low``, ``high`` (null when not measured, or measured in one seed only), ``n``
    seeds and ``reasons``: why it is null, in how many trials. Strict JSON: no NaN.
    """
    found = [_group(group, audit, figures or FIGURES) for group in g.group_trials(trials)]
    runs = list(dict.fromkeys(each["run_id"] for each in found))
    return strict({"schema_version": SCHEMA_VERSION, "confidence": CONFIDENCE, "runs": runs, "groups": found})


def strict(value: Any) -> Any:
    """Return ``value`` with NaN, infinities and missing values as None, numpy scalars as Python's own."""
    if isinstance(value, dict):
        return {str(key): strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def identity(group: g.Group) -> dict[str, Any]:
    """Return what the group is: its key, versions and seeds."""
    first = group.trials.iloc[0]
    # An unavailable trial knows no version; another seed of the same library may.
    versions = group.trials["library_version"].dropna()
    return {
        **group.key,
        "env_id": first["env_id"],
        "library_version": versions.iloc[0] if len(versions) else None,
        "seeds": [int(seed) for seed in group.trials["seed"].dropna()],
        "seeds_ok": [int(seed) for seed in group.ok["seed"].dropna()],
    }


def _group(group: g.Group, audit: pd.DataFrame | None, figures: list[Figure]) -> dict[str, Any]:
    judged, found = g.learned(group)
    audited = group.ok["audit_ok"].dropna().astype(bool)
    return {
        **identity(group),
        "statuses": {str(status): int(count) for status, count in group.trials["status"].value_counts().items()},
        "learned": {"judged": judged, "learned": found},
        "audit_ok": bool(audited.all()) if len(audited) else None,
        "drifted": int(group.ok["drifted"].eq(True).fillna(False).sum()),
        "markers": [marker.text for marker in g.markers(group, audit)],
        "warnings": list(dict.fromkeys(text for row in group.trials["warnings"] for text in g.loads(row, []))),
        "trials": [
            {name: trial[name] for name in ("trial_id", "seed", "status", "reason")}
            for _, trial in group.trials.iterrows()
        ],
        "figures": {figure.name: _figure(group, figure) for figure in figures},
    }


def _figure(group: g.Group, figure: Figure) -> dict[str, Any]:
    value, reasons = g.measured(group, figure.name)
    return {
        "label": figure.label,
        # Shares stay shares here (0..1); only what is shown is in per cent.
        "unit": "share" if figure.style == "share" else figure.unit,
        "better": figure.better,
        **value._asdict(),
        "reasons": [{"reason": reason, "trials": count} for reason, count in reasons.items()],
    }
