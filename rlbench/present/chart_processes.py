"""Charts of processes at work together: who waits for whom, what overlaps, and what the lag is made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlbench.present import groups as g
from rlbench.present.chart_data import NoData, Scene, Series
from rlbench.present.chart_parts import horizontal, legend_above, new_figure, thousands
from rlbench.present.chart_speed import PART_COLOURS
from rlbench.present.figures import BY_NAME, format_value
from rlbench.present.style import INK, MUTED, PAPER, WIDTH

SPLIT = {"sync_lag_mean": ("sync lag", "#d55e00"), "queue_lag_mean": ("queue lag", "#56b4e9")}
KINDS = {
    "env": ("stepping the environment", PART_COLOURS["time_env"]),
    "act": ("acting", PART_COLOURS["time_act"]),
    "learn": ("learning", PART_COLOURS["time_learn"]),
}
SHARES = {
    "overlap": ("overlap", "#009e73", "o"),
    "actor_idle": ("actors idle", "#0072b2", "s"),
    "learner_idle": ("learner idle", "#e69f00", "D"),
}

ROUNDS = 2.5  # a timeline shows this many rounds of collecting and learning
SHORTEST = 0.1  # seconds; a library that learns every few steps has rounds of milliseconds
BINS = 600  # about a pixel: a colour is as high as its share of that time
LEAST = 0.1  # of the height, so that a step of microseconds is seen at all
COMPARABLE = 4  # panels share one scale as long as none shows this many times another's time
MOST = 9  # processes a panel


class _Panel(NamedTuple):
    series: Series
    seed: int
    processes: list[tuple[str, pd.DataFrame]]
    hidden: int
    length: float


def lag_split(scene: Scene) -> Figure:
    """Mean lag as the sum of its two parts, stacked; p95 and maximum of the whole lag marked."""
    rows = []
    for series in scene.series:
        means = (g.measured(series.group, name).summary.mean for name in SPLIT)
        parts = [mean for mean in means if mean is not None]
        if len(parts) == len(SPLIT):
            rows.append((series, parts))
    if not rows:
        raise NoData("no trial measured the parts of its lag")
    figure, axes = new_figure(0.42 * len(rows) + 1.3)
    horizontal(axes, [series.label for series, _ in rows][::-1])
    top = 1.0
    for place, (series, parts) in enumerate(rows[::-1]):
        start = 0.0
        for part, (_, colour) in zip(parts, SPLIT.values(), strict=True):
            axes.barh(place, part, 0.56, start, color=colour, edgecolor=PAPER, linewidth=0.6)
            start += part
        p95, most = g.measured(series.group, "lag_p95").summary.mean, series.group.ok["lag_max"].max()
        if p95 is not None:
            axes.plot(p95, place, "|", color=INK, markersize=15, markeredgewidth=1.8)
        if not pd.isna(most):
            axes.plot(most, place, "D", color=PAPER, markeredgecolor=INK, markersize=5.5)
        end = max(start, p95 or 0.0, 0.0 if pd.isna(most) else float(most))
        shown = [format_value(BY_NAME[name], part) for name, part in zip(SPLIT, parts, strict=True)]
        axes.annotate(
            f"{format_value(BY_NAME['lag_mean'], start)} = {shown[0]} + {shown[1]}", (end, place), (9, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
        top = max(top, end)
    handles: list[Any] = [Patch(color=colour, label=name) for name, colour in SPLIT.values()]
    handles += [_mark("|", "p95 of lag", markersize=11, markeredgewidth=1.8, color=INK)]
    handles += [_mark("D", "maximum lag", color=PAPER, markeredgecolor=INK, markersize=5.5)]
    axes.set(xlim=(0, 1.24 * top), xlabel="lag: policy versions between acting and learning; text: mean = sync + queue")
    axes.xaxis.set_major_formatter(thousands)
    legend_above(axes, handles=handles)
    return figure


def overlap(scene: Scene) -> Figure:
    """Overlap, idle actors and idle learner as shares of wall time; mean and range over seeds."""
    rows = [series for series in scene.series if any(g.by_seed(series.group, name) for name in SHARES)]
    if not rows:
        raise NoData("no trial measured which of its processes are idle")
    figure, axes = new_figure(0.54 * len(rows) + 1.1)
    horizontal(axes, [series.label for series in rows][::-1])
    for place, series in enumerate(rows[::-1]):
        axes.axhspan(place - 0.42, place + 0.42, color=MUTED, alpha=0.06, linewidth=0)
        for offset, (name, (_, colour, point)) in zip((0.26, 0.0, -0.26), SHARES.items(), strict=True):
            values = [100 * value for value in g.by_seed(series.group, name).values()]
            if not values:
                continue
            mean, at = float(np.mean(values)), place + offset
            axes.hlines(at, 0, mean, color=colour, linewidth=0.9, alpha=0.6)
            axes.hlines(at, min(values), max(values), color=colour, linewidth=3.2, alpha=0.45)
            axes.plot(mean, at, point, color=colour, markersize=6, clip_on=False)
            axes.annotate(
                f"{mean:.0f}", (max(mean, *values), at), (8, 0), textcoords="offset points", va="center",
                fontsize=8.5,
            )  # fmt: skip
    axes.set(xlim=(-1, 106), xlabel="% of wall time, steady state", xticks=range(0, 101, 20))
    legend_above(axes, handles=[_mark(point, name, color=colour) for name, colour, point in SHARES.values()])
    return figure


def timeline(scene: Scene) -> Figure:
    """What each process does in the first rounds of the steady state, one panel a library, one row a process."""
    panels = [panel for series in scene.series if (panel := _panel(scene, series)) is not None]
    if not panels:
        raise NoData("no trial recorded what its processes do")
    lengths = [panel.length for panel in panels]
    shared = max(lengths) <= COMPARABLE * min(lengths)
    heights = [0.3 * len(panel.processes) + 0.5 for panel in panels]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel._replace(length=max(lengths)) if shared else panel)
    grid[-1].set_xlabel(f"milliseconds of the steady state{'' if shared else ' (each panel has a scale of its own)'}")
    # In the first panel's title line, where it takes no room from the panel.
    grid[0].legend(
        handles=[Patch(color=colour, label=name) for name, colour in KINDS.values()], loc="lower right",
        bbox_to_anchor=(1, 1), ncols=len(KINDS), borderaxespad=0.2, handlelength=1.4, columnspacing=1.4,
    )  # fmt: skip
    return figure


def _panel(scene: Scene, series: Series) -> _Panel | None:
    rows = scene.rows(series, "timeline")
    if rows.empty:
        return None
    seed = int(rows["seed"].min())
    rows = rows[rows["seed"] == seed].sort_values("start_s", kind="stable")
    processes = name_processes(rows)
    return _Panel(series, seed, processes[:MOST], len(processes) - MOST, window(rows))


def name_processes(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return each process's spans by what it does (learner, policy, worker 1 ...), the learner first."""
    doing = {process: set(part["kind"]) for process, part in rows.groupby("process", sort=True)}
    ranked: list[tuple[str, Any]] = []
    for process, kinds in doing.items():
        whole = "learn" in kinds and "env" in kinds
        role = "one process" if whole and len(doing) == 1 else "learner" if "learn" in kinds else "worker"
        ranked.append(("policy" if kinds == {"act"} else role, process))
    roles = [role for role, _ in ranked]
    order = ["one process", "learner", "policy", "worker"]
    found, numbers = [], dict.fromkeys(order, 0)
    for role, process in sorted(ranked, key=lambda each: order.index(each[0])):
        numbers[role] += 1
        name = f"{role} {numbers[role]}" if roles.count(role) > 1 else role
        found.append((name, rows[rows["process"] == process]))
    return found


def window(rows: pd.DataFrame) -> float:
    """Return how many seconds hold `ROUNDS` rounds: from learning, over collecting, to learning again.

    ``rows`` are one trial's spans by their start.
    """
    last = float(rows["end_s"].max())
    turns = rows[rows["kind"].isin(["env", "learn"])]
    learns = turns["kind"].eq("learn")
    # The last round may be cut off by the end of the record, so rounds go from start to start.
    starts = turns.loc[learns & ~learns.shift(fill_value=False), "start_s"].to_numpy(dtype=float)
    if len(starts) < 2:
        return last
    # Learning that collecting never interrupts for long: the long gaps are the rounds, the short ones threads.
    gaps = np.diff(starts)
    length = ROUNDS * float(np.average(gaps, weights=gaps))
    return min(last, max(SHORTEST, length))


def busy_shares(spans: pd.DataFrame, edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which share of each bin ``spans`` (in order, none overlapping) fill; of shape ``(edges - 1,)``."""
    if spans.empty:
        return np.zeros(len(edges) - 1)
    start, end = spans["start_s"].to_numpy(dtype=float), spans["end_s"].to_numpy(dtype=float)
    total = np.cumsum(end - start)
    points, busy = np.stack([start, end], 1).ravel(), np.stack([total - (end - start), total], 1).ravel()
    return np.diff(np.interp(edges, points, busy)) / np.diff(edges)


def _draw(axes: Axes, panel: _Panel) -> None:
    edges = np.linspace(0, panel.length, BINS + 1)
    horizontal(axes, [name for name, _ in panel.processes][::-1])
    axes.tick_params(axis="y", labelsize=9)
    for place, (_, rows) in enumerate(panel.processes[::-1]):
        axes.axhspan(place - 0.4, place + 0.4, color=MUTED, alpha=0.1, linewidth=0)
        shares = {kind: busy_shares(rows[rows["kind"] == kind], edges) for kind in KINDS}
        shares = {kind: np.where(share > 0, np.maximum(share, LEAST), 0) for kind, share in shares.items()}
        # Threads of one process may learn and collect at once: then each gets its part of the height.
        scale = 0.8 / np.maximum(1, sum(shares.values()))
        base = np.full(BINS, place - 0.4)
        for kind in ("learn", "act", "env"):
            top = base + scale * shares[kind]
            axes.stairs(top, 1000 * edges, baseline=base, fill=True, color=KINDS[kind][1], linewidth=0)
            base = top
    axes.set_title(panel.series.label, fontsize=10)
    if panel.hidden > 0:
        axes.annotate(
            f"{panel.hidden} more processes are not shown", (1, 0), (0, -22), xycoords="axes fraction",
            textcoords="offset points", ha="right", fontsize=8.5, color=MUTED,
        )  # fmt: skip
    axes.set(xlim=(0, 1000 * panel.length), ylim=(-0.55, len(panel.processes) - 0.45))
    axes.xaxis.set_major_formatter(thousands)


def _mark(point: str, label: str, **look: Any) -> Line2D:
    return Line2D([], [], linestyle="none", marker=point, label=label, **look)
