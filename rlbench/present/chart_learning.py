"""Learning curves: episode return against environment steps and against seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlbench.analyse.statistics import iqm_band
from rlbench.present.chart_data import NoData, Scene, Series, each_seed
from rlbench.present.chart_parts import legend_above, new_figure, thousands
from rlbench.present.style import INK

POINTS = 120
# The running mean starts with this many episodes: the first few returns alone would draw a spike.
FIRST = 5


def learning_by_steps(scene: Scene) -> Figure:
    """Interquartile mean over seeds of the running mean return, against environment steps."""
    return _curve(scene, "end_step", "environment steps")


def learning_by_seconds(scene: Scene) -> Figure:
    """The same against seconds after the first environment step: speed and learning together."""
    return _curve(scene, "end_s", "seconds after the first environment step")


def _curve(scene: Scene, x: str, label: str) -> Figure:
    learning = scene.settings.get("learning") or {}
    window, threshold = int(learning.get("window") or 20), learning.get("return_threshold")
    figure, axes = new_figure(3.8)
    drawn = False
    for series in scene.series:
        grid, curves = _curves(scene, series, x, window)
        if not len(curves):
            continue
        drawn = True
        middle, low, high = iqm_band(curves)
        look = series.look
        axes.plot(grid, middle, color=look.colour, linestyle=look.dash, label=series.label)
        axes.fill_between(grid, low, high, color=look.colour, alpha=0.16, linewidth=0)
    if not drawn:
        raise NoData(f"no trial finished {FIRST} training episodes")
    if threshold is not None:
        axes.axhline(threshold, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"threshold {threshold:g}", (0, threshold), (4, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=8.5,
        )  # fmt: skip
    axes.set(xlabel=label, ylabel=f"return, mean of {window} episodes", xlim=(0, None))
    axes.xaxis.set_major_formatter(thousands)
    axes.yaxis.set_major_formatter(thousands)
    legend_above(axes)
    return figure


def _curves(scene: Scene, series: Series, x: str, window: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rows = scene.rows(series, "episodes")
    rows = rows[rows["phase"] == "train"].dropna(subset=[x, "return"])
    seeds = [smoothed for smoothed in (_running_mean(seed, x, window) for seed in each_seed(rows)) if len(smoothed)]
    if not seeds:
        return np.empty(0), np.empty((0, 0))
    # Only where every seed has a value: elsewhere the mean would be one of fewer seeds and would jump.
    start, end = max(seed.index[0] for seed in seeds), min(seed.index[-1] for seed in seeds)
    grid = np.linspace(start, max(start, end), POINTS)
    return grid, np.stack([np.interp(grid, seed.index, seed.to_numpy()) for seed in seeds])


def _running_mean(episodes: pd.DataFrame, x: str, window: int) -> pd.Series:
    ordered = episodes.sort_values(x)
    means = ordered["return"].rolling(window, min_periods=min(FIRST, window)).mean()
    means.index = pd.Index(ordered[x].astype(float))
    means = means.dropna()
    return means[~means.index.duplicated(keep="last")]
