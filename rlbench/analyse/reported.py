"""Reported against measured: the library's own numbers for the same run, beside ours."""

from __future__ import annotations

from typing import Any

TOLERANCE = 0.05
COUNT_TOLERANCE = 0.001
COUNTS = ("env_steps", "updates")


def reported_rows(reported: list[dict[str, Any]], figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table ``reported``.

    ``reported``: what the adapter passed on of the library's log, ``{"name", "value", "note"}``, where ``name`` is
    that of the figure that it claims to be. ``figures``: ours, None where not measured.
    """
    rows = []
    for each in reported:
        name, value = each["name"], float(each["value"])
        measured = figures.get(name)
        ratio = value / measured if measured else None
        allowed = COUNT_TOLERANCE if name in COUNTS else TOLERANCE
        agrees = None if measured is None else abs(value - measured) <= allowed * abs(measured)
        rows.append(
            {
                "name": name,
                "reported": value,
                "measured": measured,
                "ratio": ratio,
                "agrees": agrees,
                "note": each["note"],
            }
        )
    return rows
