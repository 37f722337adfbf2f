"""`rlbench show`, `compare`, `report` and `schema`: stored results, shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlbench.catalog.library import Library, load_libraries
from rlbench.errors import UserError
from rlbench.present.compare import compare_json, compare_table
from rlbench.present.figures import find_figures
from rlbench.present.machine_readable import run_json, strict
from rlbench.present.report import write_report
from rlbench.present.table import figure_table, run_table
from rlbench.store.reader import RESULTS, find_run, read_table
from rlbench.store.schema import SCHEMA_VERSION, TABLES

RunName = Annotated[str, typer.Argument(help="Run id, folder of a run, or 'latest'.")]
FigureNames = Annotated[
    list[str] | None,
    typer.Option("--figure", "-f", help="Show this figure, or this family (lag); may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Results = Annotated[Path, typer.Option("--results", help="Folder that runs are looked up in.")]


def show(
    run: RunName = "latest", figure: FigureNames = None, as_json: AsJson = False, results: Results = RESULTS
) -> None:
    """Show a run's figures, one row per library and topology, over seeds.

    Example: rlbench show latest --figure lag --figure env_steps_per_s
    """
    folder = find_run(run, results)
    trials, audit = read_table(folder, "trials"), read_table(folder, "audit")
    figures = find_figures(figure or [])
    if as_json:
        _print_json(run_json(trials, audit, figures or None))
    else:
        Console().print(figure_table(trials, figures, audit) if figures else run_table(trials, audit))


def compare(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to read together (default: latest).")] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", "-b", help="Library that the others are compared with.")
    ] = "sb3",
    figure: FigureNames = None,
    as_json: AsJson = False,
    results: Results = RESULTS,
) -> None:
    """Compare every library with a baseline: ratios with intervals, and what can be said from them.

    Example: rlbench compare latest --baseline sb3
    """
    folders = list(dict.fromkeys(find_run(name, results) for name in runs or ["latest"]))
    trials, audit = read_table(folders, "trials"), read_table(folders, "audit")
    figures = find_figures(figure or []) or None
    if as_json:
        _print_json(compare_json(trials, baseline, audit, figures))
    else:
        Console().print(compare_table(trials, baseline, audit, figures))


def report(run: RunName = "latest", results: Results = RESULTS) -> None:
    """Draw a run's charts again and write its report.html; prints the path.

    Example: rlbench report latest
    """
    folder = find_run(run, results)
    typer.echo(write_report(folder, _libraries()))


def schema(
    as_json: AsJson = False,
    table: Annotated[str | None, typer.Option("--table", "-t", help="Only this table.")] = None,
) -> None:
    """Print every table and column of the dataset with type, unit and meaning.

    Example: rlbench schema --table trials
    """
    if table is not None and table not in TABLES:
        raise UserError(f"unknown table '{table}' (known: {', '.join(TABLES)})")
    chosen = {name: columns for name, columns in TABLES.items() if table in (None, name)}
    if as_json:
        listed = {
            name: [column._asdict() | {"type": str(column.type)} for column in columns]
            for name, columns in chosen.items()
        }
        _print_json({"schema_version": SCHEMA_VERSION, "tables": listed})
        return
    console = Console()
    console.print(f"Schema version {SCHEMA_VERSION}; one Parquet file per trial in each table's folder of a run.\n")
    for name, columns in chosen.items():
        shown = Table(title=Text(name, style="bold"), title_justify="left", box=None, pad_edge=False)
        for heading in ("column", "type", "unit", "meaning"):
            shown.add_column(heading, overflow="fold")
        for column in columns:
            shown.add_row(column.name, str(column.type), column.unit, Text(column.meaning))
        console.print(shown)
        console.print()


def _libraries() -> dict[str, Library] | None:
    # What the catalogue says of the libraries is an addition: a broken adapter must not hide measured
    # results.
    try:
        return load_libraries()
    except UserError as error:
        typer.echo(f"warning: known issues of the libraries are left out of the report: {error}", err=True)
        return None


def _print_json(data: dict[str, Any]) -> None:
    typer.echo(json.dumps(strict(data), indent=2, allow_nan=False, ensure_ascii=False))
