"""Chart of scaling: what more worker processes bring, against what they would bring at best."""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlbench.present import groups as g
from rlbench.present.chart_data import NoData, Scene, Series, each_seed
from rlbench.present.chart_parts import LEGEND_ROW, plain_ticks, thousands
from rlbench.present.style import INK, MUTED, WIDTH, Look, looks

IDEAL = (0, (1, 2))
CEILING = (0, (6, 2))


class Line(NamedTuple):
    """One library in one mode: steps/s of each seed by number of workers, ascending; its interpreter's ceiling."""

    label: str
    look: Look
    rates: dict[int, list[float]]
    ceiling: float | None

    def mean(self, workers: int) -> float:
        """Mean steps/s over seeds."""
        return sum(self.rates[workers]) / len(self.rates[workers])

    def ideal(self, workers: int) -> float:
        """Steps/s if they grew with the workers from the fewest that were run."""
        fewest = min(self.rates)
        return self.mean(fewest) * workers / fewest


def scaling(scene: Scene) -> Figure:
    """Throughput against workers with the ideal from the fewest, and the ceiling; beside it the share of that ideal."""
    lines, notes = scaling_lines(scene)
    counts = sorted({count for line in lines for count in line.rates})
    figure, left, right = _with_legend(lines, notes)
    for line in lines:
        own, colour = list(line.rates), line.look.colour
        means, ideals = [line.mean(count) for count in own], [line.ideal(count) for count in own]
        left.plot(own, ideals, color=colour, linewidth=1, linestyle=IDEAL)
        for axes, values in ((left, means), (right, [100 * m / i for m, i in zip(means, ideals, strict=True)])):
            axes.plot(own, values, color=colour, linestyle=line.look.dash, marker=line.look.point, markersize=6)
        if line.ceiling:
            left.axhline(line.ceiling, color=colour, linewidth=1, linestyle=CEILING)
        for count, seeds in line.rates.items():
            left.vlines(count, min(seeds), max(seeds), color=colour, linewidth=4, alpha=0.3)
    machine = g.loads(scene.series[0].group.ok.iloc[0]["machine"], {})
    cores = machine.get("cores_usable") or machine.get("cores")
    for axes in (left, right):
        _worker_axis(axes, counts)
        if cores:
            _mark_cores(axes, float(cores), counts[-1])
    left.set_yscale("log", base=2)
    plain_ticks(left.yaxis)
    left.yaxis.set_major_formatter(thousands)
    left.set(title="Environment steps per second (log)")
    right.axhline(100, color=INK, linewidth=1, linestyle=IDEAL)
    right.set(title="Efficiency: % of the ideal", ylim=(0, max(110, 1.05 * right.dataLim.ymax)))
    return figure


def scaling_lines(scene: Scene) -> tuple[list[Line], list[str]]:
    """Return one line per library and mode with several worker counts, and what is left out, in sentences.

    A library that steps in more processes than it was asked to has no scaling to show: its points would all be
    one and the same topology. Raises NoData, with the reason, when there is no line.
    """
    context = [name for name in g.varying([each.group for each in scene.series]) if name != "workers"]
    found: dict[str, dict[int, list[float]]] = {}
    several: dict[str, list[Series]] = {}
    ignored: dict[str, int] = {}
    for each in scene.series:
        workers, rates = int(each.group.key["workers"] or 0), list(g.by_seed(each.group, "env_steps_per_s").values())
        if not workers or not rates:
            continue
        name, seen = g.label(each.group, context), _workers_seen(scene, each)
        several.setdefault(name, []).append(each)
        if seen > workers:
            ignored[name] = seen
        else:
            found.setdefault(name, {})[workers] = rates
    if not several:
        raise NoData("no library ran with worker processes")
    if all(len(parts) == 1 for parts in several.values()):
        raise NoData("only one number of worker processes was run (`rlbench run --workers 1,2,4` compares several)")
    notes = [f"{name} steps in {seen} processes although fewer were asked for" for name, seen in ignored.items()]
    shown = {name: dict(sorted(rates.items())) for name, rates in found.items() if len(rates) > 1}
    if not shown:
        raise NoData("; ".join(notes) or "no library has its throughput measured at two numbers of workers")
    styles = looks([str(several[name][0].group.key["library"]) for name in shown])
    lines = []
    for name, look in zip(shown, styles, strict=True):
        marks = g.symbols([mark for each in several[name] for mark in each.markers])
        ceilings = [rate for each in several[name] for rate in g.by_seed(each.group, "ceiling_steps_per_s").values()]
        ceiling = sum(ceilings) / len(ceilings) if ceilings else None
        lines.append(Line(f"{name} {marks}".strip(), look, shown[name], ceiling))
    return lines, notes


def _workers_seen(scene: Scene, series: Series) -> int:
    """Most processes of one trial that stepped environments without being the learner (0 when not recorded)."""
    rows = scene.rows(series, "timeline")
    most = 0
    for trial in each_seed(rows):
        doing = trial.groupby("process")["kind"].agg(set)
        most = max(most, sum("env" in kinds and "learn" not in kinds for kinds in doing))
    return most


def _with_legend(lines: list[Line], notes: list[str]) -> tuple[Figure, Axes, Axes]:
    """Return a figure with two axes and, in a row of its own above both, the legend."""
    handles = [
        Line2D([], [], color=line.look.colour, linestyle=line.look.dash, marker=line.look.point, label=line.label)
        for line in lines
    ]
    handles.append(Line2D([], [], color=INK, linewidth=1, linestyle=IDEAL, label="ideal"))
    if any(line.ceiling for line in lines):
        label = "ceiling: random actions, one process"
        handles.append(Line2D([], [], color=INK, linewidth=1, linestyle=CEILING, label=label))
    columns = max(1, min(len(handles), 110 // (max(len(str(handle.get_label())) for handle in handles) + 8)))
    rows = -(-len(handles) // columns)
    height = LEGEND_ROW * (rows + len(notes)) + (0.15 if notes else 0.05)
    figure = Figure(figsize=(WIDTH, height + 3.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(height, 3.4), width_ratios=(1.25, 1))
    above = figure.add_subplot(grid[0, :])
    above.axis("off")
    above.legend(handles=handles, loc="upper left", ncols=columns, borderaxespad=0, borderpad=0, handlelength=2.6)
    for number, note in enumerate(notes):
        at = (LEGEND_ROW * (rows + number) + 0.1) / height
        above.text(0, 1 - at, f"Not shown: {note}.", fontsize=9, color=MUTED, va="top")
    return figure, figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])


def _worker_axis(axes: Axes, counts: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set(xlim=(counts[0] / 1.25, counts[-1] * 1.25), xlabel="worker processes")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _mark_cores(axes: Axes, cores: float, most: int) -> None:
    """Mark the machine's cores: beyond them workers share."""
    noun = "core" if cores == 1 else "cores"
    inside = cores <= 1.25 * most
    if inside:
        axes.axvline(cores, color=MUTED, linewidth=1.2)
    text = f"{cores:g} {noun}" if inside else f"{cores:g} {noun} →"
    axes.annotate(
        text, (cores if inside else 1, 0), (4 if inside else -2, 5), textcoords="offset points",
        xycoords=("data" if inside else "axes fraction", "axes fraction"), ha="left" if inside else "right",
        fontsize=8.5, color=MUTED,
    )  # fmt: skip
