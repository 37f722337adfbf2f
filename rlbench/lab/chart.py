"""Draws one chart per experiment, as PNG and SVG, from its rows and from what its ``CHART`` says.

``CHART`` is ``{"x": label of the swept axis, "panels": [...]}``; a panel is ``{"metric": ..., "title": ...}`` with
``"log": "x"``, ``"y"`` or ``"xy"`` and ``"only": [conditions]`` when needed.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from rlbench.lab.catalog import Experiment
from rlbench.lab.rows import Row
from rlbench.lab.statistics import mean
from rlbench.present.chart_parts import add_caption, horizontal, plain_ticks, thousands
from rlbench.present.charts import PNG_DPI, write_atomically
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
        swept = any(row["at"] is not None for _, shown in panels for row in shown)
        lines = -(-len(panels) // 2)
        height = 3.2 * lines if swept else lines * (0.9 + 0.3 * len(order))
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(lines, min(2, len(panels)), squeeze=False).ravel()
        for axes, (panel, shown) in zip(grid, panels, strict=False):
            _panel(axes, panel, shown, order, experiment.chart["x"])
        for unused in grid[len(panels) :]:
            unused.remove()
        _legend(figure, list(grid[: len(panels)]))
        add_caption(figure, experiment.title, caption)
        paths = folder / f"{experiment.name}.png", folder / f"{experiment.name}.svg"
        for path in paths:
            write_atomically(path, _bytes(figure, path.suffix[1:]))
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
    title = panel["title"] + (f" ({unit})" if unit else "")
    swept = [row for row in rows if row["at"] is not None]
    if swept:
        for condition in order:
            _line(axes, [row for row in swept if row["condition"] == condition], condition, order)
        for row in (row for row in rows if row["at"] is None):
            axes.axhline(row["value"], color=_look(row["condition"], order)[0], linewidth=0.8, linestyle=DASHES[2])
        axes.set(title=title, xlabel=x)
        if "x" in log:
            least = min((row["at"] for row in swept if row["at"] > 0), default=1)
            axes.set_xscale("symlog" if any(row["at"] <= 0 for row in swept) else "log", **(
                {"linthresh": least} if any(row["at"] <= 0 for row in swept) else {}))  # fmt: skip
            axes.xaxis.set_major_formatter(thousands)
    else:
        names = [name for name in reversed(order) if any(row["condition"] == name for row in rows)]
        horizontal(axes, names)
        for place, name in enumerate(names):
            values, colour = [row["value"] for row in rows if row["condition"] == name], _look(name, order)[0]
            middle = mean(values)
            assert middle is not None, "a condition without values is not shown"
            axes.hlines(place, middle.low, middle.high, color=colour, linewidth=5, alpha=0.35)
            axes.plot(values, [place] * len(values), "|", color=colour, markersize=7)
            axes.plot(middle.value, place, "o", color=colour, markersize=6)
        axes.set(title=title)
    measured = axes.yaxis if swept else axes.xaxis
    positive = all(row["value"] > 0 for row in rows)
    if "y" in log and positive:
        (axes.set_yscale if swept else axes.set_xscale)("log")
        plain_ticks(measured)
    elif swept and positive:
        axes.set_ylim(bottom=0)
    if not ("y" in log and positive):
        measured.set_major_formatter(thousands)


def _line(axes: Axes, rows: list[Row], condition: str, order: list[str]) -> None:
    if not rows:
        return
    colour, dash, point = _look(condition, order)
    at = sorted({row["at"] for row in rows})
    found = [mean([row["value"] for row in rows if row["at"] == place]) for place in at]
    kept = [each for each in found if each is not None]
    mark = point if len(at) <= MARKED else None
    axes.plot(at, [e.value for e in kept], color=colour, linestyle=dash, marker=mark, markersize=5, label=condition)
    axes.fill_between(at, [e.low for e in kept], [e.high for e in kept], color=colour, alpha=0.15, linewidth=0)


def _look(condition: str, order: list[str]) -> tuple[str, Any, str]:
    place = order.index(condition)
    turn = place // len(PALETTE)
    return PALETTE[place % len(PALETTE)], DASHES[turn % len(DASHES)], POINTS[place % len(POINTS)]


def _legend(figure: Figure, axes: list[Axes]) -> None:
    """One legend above all panels, where several of them share the conditions."""
    handles: dict[str, Any] = {}
    for each in axes:
        for handle, name in zip(*each.get_legend_handles_labels(), strict=True):
            handles.setdefault(str(name), handle)
    if not handles:
        return
    longest = max(map(len, handles))
    columns = max(1, min(len(handles), 120 // (longest + 8)))
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.2 * -(-len(handles) // columns) + 0.1)
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=columns, handlelength=2.2)


def _bytes(figure: Figure, form: str) -> bytes:
    content = io.BytesIO()
    if form == "png":
        FigureCanvasAgg(figure)
        figure.savefig(content, format="png", dpi=PNG_DPI)
    else:
        FigureCanvasSVG(figure)
        figure.savefig(content, format="svg", metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]))
    return content.getvalue()
