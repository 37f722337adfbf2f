"""Measurements in long form: one row per condition, place on the swept axis, repeat and metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

Row = dict[str, Any]
Key = TypeVar("Key")


def row(
    condition: str,
    repeat: int,
    metric: str,
    value: float | None,
    unit: str,
    at: float | None = None,
    reason: str | None = None,
) -> Row:
    """Return one measurement.

    ``at`` is its place on the axis that the experiment sweeps (None: nothing is swept); ``value`` is None when it was
    not measured, for ``reason``.
    """
    if value is None and not reason:
        raise ValueError(f"{metric} of {condition}: a value that was not measured needs a reason")
    number = None if value is None else float(value)
    return {
        "condition": condition, "at": None if at is None else float(at), "repeat": int(repeat), "metric": metric,
        "value": number, "unit": unit, "reason": reason,
    }  # fmt: skip


def select(rows: Sequence[Row], metric: str, condition: str, at: float | None = None) -> dict[int, float]:
    """Return the measured values of one cell by repeat; ``at`` None takes rows without a place on the axis."""
    return {
        each["repeat"]: each["value"]
        for each in rows
        if each["metric"] == metric
        and each["condition"] == condition
        and each["at"] == at
        and each["value"] is not None
    }


def places(rows: Sequence[Row], metric: str, condition: str) -> list[float]:
    """Return where on the swept axis a condition was measured, ascending."""
    found = {r["at"] for r in rows if r["metric"] == metric and r["condition"] == condition and r["at"] is not None}
    return sorted(found)


def interleaved(conditions: Sequence[Key], repeats: int) -> Iterator[tuple[int, Key]]:
    """Yield ``(repeat, condition)``: all conditions in every repeat, every second time in reverse order.

    Slow drift of the machine then falls on all conditions alike, and cancels in ratios within a repeat.
    """
    for repeat in range(repeats):
        for condition in conditions if repeat % 2 == 0 else list(reversed(conditions)):
            yield repeat, condition
