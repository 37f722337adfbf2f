"""Every library against a baseline: ratios with intervals, and in words what they allow to be said."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from rlbench.analyse.statistics import FEW_SEEDS, Ratio, ratio
from rlbench.errors import UserError, nearest
from rlbench.present import groups as g
from rlbench.present.figures import BY_NAME, COMPARED, MISSING, Figure, format_value
from rlbench.present.machine_readable import identity, strict
from rlbench.store.schema import SCHEMA_VERSION

NO_CALL = "no difference that can be called"
SAME = [name for name in g.KEY if name not in ("run_id", "library")]


def compare_json(
    trials: pd.DataFrame,
    baseline: str,
    audit: pd.DataFrame | None = None,
    figures: list[Figure] | None = None,
) -> dict[str, Any]:
    """Return each group's ratio to ``baseline`` of the same scenario and topology, figure by figure.

    The baseline's trials of the same run are used where there are any, else those of another run (said in
    ``note``). A ratio is null with a ``reason`` where it is not defined. Raises UserError for a baseline that
    has no trials.
    """
    groups = g.group_trials(trials)
    known = list(dict.fromkeys(str(group.key["library"]) for group in groups))
    if baseline not in known:
        raise UserError(
            f"no trials of baseline '{baseline}'{nearest(baseline, known)} (in the run: {', '.join(known)})"
        )
    chosen = figures or [BY_NAME[name] for name in COMPARED]
    found = []
    for group in groups:
        reference = _reference(group, groups, baseline)
        if reference is group:
            continue
        found.append(
            {
                **identity(group),
                "markers": [marker.text for marker in g.markers(group, audit)],
                "baseline_markers": [m.text for m in g.markers(reference, audit)] if reference else [],
                "note": _note(group, reference),
                "figures": {figure.name: _compared(group, reference, figure) for figure in chosen},
            }
        )
    return strict({"schema_version": SCHEMA_VERSION, "baseline": baseline, "comparisons": found})


def compare_table(
    trials: pd.DataFrame,
    baseline: str,
    audit: pd.DataFrame | None = None,
    figures: list[Figure] | None = None,
) -> Table:
    """Return `compare_json` as a table for the terminal, one section per group."""
    data = compare_json(trials, baseline, audit, figures)
    context = g.varying(g.group_trials(trials))
    grid = Table.grid()
    for each in data["comparisons"]:
        grid.add_row(_section(each, baseline, context))
        lines = [f"{each['library']}: {text}" for text in each["markers"]]
        lines += [f"{baseline}: {text}" for text in each["baseline_markers"]]
        for line in [*lines, *([each["note"]] if each["note"] else [])]:
            grid.add_row(Text(f"  ! {line}", style="yellow"))
        grid.add_row(Text(""))
    if not data["comparisons"]:
        grid.add_row(Text(f"Nothing to compare with {baseline}: it is the only library here."))
    return grid


def _section(each: dict[str, Any], baseline: str, context: list[str]) -> Table:
    shown = " · ".join([each["library"], *(f"{g.HEADINGS[name]} {each[name]}" for name in context)])
    title = Text(f"{shown} against {baseline}", style="bold")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    # The headings carry the marks, so that no figure stands without them.
    ours, theirs = (f"{name} !" if marks else name for name, marks in (
        (each["library"], each["markers"]), (baseline, each["baseline_markers"]),
    ))  # fmt: skip
    for column in (Text(ours), Text(theirs), "ratio [95 % interval]"):
        table.add_column(column, justify="right", overflow="fold")
    table.add_column("so", overflow="fold")
    rows = each["figures"]
    if all(row["candidate"] is None for row in rows.values()):
        reasons = list(dict.fromkeys(row["reason"] for row in rows.values()))
        table.add_row("all", "", MISSING, "", MISSING, Text("; ".join(reasons)))
        return table
    for name, row in rows.items():
        table.add_row(*_cells(BY_NAME[name], row))
    return table


def verdict(figure: Figure, found: Ratio) -> str:
    """Return in words what ``found`` (candidate / baseline) allows to be said."""
    if found.low is None or found.high is None:
        return "one seed only: no call"
    if found.low <= 1 <= found.high:
        return NO_CALL
    above = found.value > 1
    words = "higher" if above else "lower"
    if figure.better != "neither":
        words += " (better)" if above == (figure.better == "higher") else " (worse)"
    return f"{words}; only {found.n} seeds, tentative" if found.n < FEW_SEEDS else words


def _reference(group: g.Group, groups: list[g.Group], baseline: str) -> g.Group | None:
    same = [
        each
        for each in groups
        if each.key["library"] == baseline and all(each.key[name] == group.key[name] for name in SAME)
    ]
    here = [each for each in same if each.key["run_id"] == group.key["run_id"]]
    return next(iter(here or same), None)


def _note(group: g.Group, reference: g.Group | None) -> str | None:
    if reference is not None and reference.key["run_id"] != group.key["run_id"]:
        origin = reference.key["run_id"]
        return f"baseline is from run {origin}: machine and load may have differed between the runs"
    return None


def _compared(group: g.Group, reference: g.Group | None, figure: Figure) -> dict[str, Any]:
    ours = g.measured(group, figure.name)
    row: dict[str, Any] = {
        "label": figure.label, "unit": "share" if figure.style == "share" else figure.unit,
        "better": figure.better, "candidate": ours.summary.mean, "baseline": None,
        "ratio": None, "low": None, "high": None, "n": 0, "paired": None, "verdict": None, "reason": None,
    }  # fmt: skip
    if reference is None:
        return row | {"reason": "the baseline has no trial of this scenario and topology"}
    theirs = g.measured(reference, figure.name)
    row["baseline"] = theirs.summary.mean
    for side, name in ((ours, group.key["library"]), (theirs, reference.key["library"])):
        if side.summary.mean is None:
            return row | {"reason": f"{name}: {'; '.join(side.reasons) or 'not measured'}"}
    found = ratio(g.by_seed(group, figure.name), g.by_seed(reference, figure.name))
    if found is None:
        return row | {"reason": "no ratio: a value is not above 0"}
    return row | found._asdict() | {"ratio": found.value, "verdict": verdict(figure, found)}


def _cells(figure: Figure, row: dict[str, Any]) -> list[str | Text]:
    shown = MISSING
    if row["ratio"] is not None:
        shown = f"{row['ratio']:.3g}×"
        if row["low"] is not None:
            shown += f" [{row['low']:.3g}, {row['high']:.3g}]"
    values = [format_value(figure, row[side]) for side in ("candidate", "baseline")]
    return [figure.label, figure.unit, *values, shown, Text(row["verdict"] or row["reason"])]
