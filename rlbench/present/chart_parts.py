"""Parts that several charts share: figure, legend, axis formats, small multiples, caption."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rlbench.present.figures import THIN
from rlbench.present.style import GRID, MUTED, WIDTH

CAPTION_COLUMNS = 154
LINE = 0.165  # inches per line of the caption
LEGEND_ROW = 0.2


def new_figure(height: float, columns: int = 1, widths: tuple[float, ...] | None = None) -> tuple[Figure, Any]:
    """Return a figure of the standard width with one axes, or with ``columns`` of them side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, columns, gridspec_kw={"width_ratios": widths} if widths else None)
    return figure, axes


def small_multiples(panels: int, label: str, height: float = 1.7) -> tuple[Figure, list[Axes]]:
    """Return a figure with one small axes per panel: one column up to 3 of them, else two.

    ``label`` names the horizontal axis, once below each column.
    """
    columns = 1 if panels <= 3 else 2
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, rows * height + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = list(grid.ravel())
    for unused in axes[panels:]:
        unused.remove()
    for lowest in axes[max(0, panels - columns) : panels]:
        lowest.set_xlabel(label)
    return figure, axes[:panels]


def horizontal(axes: Axes, names: list[str]) -> None:
    """Prepare axes for horizontal bars, one per name, the first at the bottom."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def legend_above(axes: Axes, handles: list[Any] | None = None) -> None:
    """Put the legend above the axes, where it cannot cover data."""
    shown = handles or axes.get_legend_handles_labels()[0]
    longest = max((len(str(handle.get_label())) for handle in shown), default=1)
    columns = max(1, min(len(shown), 100 // (longest + 8)))
    figure = axes.get_figure(root=True)
    if figure is not None:
        # Every further row of the legend makes the figure taller, not the axes smaller.
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + LEGEND_ROW * (-(-len(shown) // columns) - 1))
    axes.legend(
        handles=shown, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2,
        handlelength=2.2, columnspacing=1.6,
    )  # fmt: skip


def thousands(value: float, _: Any) -> str:
    """Format a tick with thin spaces between thousands."""
    shown = f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
    return shown.replace(",", THIN)


def plain_ticks(axis: Axis) -> None:
    """Label a log axis with plain numbers (0.1, 1, 10), between decades too when it covers few of them."""
    low, high = axis.get_view_interval()
    decades = np.log10(high / low) if low > 0 else 0
    axis.set_major_locator(LogLocator(10, subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0), numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}".replace(",", THIN)))
    axis.set_minor_formatter(NullFormatter())


def add_caption(figure: Figure, title: str, lines: list[str]) -> None:
    """Put the title above and the caption below a finished figure, making it taller by what they need."""
    wrapped = [part for line in lines for part in textwrap.wrap(line, CAPTION_COLUMNS)]
    width, height = figure.get_size_inches()
    below, above = LINE * len(wrapped) + 0.12, 0.4
    total = height + below + above
    figure.set_size_inches(width, total)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0.008, below / total, 0.984, height / total))  # type: ignore[call-arg]
    figure.text(0.012, 1 - 0.13 / total, title, fontsize=13, fontweight="bold", va="top")
    # A reason may hold dollar signs, which would be parsed as mathematics.
    figure.text(
        0.012, 0.07 / total, "\n".join(wrapped), fontsize=8, color=MUTED, va="bottom", linespacing=1.35,
        parse_math=False,
    )  # fmt: skip


def panel_title(axes: Axes, text: str, note: str) -> None:
    """Name a small panel at its upper left, with a note in a second line."""
    axes.set_title(text, fontsize=10, pad=18)
    axes.annotate(note, (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points", fontsize=8.5, color=MUTED)
    axes.grid(color=GRID)
