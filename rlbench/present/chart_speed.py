"""Charts of speed and cost: throughput, action latency, where the time goes, memory."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlbench.present import groups as g
from rlbench.present.chart_data import NoData, Scene, Series, counted, over_seeds, quantiles
from rlbench.present.chart_parts import (
    horizontal,
    legend_above,
    new_figure,
    plain_ticks,
    thousands,
)
from rlbench.present.style import GRID, INK, MUTED, PAPER

PARTS = {"time_env": "environment", "time_act": "acting", "time_learn": "learning", "time_other": "other"}
PART_COLOURS = {
    "time_env": "#0072b2",
    "time_act": "#56b4e9",
    "time_learn": "#e69f00",
    "time_other": "#9aa5b1",
}


def throughput(scene: Scene) -> Figure:
    """Steps/s with interval and one point a seed; beside it the share of the bare environment's ceiling."""
    rows = [(series, g.measured(series.group, "env_steps_per_s").summary) for series in scene.series]
    rows = sorted([row for row in rows if row[1].mean is not None], key=lambda row: row[1].mean or 0)
    if not rows:
        raise NoData("no trial measured its throughput")
    figure, (left, right) = new_figure(0.42 * len(rows) + 1.0, columns=2, widths=(1.7, 1))
    horizontal(left, [series.label for series, _ in rows])
    horizontal(right, [""] * len(rows))
    left.set(title="Environment steps per second", xlim=(0, 1.12 * max(s.high or s.mean or 0 for _, s in rows)))
    right.set(title="Share of ceiling, %")
    shares = [g.measured(series.group, "share_of_ceiling").summary.mean for series, _ in rows]
    for place, ((series, value), share) in enumerate(zip(rows, shares, strict=True)):
        mean, colour = value.mean or 0.0, series.look.colour
        left.barh(place, mean, 0.56, color=colour, alpha=0.85)
        if value.low is not None and value.high is not None:
            left.plot([value.low, value.high], [place, place], color=INK, linewidth=1.6)
        seeds = list(g.by_seed(series.group, "env_steps_per_s").values())
        left.plot(seeds, [place] * len(seeds), "o", color=PAPER, markeredgecolor=INK, markersize=4)
        left.annotate(
            thousands(mean, None), (max([mean, *seeds]), place), (7, 0), textcoords="offset points",
            va="center", fontsize=9, color=INK,
        )  # fmt: skip
        if share is None:
            right.text(0.01, place, "not measured", color=MUTED, va="center", fontsize=9)
        else:
            right.hlines(place, 0, 100 * share, color=colour, linewidth=2.2)
            right.plot(100 * share, place, series.look.point, color=colour, markersize=7)
            right.annotate(
                f"{100 * share:.3g}", (100 * share, place), (8, 0), textcoords="offset points", va="center",
                fontsize=9, color=INK,
            )  # fmt: skip
    highest = max([100 * share for share in shares if share is not None], default=100.0)
    right.set_xlim(0, 1.2 * highest)
    left.xaxis.set_major_formatter(thousands)
    return figure


def throughput_over_time(scene: Scene) -> Figure:
    """Steps/s in windows of a second: mean over seeds, band from the lowest to the highest seed."""
    figure, axes = new_figure(3.4)
    drawn = [_window_line(axes, scene, series, "rate") for series in scene.series]
    if not any(drawn):
        raise NoData("the trials are too short: fewer than 2 whole windows of a second")
    axes.set(xlabel="seconds after the first environment step", ylabel="steps/s", xlim=(0, None), ylim=(0, None))
    axes.yaxis.set_major_formatter(thousands)
    legend_above(axes)
    return figure


def memory(scene: Scene) -> Figure:
    """Memory of the whole process tree over time: mean over seeds, band from lowest to highest."""
    figure, axes = new_figure(3.2)
    drawn = [_window_line(axes, scene, series, "memory_mb") for series in scene.series]
    if not any(drawn):
        raise NoData("memory was not sampled for 2 windows of any trial")
    axes.set(xlabel="seconds after the first environment step", ylabel="MB, whole process tree")
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.yaxis.set_major_formatter(thousands)
    legend_above(axes)
    return figure


def action_latency(scene: Scene) -> Figure:
    """Cumulative distribution of the time from observation to action, all seeds together, log x."""
    figure, axes = new_figure(3.6)
    lowest, highest = np.inf, 0.0
    for series in scene.series:
        rows = scene.rows(series, "latencies")
        values, counts = counted(rows[rows["kind"] == "action"], "value_us")
        if not len(values):
            continue
        shares = np.linspace(0, 1, 301)[1:]
        # A latency below the clock's microsecond is stored as 0, which a log axis cannot show.
        at = np.maximum(quantiles(values, counts, list(shares)), 1) / 1000
        axes.plot(at, 100 * shares, color=series.look.colour, linestyle=series.look.dash, label=series.label)
        lowest, highest = min(lowest, at[0]), max(highest, at[-2])
    if not highest:
        raise NoData("no action latencies were recorded")
    for share, name in ((50, "p50"), (99, "p99")):
        axes.axhline(share, color=MUTED, linewidth=0.9, linestyle=":")
        axes.annotate(
            name, (0, share), (4, -3), xycoords=("axes fraction", "data"), textcoords="offset points",
            va="top", fontsize=8.5, color=MUTED,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set(xlabel="milliseconds from observation to action", ylabel="% of actions at most this slow")
    axes.set(xlim=(lowest / 1.6, highest * 1.15), ylim=(0, 102))
    plain_ticks(axes.xaxis)
    legend_above(axes)
    return figure


def time_breakdown(scene: Scene) -> Figure:
    """Shares of wall time of an environment-stepping process, stacked; mean over seeds."""
    rows = []
    for series in scene.series:
        shares = {part: g.measured(series.group, part).summary.mean for part in PARTS}
        if any(share is not None for share in shares.values()):
            rows.append((series, shares))
    if not rows:
        raise NoData("no trial measured where its time goes")
    figure, axes = new_figure(0.42 * len(rows) + 1.3)
    horizontal(axes, [series.label for series, _ in rows][::-1])
    for place, (_, shares) in enumerate(rows[::-1]):
        start = 0.0
        for part, share in shares.items():
            width = 100 * (share or 0.0)
            axes.barh(place, width, 0.62, start, color=PART_COLOURS[part], edgecolor=PAPER, linewidth=0.8)
            if width >= 6:
                ink = "#ffffff" if part == "time_env" else "#10161d"
                axes.text(start + width / 2, place, f"{width:.0f}", ha="center", va="center", fontsize=9, color=ink)
            start += width
    handles = [axes.barh(0, 0, color=PART_COLOURS[part], label=name) for part, name in PARTS.items()]
    axes.set(xlim=(0, 100), xlabel="% of wall time")
    axes.grid(color=GRID, axis="x")
    legend_above(axes, handles=handles)
    return figure


def _window_line(axes: Axes, scene: Scene, series: Series, column: str) -> bool:
    rows = scene.rows(series, "windows")
    # The last window is cut short by the end of training; a rate over a fraction of a second is noise.
    rows = rows[rows["duration_s"] >= 0.5]
    rows = rows.assign(
        rate=rows["env_steps"].astype(float) / rows["duration_s"], second=rows["second"].astype(float) + 0.5
    )
    line = over_seeds(rows, "second", column)
    if len(line) < 2:
        return False
    look = series.look
    axes.plot(line["second"], line["mean"], color=look.colour, linestyle=look.dash, label=series.label)
    axes.fill_between(line["second"], line["min"], line["max"], color=look.colour, alpha=0.18, linewidth=0)
    return True
