"""Writes a run's report: one HTML file with everything in it, nothing loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlbench.catalog.library import Library
from rlbench.present import style
from rlbench.present.charts import Chart, chart_list, write_atomically
from rlbench.present.figures import BY_NAME, FIGURES
from rlbench.present.groups import SYMBOL_MEANINGS
from rlbench.present.report_data import (
    MAIN,
    audits,
    diagnoses,
    facts,
    library_notes,
    load_run,
    problems,
    sections,
)
from rlbench.store.reader import read_table
from rlbench.store.schema import SCHEMA_VERSION, TABLES

# Colours that follow the reader's light or dark setting; all others are data.
THEMED = {
    style.INK: "var(--ink)",
    style.MUTED: "var(--muted)",
    style.GRID: "var(--grid)",
    style.PAPER: "var(--card)",
}


def write_report(run: Path, libraries: dict[str, Library] | None = None, charts: list[Chart] | None = None) -> Path:
    """Write ``run/report.html`` and return its path; draws the run's charts unless they are given.

    ``libraries`` adds what the catalogue knows of them: known issues, and settings that cannot be set. A
    run without a single ok trial still gets a report. Raises UserError for a folder that is not a run or
    not writable.
    """
    info = load_run(run)
    trials, audit = read_table(run, "trials"), read_table(run, "audit")
    charts = chart_list(run) if charts is None else charts
    names = sorted(set(trials["library"].dropna()))
    context: dict[str, Any] = {
        "run": facts(trials, info),
        "sections": sections(trials, audit),
        "charts": [_shown(chart) for chart in charts],
        "main": [BY_NAME[name] for name in MAIN],
        "figures": FIGURES,
        "symbols": SYMBOL_MEANINGS,
        "audits": audits(audit),
        "diagnoses": diagnoses(
            trials, {"audit": audit, **{name: read_table(run, name) for name in ("lags", "windows")}}
        ),
        "problems": problems(trials),
        "notes": library_notes(names, libraries),
        "schema_version": SCHEMA_VERSION,
        "tables": list(TABLES),
    }
    path = run / "report.html"
    write_atomically(path, _template().render(context).encode())
    return path


def _template() -> Any:
    # Reasons and output tails come from the guests: they must never be taken for markup.
    environment = Environment(
        loader=PackageLoader("rlbench", "present"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2")


def _shown(chart: Chart) -> dict[str, Any]:
    return {
        "name": chart.name,
        "scenario": chart.scenario,
        "title": chart.title,
        "reading": chart.reading,
        "caption": chart.caption,
        "skipped": chart.skipped,
        "svg": _inline(chart.svg.read_text(), chart) if chart.svg else None,
    }


def _inline(svg: str, chart: Chart) -> Markup:
    """Return the SVG as part of a page: no XML prologue, as wide as its place, in the page's colours."""
    root, body = svg[svg.index("<svg") :].split(">", 1)
    view = root[root.index('viewBox="') :].split('"')[1]
    for colour, variable in THEMED.items():
        body = body.replace(colour, variable)
    title = Markup.escape(chart.title)
    opening = Markup('<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" ')
    # matplotlib escapes the texts that it puts into an SVG, so its body is markup as it stands.
    return opening + Markup('viewBox="{}" role="img" aria-label="{}">').format(view, title) + Markup(body)
