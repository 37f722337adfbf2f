"""Draws one chart per experiment, as PNG and SVG, from its rows and from what its ``CHART`` says.

``CHART`` is ``{"x": label of the swept axis, "panels": [...]}``; a panel is ``{"metric": ..., "title": ...}`` with
``"log": "x"``, ``"y"`` or ``"xy"`` and ``"only": [conditions]`` when needed.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from rlbench.lab.catalog import Experiment
from rlbench.lab.rows import Row
from rlbench.lab.statistics import mean
from rlbench.present.chart_parts import add_caption, horizontal, plain_ticks, thousands
from rlbench.present.charts import save_figure
from rlbench.present.style import DASHES, PALETTE, POINTS, RC, WIDTH

MARKED = 12  # a line with more points than this is drawn without marks


def draw(experiment: Experiment, rows: list[Row], caption: list[str], folder: Path) -> tuple[Path, Path] | None:
    """Draw the chart into ``folder`` and return its PNG and SVG; None when nothing that it shows was measured."""
    panels = [(panel, shown) for panel in experiment.chart["panels"] if (shown := _shown(panel, rows))]
    if not panels:
        return None
    order = list(dict.fromkeys(row["condition"] for row in rows))
    settings: dict[Any, Any] = {**RC, "svg.hashsalt": experiment.name}
    with mpl.rc_context(settings):
        lines, columns = -(-len(panels) // 2), min(2, len(panels))
        tallest = [
            3.2 if _swept(shown) else 0.9 + 0.3 * len({row["condition"] for row in shown}) for _, shown in panels
        ]
        heights = [max(tallest[2 * line : 2 * line + 2]) for line in range(lines)]
        named = _named(panels, order)
        above = 0.1 + 0.2 * -(-len(named) // _columns(named)) if named else 0.0
        figure = Figure(figsize=(WIDTH, above + sum(heights)), layout="constrained")
        grid = figure.add_gridspec(lines + 1, columns, height_ratios=(max(above, 0.01), *heights))
        if named:
            _legend(figure.add_subplot(grid[0, :]), named, order)
        for number, (panel, shown) in enumerate(panels):
            axes = figure.add_subplot(grid[1 + number // 2, number % 2])
            _panel(axes, panel, shown, order, experiment.chart["x"])
        add_caption(figure, experiment.title, caption)
        paths = folder / f"{experiment.name}.png", folder / f"{experiment.name}.svg"
        for path in paths:
            save_figure(figure, path)
    return paths


def _shown(panel: dict[str, Any], rows: list[Row]) -> list[Row]:
    only = panel.get("only")
    return [
        row
        for row in rows
        if row["metric"] == panel["metric"] and row["value"] is not None and (not only or row["condition"] in only)
    ]


def _panel(axes: Axes, panel: dict[str, Any], rows: list[Row], order: list[str], x: str) -> None:
    log, unit = panel.get("log", ""), rows[0]["unit"]
    axes.set_title(panel["title"] + (f" ({unit})" if unit and unit not in panel["title"].lower() else ""))
    swept = _swept(rows)
    positive = all(row["value"] > 0 for row in rows)
    if swept:
        for condition in order:
            _line(axes, [row for row in rows if row["condition"] == condition], condition, order)
        axes.set_xlabel(x)
        if "x" in log:
            _log_x(axes, sorted({row["at"] for row in rows if row["at"] is not None}))
        if positive and "y" not in log:
            axes.set_ylim(bottom=0)
    else:
        _dots(axes, rows, order)
    measured = axes.yaxis if swept else axes.xaxis
    values = [row["value"] for row in rows]
    # Less than a decade needs no log axis, and would hardly have a tick on one.
    if "y" in log and positive and max(values) >= 10 * min(values):
        (axes.set_yscale if swept else axes.set_xscale)("log")
        plain_ticks(measured)
        if not swept and max(values) >= 1e4:
            # Numbers this long have room at the decades only.
            measured.set_major_locator(LogLocator(10))
    else:
        measured.set_major_formatter(thousands)
        if not swept:
            measured.set_major_locator(MaxNLocator(4))


def _swept(rows: list[Row]) -> bool:
    """Whether there is an axis to draw lines along."""
    return len({row["at"] for row in rows if row["at"] is not None}) > 1


def _dots(axes: Axes, rows: list[Row], order: list[str]) -> None:
    """One line of points per condition: repeats, mean and interval."""
    names = [name for name in reversed(order) if any(row["condition"] == name for row in rows)]
    horizontal(axes, names)
    for place, name in enumerate(names):
        values, colour = [row["value"] for row in rows if row["condition"] == name], _look(name, order)[0]
        middle = mean(values)
        assert middle is not None, "a condition without values is not shown"
        axes.hlines(place, middle.low, middle.high, color=colour, linewidth=5, alpha=0.35)
        axes.plot(values, [place] * len(values), "|", color=colour, markersize=7)
        axes.plot(middle.value, place, "o", color=colour, markersize=6)


def _log_x(axes: Axes, at: list[float]) -> None:
    """A log axis with the places that were measured as its ticks; linear below the least of them where one is 0."""
    if at[0] <= 0:
        axes.set_xscale("symlog", linthresh=min(place for place in at if place > 0))
    else:
        axes.set_xscale("log")
    # From the right, because the last place is the one that matters most; those too close to the next have no number.
    span, shown = math.log(at[-1] / max(at[0], 0.1)), [at[-1]]
    for place in reversed(at[:-1]):
        if place <= 0 or math.log(shown[-1] / place) > 0.09 * span:
            shown.append(place)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(thousands)


def _line(axes: Axes, rows: list[Row], condition: str, order: list[str]) -> None:
    if not rows:
        return
    colour, dash, point = _look(condition, order)
    at = sorted({row["at"] for row in rows if row["at"] is not None})
    if not at:
        # What has no place on the axis is the same all along it.
        level = mean([row["value"] for row in rows])
        assert level is not None, "there are rows"
        axes.axhline(level.value, color=colour, linestyle=DASHES[2], linewidth=1.6)
        axes.axhspan(level.low, level.high, color=colour, alpha=0.12, linewidth=0)
        return
    found = [mean([row["value"] for row in rows if row["at"] == place]) for place in at]
    kept = [each for each in found if each is not None]
    mark = point if len(at) <= MARKED else None
    axes.plot(at, [e.value for e in kept], color=colour, linestyle=dash, marker=mark, markersize=5)
    axes.fill_between(at, [e.low for e in kept], [e.high for e in kept], color=colour, alpha=0.15, linewidth=0)


def _look(condition: str, order: list[str]) -> tuple[str, Any, str]:
    place = order.index(condition)
    turn = place // len(PALETTE)
    return PALETTE[place % len(PALETTE)], DASHES[turn % len(DASHES)], POINTS[place % len(POINTS)]


def _named(panels: list[tuple[dict[str, Any], list[Row]]], order: list[str]) -> list[tuple[str, bool]]:
    """Conditions that lines are drawn of, and whether along the axis or as a level; dots have their names beside."""
    rows = [row for _, shown in panels if _swept(shown) for row in shown]
    drawn = {name: any(row["at"] is not None for row in rows if row["condition"] == name) for name in order}
    return [(name, drawn[name]) for name in order if any(row["condition"] == name for row in rows)]


def _columns(named: list[tuple[str, bool]]) -> int:
    return max(1, min(len(named), 100 // (max(len(name) for name, _ in named) + 8)))


def _legend(axes: Axes, named: list[tuple[str, bool]], order: list[str]) -> None:
    """One legend for all panels, in a row of its own."""
    handles = []
    for name, along in named:
        colour, line, point = _look(name, order)
        dash: Any = line if along else DASHES[2]
        handles.append(Line2D([], [], color=colour, linestyle=dash,
                              marker=point if along else "", markersize=5, label=name))  # fmt: skip
    axes.axis("off")
    axes.legend(
        handles=handles, loc="upper left", ncols=_columns(named), borderaxespad=0, borderpad=0, handlelength=2.4
    )
