"""Chart of scaling: what more worker processes bring, against what they would bring at best."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlbench.present import groups as g
from rlbench.present.chart_data import NoData, Scene, Series
from rlbench.present.chart_parts import LEGEND_ROW, plain_ticks, thousands
from rlbench.present.style import INK, MUTED, WIDTH, Look, looks

IDEAL = (0, (1, 2))


class Line(NamedTuple):
    """One library in one mode: steps/s of each seed by number of workers, ascending."""

    label: str
    look: Look
    rates: dict[int, list[float]]

    def mean(self, workers: int) -> float:
        """Mean steps/s over seeds."""
        return sum(self.rates[workers]) / len(self.rates[workers])

    def ideal(self, workers: int) -> float:
        """Steps/s if they grew with the workers from the fewest that were run."""
        fewest = min(self.rates)
        return self.mean(fewest) * workers / fewest


def scaling(scene: Scene) -> Figure:
    """Throughput against workers with the ideal from the fewest of them; beside it the share of that ideal."""
    lines = scaling_lines(scene.series)
    counts = sorted({count for line in lines for count in line.rates})
    figure, left, right = _with_legend(lines)
    for line in lines:
        own, colour = list(line.rates), line.look.colour
        means, ideals = [line.mean(count) for count in own], [line.ideal(count) for count in own]
        left.plot(own, ideals, color=colour, linewidth=1, linestyle=IDEAL)
        for axes, values in ((left, means), (right, [100 * m / i for m, i in zip(means, ideals, strict=True)])):
            axes.plot(own, values, color=colour, linestyle=line.look.dash, marker=line.look.point, markersize=6)
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


def scaling_lines(series: Iterable[Series]) -> list[Line]:
    """Return one line per library and mode with several worker counts; raises NoData when there is none."""
    groups = [each.group for each in series]
    context = [name for name in g.varying(groups) if name != "workers"]
    marks: dict[str, list[g.Marker]] = {}
    rates: dict[str, dict[int, list[float]]] = {}
    libraries: dict[str, str] = {}
    for each in series:
        workers, seeds = int(each.group.key["workers"] or 0), list(g.by_seed(each.group, "env_steps_per_s").values())
        if workers and seeds:
            name = g.label(each.group, context)
            rates.setdefault(name, {})[workers] = seeds
            marks.setdefault(name, []).extend(each.markers)
            libraries[name] = str(each.group.key["library"])
    if not rates:
        raise NoData("no library ran with worker processes")
    several = {name: dict(sorted(found.items())) for name, found in rates.items() if len(found) > 1}
    if not several:
        raise NoData("only one number of worker processes was run (`rlbench run --workers 1,2,4` compares several)")
    styles = looks([libraries[name] for name in several])
    return [
        Line(f"{name} {g.symbols(marks[name])}".strip(), look, several[name])
        for name, look in zip(several, styles, strict=True)
    ]


def _with_legend(lines: list[Line]) -> tuple[Figure, Axes, Axes]:
    """Return a figure with two axes and, in a row of its own above both, the legend."""
    handles = [
        Line2D([], [], color=line.look.colour, linestyle=line.look.dash, marker=line.look.point, label=line.label)
        for line in lines
    ]
    handles.append(Line2D([], [], color=INK, linewidth=1, linestyle=IDEAL, label="ideal"))
    columns = max(1, min(len(handles), 110 // (max(len(str(handle.get_label())) for handle in handles) + 8)))
    height = LEGEND_ROW * -(-len(handles) // columns) + 0.05
    figure = Figure(figsize=(WIDTH, height + 3.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(height, 3.4), width_ratios=(1.25, 1))
    above = figure.add_subplot(grid[0, :])
    above.axis("off")
    above.legend(handles=handles, loc="upper left", ncols=columns, borderaxespad=0, borderpad=0, handlelength=2.6)
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
