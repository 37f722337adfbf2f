"""What a chart is drawn from: the series of one scenario of a run, their looks, and the caption's facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlbench.present import groups as g
from rlbench.present.style import Look, looks
from rlbench.store.reader import read_table


class Series(NamedTuple):
    """One line of a chart: a group, its label with the marks, and its look."""

    group: g.Group
    label: str
    look: Look
    markers: list[g.Marker]


class Scene(NamedTuple):
    """One scenario of a run. ``series`` are the groups with at least one ok trial, ``missing`` the others."""

    run: Path
    scenario: str
    series: list[Series]
    missing: list[g.Group]
    settings: dict[str, Any]
    table: Callable[[str], pd.DataFrame]

    def rows(self, series: Series, table: str) -> pd.DataFrame:
        """Return the rows of ``table`` that belong to the ok trials of ``series``."""
        frame = self.table(table)
        return frame[frame["trial_id"].isin(series.group.ok["trial_id"])]


class NoData(Exception):
    """There is nothing to draw for this chart; the message says why."""


def scenes(run: Path) -> list[Scene]:
    """Return the scenarios of a run, each with its series; detail tables are read when first asked for."""
    trials, audit = read_table(run, "trials"), read_table(run, "audit")
    cache: dict[str, pd.DataFrame] = {}

    def table(name: str) -> pd.DataFrame:
        if name not in cache:
            cache[name] = read_table(run, name)
        return cache[name]

    found = []
    for scenario in dict.fromkeys(trials["scenario"].dropna()):
        groups = g.group_trials(trials[trials["scenario"] == scenario])
        context = g.varying(groups)
        shown = [group for group in groups if len(group.ok)]
        styles = looks([str(group.key["library"]) for group in shown])
        series = []
        for group, look in zip(shown, styles, strict=True):
            marks = g.markers(group, audit)
            series.append(Series(group, f"{g.label(group, context)} {g.symbols(marks)}".strip(), look, marks))
        texts = trials.loc[trials["scenario"] == scenario, "settings"].dropna()
        settings = json.loads(texts.iloc[0]) if len(texts) else {}
        missing = [group for group in groups if not len(group.ok)]
        found.append(Scene(run, str(scenario), series, missing, settings, table))
    return found


def each_seed(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each trial apart, by seed."""
    return [frame for _, frame in rows.groupby("trial_id", sort=True)]


def over_seeds(rows: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return per value of ``x`` the mean, lowest and highest ``y`` over seeds.

    ``x`` ends where the first seed ends: further on, the mean would be one of fewer seeds and would jump.
    """
    rows = rows.dropna(subset=[x, y])
    if rows.empty:
        return pd.DataFrame(columns=[x, "mean", "min", "max"])
    shared = rows[rows[x] <= rows.groupby("trial_id")[x].max().min()]
    return shared.groupby(x)[y].agg(["mean", "min", "max"]).reset_index()


def quantiles(values: np.ndarray[Any, Any], counts: np.ndarray[Any, Any], shares: list[float]) -> list[float]:
    """Return the smallest values that reach each of ``shares`` of all counts (``values`` ascending)."""
    cumulative = np.cumsum(counts)
    places = np.searchsorted(cumulative, np.asarray(shares) * cumulative[-1] - 1e-9)
    return [float(value) for value in values[np.minimum(places, len(values) - 1)]]


def counted(rows: pd.DataFrame, value: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return distinct values, ascending, and their counts over all seeds; both of shape ``(n,)``."""
    totals = rows.dropna(subset=[value, "count"]).groupby(value)["count"].sum().sort_index()
    totals = totals[totals > 0]
    return totals.index.to_numpy(dtype=float), totals.to_numpy(dtype=float)


def machine_text(machine: dict[str, Any]) -> str:
    """Return processor, usable cores, memory and GPUs of a recorded machine in a few words."""
    parts = [str(machine["cpu"])] if machine.get("cpu") else []
    cores, usable = machine.get("cores"), machine.get("cores_usable")
    if cores:
        parts.append(f"{usable} of {cores} cores" if usable and usable != cores else f"{cores} cores")
    if machine.get("memory_mb"):
        parts.append(f"{machine['memory_mb'] / 1000:.0f} GB")
    parts += map(str, machine.get("gpus") or [])
    return ", ".join(parts) or "machine not recorded"


def caption(scene: Scene) -> list[str]:
    """Return the caption's lines: scenario, machine and seeds; then all marks; then what is missing."""
    first = (scene.series[0].group.ok if scene.series else scene.missing[0].trials).iloc[0]
    seeds = sorted({len(series.group.ok) for series in scene.series})
    spread = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}" if seeds else "no"
    plural = "" if seeds == [1] else "s"
    lines = [
        f"Scenario {scene.scenario}: {str(first['algorithm']).upper()} on {first['env_id']}, "
        f"{spread} seed{plural}. "
        f"Machine: {machine_text(g.loads(first['machine'], {}))}."
    ]
    marked = [(series.group.key["library"], series.markers) for series in scene.series if series.markers]
    if marked:
        texts = (
            f"{name}: " + ", ".join(f"{m.symbol} {shorten(m.text, 90, placeholder=' …')}" for m in marks)
            for name, marks in marked
        )
        lines.append("Marked: " + "; ".join(dict.fromkeys(texts)) + ".")
    if scene.missing:
        gone = (
            f"{group.key['library']} ({', '.join(dict.fromkeys(group.trials['status']))})" for group in scene.missing
        )
        lines.append("Not shown: " + "; ".join(dict.fromkeys(gone)) + ".")
    return lines
