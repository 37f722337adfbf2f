"""``rlbench adapter``: start an adapter of your own, and hold it to the contract."""

from __future__ import annotations

import json as jsonlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rlbench.catalog.library import find_library, load_libraries
from rlbench.catalog.paths import PACKAGE
from rlbench.catalog.scenario import load_scenario, overridden
from rlbench.contract import CHECKS, Trial, breaches
from rlbench.errors import UserError
from rlbench.execute.run import execute_run
from rlbench.execute.spec import RunSpec
from rlbench.store.reader import read_table
from rlbench.store.schema import TABLES

adapter_app = typer.Typer(no_args_is_help=True)
TEMPLATE = PACKAGE / "cli" / "adapter_template"


@adapter_app.command()
def new(
    name: str = typer.Argument(..., help="Name of the library: lower case, digits and underscores."),
    folder: Path = typer.Option(Path("adapters"), "--dir", help="Folder that receives the adapter's folder."),
) -> None:
    """Make a commented adapter that works: replace its small learner by calls of your library.

    Example: `rlbench adapter new my_library`
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError(f"'{name}' cannot be an adapter's name: use lower case letters, digits and underscores")
    target = folder / name
    if target.exists():
        raise UserError(f"{target} is there already; name another library or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(TEMPLATE, target, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from None
    toml = target / "adapter.toml"
    toml.write_text(toml.read_text().replace("NAME", name))
    typer.echo(f"{target}/ holds a working adapter. Next:")
    typer.echo("  1. name your library's packages in requirements.in and fill in adapter.toml")
    typer.echo(f"  2. rlbench env lock {name} --adapters {folder}")
    typer.echo("  3. drive your library in adapter.py")
    typer.echo(f"  4. rlbench adapter check {name} --adapters {folder}")


@adapter_app.command()
def check(
    name: str = typer.Argument(..., help="Library, or library:variant."),
    adapters: list[Path] = typer.Option(None, "--adapters", help="Folder with adapters of your own; repeat."),
    scenario: str = typer.Option("cartpole-ppo", "--scenario", help="Scenario that is run."),
    steps: int = typer.Option(12_288, "--steps", min=1, help="Environment steps."),
    json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """Run an adapter in its real environment and say which clauses of the contract hold, and what to do.

    Exit code 0: all hold; 1: some do not.

    Example: `rlbench adapter check my_library --adapters adapters`
    """
    library = find_library(name, load_libraries(adapters))
    asked = overridden(load_scenario(scenario), {"budget.env_steps": steps}, "--steps")
    with tempfile.TemporaryDirectory(prefix="rlbench-check-") as temporary:
        run = Path(temporary) / "run"
        spec = RunSpec("run", [library.label], [asked], [1], [])
        spec.save(run)
        execute_run(run, spec, [library], jobs=1, keep_ledgers=False)
        tables = {table: read_table(run, table) for table in TABLES}
    row = {str(key): value for key, value in tables["trials"].iloc[0].items()}
    trial = Trial(library, asked, row, tables)
    _show(trial, json)


def _show(trial: Trial, json: bool) -> None:
    broken = {clause.name: wrong for clause, wrong in breaches(trial)}
    failed = trial.row["status"] != "ok"
    rows: list[dict[str, Any]] = []
    for clause in CHECKS:
        wrong = broken.get(clause.name)
        state = "fails" if wrong else ("not checked" if failed else "holds")
        rows.append({"clause": clause.name, "state": state, "wrong": wrong, "advice": clause.advice if wrong else None})
    if json:
        typer.echo(jsonlib.dumps({"library": trial.library.label, "clauses": rows}, indent=1))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for row in rows:
            mark = {"holds": "[green]✓[/green]", "fails": "[red]✗[/red]", "not checked": "–"}[row["state"]]
            console.print(f"{mark} {row['clause']}")
            if row["wrong"]:
                console.print(f"    {row['wrong']}", markup=False)
                console.print(f"    what to do: {row['advice']}", markup=False)
    if broken:
        raise typer.Exit(1)
