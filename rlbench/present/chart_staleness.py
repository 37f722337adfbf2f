"""Charts of staleness: how old, in policy versions and in time, the data is that a library learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rlbench.present.chart_data import NoData, Scene, Series, counted, each_seed, quantiles
from rlbench.present.chart_parts import (
    horizontal,
    new_figure,
    panel_title,
    plain_ticks,
    small_multiples,
    thousands,
)
from rlbench.present.style import INK, MUTED, PAPER

BINS = 50
TIME_BINS = 80
# Panels share one axis as long as no library's range is this many times another's.
COMPARABLE = 12


def lag_histogram(scene: Scene) -> Figure:
    """Share of consumed samples at each lag, one panel a library, with mean, p95 and maximum marked."""
    panels = []
    for series in scene.series:
        rows = scene.rows(series, "lags")
        values, counts = counted(rows[rows["kind"] == "lag"], "value")
        if len(values):
            panels.append((series, values, counts))
    if not panels:
        raise NoData("no trial measured its lag")
    figure, axes = small_multiples(len(panels), "lag: policy versions between acting and learning")
    tops = [values[-1] for _, values, _ in panels]
    common = max(tops) if max(tops) <= COMPARABLE * max(1, min(tops)) else None
    for panel, (series, values, counts) in zip(axes, panels, strict=True):
        top = common if common is not None else values[-1]
        width = max(1, int(np.ceil((top + 1) / BINS)))
        edges = np.arange(0, top + 1 + width, width) - 0.5
        shares = np.histogram(values, edges, weights=100 * counts / counts.sum())[0]
        panel.bar(edges[:-1], shares, width, align="edge", color=series.look.colour, alpha=0.8, linewidth=0)
        mean, (p95,) = float(np.average(values, weights=counts)), quantiles(values, counts, [0.95])
        for at, dash in ((mean, "-"), (p95, (0, (4, 2))), (values[-1], (0, (1, 1.5)))):
            panel.axvline(at, color=INK, linewidth=1.2, linestyle=dash)
        panel_title(panel, series.label, f"mean {mean:.3g} (solid), p95 {p95:g} (dashed), max {values[-1]:g} (dotted)")
        seen = shares[shares > 0]
        if len(seen) > 3 and seen.max() > 300 * np.median(seen):
            panel.set_yscale("log")
            panel.set_ylabel("% (log)")
        else:
            panel.set_ylabel("%")
        panel.set_xlim(-0.02 * (top + 1) - 0.5, (top + 1) * 1.03)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def lag_over_time(scene: Scene) -> Figure:
    """Mean lag of the batches in each stretch of time and its range; one panel a library, one line a seed."""
    panels = []
    for series in scene.series:
        # Each seed apart: rollouts of different seeds are out of step, and their mean would be flat.
        binned = [_binned(seed) for seed in each_seed(scene.rows(series, "updates"))]
        seeds = [each for each in binned if len(each) > 1]
        if seeds:
            panels.append((series, seeds))
    if not panels:
        raise NoData("no trial recorded the lag of its updates")
    figure, axes = small_multiples(len(panels), "seconds after the first environment step")
    tops = [max(float(seed["highest"].max()) for seed in seeds) for _, seeds in panels]
    common = max(tops) if max(tops) <= COMPARABLE * max(1, min(tops)) else None
    for panel, (series, seeds), top in zip(axes, panels, tops, strict=True):
        colour = series.look.colour
        for seed in seeds:
            panel.fill_between(seed["time"], seed["lowest"], seed["highest"], color=colour, alpha=0.12, linewidth=0)
            panel.plot(seed["time"], seed["mean"], color=colour, linewidth=1.2)
        panel_title(panel, series.label, "line: mean, one a seed; band: freshest to stalest")
        panel.set(ylim=(0, 1.05 * (common or max(1.0, top))), ylabel="versions", xlim=(0, None))
        panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


def sample_age(scene: Scene) -> Figure:
    """Time from observation to first learning from it: median, middle half, 5th to 95th percentile."""
    found: list[tuple[Series, list[float]]] = []
    for series in scene.series:
        rows = scene.rows(series, "latencies")
        values, counts = counted(rows[rows["kind"] == "age"], "value_us")
        if len(values):
            at = np.maximum(quantiles(values, counts, [0.05, 0.25, 0.5, 0.75, 0.95]), 1) / 1000
            found.append((series, [float(each) for each in at]))
    if not found:
        raise NoData("no trial measured the age of its samples")
    figure, axes = new_figure(0.44 * len(found) + 0.9)
    horizontal(axes, [series.label for series, _ in found][::-1])
    for place, (series, at) in enumerate(found[::-1]):
        colour = series.look.colour
        axes.plot([at[0], at[4]], [place, place], color=colour, linewidth=1.6)
        axes.plot([at[1], at[3]], [place, place], color=colour, linewidth=8, solid_capstyle="butt", alpha=0.75)
        axes.plot(at[2], place, "o", color=PAPER, markeredgecolor=INK, markersize=6)
        axes.annotate(
            f"{thousands(float(f'{at[2]:.3g}'), None)} ms", (at[2], place), (0, 9),
            textcoords="offset points", ha="center", fontsize=8.5, color=MUTED,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set(xlim=(min(at[0] for _, at in found) / 1.3, max(at[4] for _, at in found) * 1.3))
    axes.set_xlabel("milliseconds from observation to first use")
    axes.set_ylim(-0.6, len(found) - 0.25)
    plain_ticks(axes.xaxis)
    return figure


def _binned(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, lowest and highest lag per stretch of time; a batch counts by its rows."""
    rows = rows.dropna(subset=["time_s", "lag_mean"])
    if rows.empty:
        return pd.DataFrame()
    width = max(float(rows["time_s"].max()), 1e-9) / TIME_BINS
    weight: Any = rows["batch_rows"].fillna(1).astype(float).clip(lower=1)
    frame = pd.DataFrame(
        {
            "bin": (rows["time_s"] / width).astype(int).clip(upper=TIME_BINS - 1),
            "weight": weight,
            "weighted": weight * rows["lag_mean"],
            "lowest": rows["lag_mean"],
            "highest": rows["lag_max"].fillna(rows["lag_mean"]),
        }
    )
    binned = frame.groupby("bin").agg(
        {"weight": "sum", "weighted": "sum", "lowest": "min", "highest": "max"},
    )
    # No updates while a rollout is collected: a line across that gap would show a lag that no batch had.
    steps = np.diff(binned.index)
    gaps = np.flatnonzero(steps > 2 * np.median(steps)) if len(steps) else np.empty(0, dtype=int)
    binned = binned.reindex(binned.index.union(binned.index[gaps] + 1))
    return binned.assign(mean=binned["weighted"] / binned["weight"], time=(binned.index + 0.5) * width)
