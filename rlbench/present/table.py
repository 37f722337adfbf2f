"""Terminal tables of a run: one row per library x scenario x topology, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as RenderGroup
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rlbench.analyse.statistics import FEW_SEEDS, Summary
from rlbench.present import groups as g
from rlbench.present.figures import BY_NAME, MISSING, Figure, format_value

RATE_COLUMNS = ["steps/s\n[95 % interval]", "steps/s"]  # with room for the interval and without
SPEED_COLUMNS = ["of ceiling\n%", "action\np50 / p99 ms", "update\np50 ms", "peak\nMB"]
FRESH_COLUMNS = ["lag mean\n(min..max)", "age\np50 ms", "reuse", "genuine\n%"]
LEARNING_COLUMNS = ["return\nlast", "return\ngreedy", "learned"]
# Shown when some row is not synchronous in one process.
ASYNC_COLUMNS = {
    "overlap": "overlap\n%", "actor_idle": "actors\nidle %", "learner_idle": "learner\nidle %",
    "sync_lag_mean": "sync\nlag", "queue_lag_mean": "queue\nlag", "never_learned": "never\nlearned %",
}  # fmt: skip

# Told apart by tables of their own, not by rows.
SECTION = ["run_id", "scenario"]

Cells = Callable[[g.Group], list[str]]


class Fitting:
    """Tables in several layouts, widest first: printed is the first one that fits the terminal, or the last."""

    def __init__(self, *layouts: list[Table]) -> None:
        self.layouts = layouts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables of the layout that fits."""
        endless = options.update(max_width=10_000)
        for tables in self.layouts:
            if max(Measurement.get(console, endless, table).maximum for table in tables) <= options.max_width:
                break
        yield from tables


def run_table(trials: pd.DataFrame, audit: pd.DataFrame | None = None) -> RenderableType:
    """Return the tables "Speed", "Freshness and learning", "Asynchrony" and "Notes", one below the other.

    ``trials`` is the table of one or several runs, each run and scenario with tables of its own; with
    ``audit``, the notes name the settings that differ. On a terminal too narrow for a table (down to about
    80 columns) intervals are left out and learning has a table of its own, so that names are never cut.
    "Asynchrony" is there when some row is not synchronous.
    """
    everything = g.group_trials(trials)
    if not everything:
        return _stack([Text("No trials are stored in this run yet.")])
    parts: list[RenderableType] = []
    for heading, groups in _sections(everything):
        context = [name for name in g.varying(groups) if name not in SECTION]
        marks = [g.markers(group, audit) for group in groups]
        names = [_name(group, context, found) for group, found in zip(groups, marks, strict=True)]
        table = partial(_filled, heading, groups, names)
        wide = table("Speed", [RATE_COLUMNS[0], *SPEED_COLUMNS], _rate_with_interval, _speed_cells)
        narrow = table("Speed", [RATE_COLUMNS[1], *SPEED_COLUMNS], _rate, _speed_cells)
        both = table("Freshness and learning", FRESH_COLUMNS + LEARNING_COLUMNS, _fresh_cells, _learning_cells)
        apart = [table("Freshness", FRESH_COLUMNS, _fresh_cells), table("Learning", LEARNING_COLUMNS, _learning_cells)]
        parts += [Fitting([wide], [narrow]), Fitting([both], apart)]
        if any(group.key["mode"] != "sync" for group in groups):
            parts.append(table("Asynchrony", list(ASYNC_COLUMNS.values()), _async_cells))
        parts += _notes(heading, groups, names, marks)
    return _stack([*parts, legend(everything)])


def figure_table(trials: pd.DataFrame, figures: list[Figure], audit: pd.DataFrame | None = None) -> RenderableType:
    """Return one table per chosen figure: mean, interval, seeds and the reasons where it was not measured."""
    everything = g.group_trials(trials)
    parts: list[RenderableType] = []
    for heading, groups in _sections(everything):
        context = [name for name in g.varying(groups) if name not in SECTION]
        marks = [g.markers(group, audit) for group in groups]
        names = [_name(group, context, found) for group, found in zip(groups, marks, strict=True)]
        for figure in figures:
            unit = f" ({figure.unit})" if figure.unit else ""
            title = f"{figure.label}{unit}: {figure.name}{heading}"
            table = _table(title, groups, ["mean", "95 % interval", "seeds"])
            table.add_column("not measured because", overflow="fold")
            for name, group in zip(names, groups, strict=True):
                value, reasons = g.measured(group, figure.name)
                shown = [format_value(figure, value.mean), bounds(figure, value) or MISSING, str(value.n)]
                table.add_row(name, *shown, Text("; ".join(reasons_text(reasons))))
            parts += [table, Text(figure.reading, style="dim"), Text("")]
        parts += _notes(heading, groups, names, marks)
    return _stack([*parts, legend(everything)])


def reasons_text(reasons: dict[str, int]) -> list[str]:
    """Return the reasons for nulls, each with the number of trials when that is more than one."""
    return [f"{reason} ({count} trials)" if count > 1 else reason for reason, count in reasons.items()]


def bounds(figure: Figure, value: Summary) -> str:
    """Return the interval as ``[low, high]``, or an empty string where there is none."""
    if value.low is None or value.high is None:
        return ""
    return f"[{format_value(figure, value.low)}, {format_value(figure, value.high)}]"


def learned_text(group: g.Group) -> str:
    """Return ✓ or ✗ with the seeds that learned, e.g. ``✗ 1/3``; "–" where it was not judged."""
    judged, found = g.learned(group)
    return MISSING if not judged else f"{'✓' if found == judged else '✗'} {found}/{judged}"


def _rate(group: g.Group) -> list[str]:
    return [_mean(group, "env_steps_per_s")]


def _rate_with_interval(group: g.Group) -> list[str]:
    steps = g.measured(group, "env_steps_per_s").summary
    figure = BY_NAME["env_steps_per_s"]
    return [f"{format_value(figure, steps.mean)} {bounds(figure, steps)}".strip()]


def _speed_cells(group: g.Group) -> list[str]:
    return [
        _mean(group, "share_of_ceiling"),
        f"{_mean(group, 'action_latency_ms_p50')} / {_mean(group, 'action_latency_ms_p99')}",
        _mean(group, "update_latency_ms_p50"),
        _mean(group, "peak_memory_mb"),
    ]


def _fresh_cells(group: g.Group) -> list[str]:
    lag = _mean(group, "lag_mean")
    low, high = group.ok["lag_min"].min(), group.ok["lag_max"].max()
    if lag != MISSING and not pd.isna(low) and not pd.isna(high):
        lag += f" ({format_value(BY_NAME['lag_min'], low)}..{format_value(BY_NAME['lag_max'], high)})"
    return [lag, *(_mean(group, name) for name in ("sample_age_ms_p50", "reuse_mean", "provenance_genuine"))]


def _learning_cells(group: g.Group) -> list[str]:
    return [_mean(group, "return_last"), _mean(group, "return_greedy"), learned_text(group)]


def _async_cells(group: g.Group) -> list[str]:
    return [_mean(group, name) for name in ASYNC_COLUMNS]


def _mean(group: g.Group, name: str) -> str:
    return format_value(BY_NAME[name], g.measured(group, name).summary.mean)


def _sections(groups: list[g.Group]) -> list[tuple[str, list[g.Group]]]:
    """Split groups by run and scenario; the heading names those of the two that vary."""
    shown = [name for name in g.varying(groups) if name in SECTION]
    found: dict[str, list[g.Group]] = {}
    for group in groups:
        words = ", ".join(f"{g.HEADINGS[name]} {group.key[name]}" for name in shown)
        found.setdefault(f" ({words})" if words else "", []).append(group)
    return list(found.items())


def _table(title: str, groups: list[g.Group], columns: list[str]) -> Table:
    # As text, not markup: a run's id may hold brackets.
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    longest = max((len(str(group.key["library"])) for group in groups), default=0)
    # Wide enough for every name with its marks, so that only the topology below it is wrapped.
    width = longest + 1 + len(g.SYMBOL_MEANINGS)
    table.add_column("library", min_width=width, max_width=max(width, 24))
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table


def _filled(
    heading: str, groups: list[g.Group], names: list[Text], title: str, columns: list[str], *cells: Cells
) -> Table:
    table = _table(f"{title}{heading}", groups, columns)
    for name, group in zip(names, groups, strict=True):
        table.add_row(name, *(cell for part in cells for cell in part(group)))
    return table


def _name(group: g.Group, context: list[str], found: list[g.Marker]) -> Text:
    name = Text(str(group.key["library"]))
    mark = g.symbols(found)
    if mark:
        name.append(f" {mark}", style="yellow")
    topology = g.topology(group, context)
    if topology:
        name.append(f"\n{', '.join(topology)}", style="dim")
    return name


def _notes(heading: str, groups: list[g.Group], names: list[Text], marks: list[list[g.Marker]]) -> list[Table]:
    if not any(marks):
        return []
    table = _table(f"Notes{heading}", groups, [])
    table.add_column("note", overflow="fold")
    for name, found in zip(names, marks, strict=True):
        if found:
            # As text, not markup: a reason comes from the guest and may hold brackets.
            table.add_row(name, Text("\n".join(f"{m.symbol} {m.text}" for m in found)))
    return [table]


def legend(groups: list[g.Group]) -> Text:
    """Return one line that explains the symbols in use and how many seeds the intervals rest on."""
    used = set("".join(g.symbols(g.markers(group)) for group in groups))
    parts = [f"{mark} {meaning}" for mark, meaning in g.SYMBOL_MEANINGS.items() if mark in used]
    seeds = [len(group.ok) for group in groups if len(group.ok)]
    if seeds and min(seeds) < FEW_SEEDS:
        parts.append(f"intervals over fewer than {FEW_SEEDS} seeds are too narrow: take them as a range")
    parts.append(f"{MISSING} not measured (reasons: --json)")
    return Text("; ".join(parts), style="dim")


def _stack(parts: Sequence[RenderableType]) -> RenderableType:
    return RenderGroup(*parts)
