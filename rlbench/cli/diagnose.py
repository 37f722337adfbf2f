"""``rlbench diagnose``: what holds a trial back."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rlbench.analyse.diagnose import Evidence, diagnose
from rlbench.errors import UserError, nearest
from rlbench.store.reader import RESULTS, find_run, read_table

_TABLES = ("lags", "audit", "windows")


def diagnose_run(
    run: str = typer.Argument("latest", help="Run id, folder of a run, or 'latest'."),
    trial: str = typer.Option(None, "--trial", help="Only this trial (its id, or a library's name)."),
    results: Path = typer.Option(RESULTS, "--results", help="Folder that runs are looked up in."),
    json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """Say in sentences what holds each trial back, with the figure that shows it and what usually helps.

    Example: `rlbench diagnose latest --trial rllib`
    """
    folder = find_run(run, results)
    trials = read_table(folder, "trials").sort_values("order")
    if trial:
        chosen = trials[(trials["trial_id"] == trial) | (trials["library"] == trial)]
        if chosen.empty:
            known = [*trials["trial_id"], *trials["library"].unique()]
            raise UserError(f"run {folder.name} has no trial '{trial}'{nearest(trial, known)}")
        trials = chosen
    tables = {name: read_table(folder, name) for name in _TABLES}
    found: list[dict[str, Any]] = []
    for record in trials.to_dict("records"):
        row = {str(key): value for key, value in record.items()}
        mine = {name: table[table["trial_id"] == row["trial_id"]] for name, table in tables.items()}
        findings = diagnose(Evidence(row, mine))
        found.append({"trial": row["trial_id"], "findings": [finding._asdict() for finding in findings]})
    if json:
        typer.echo(jsonlib.dumps(found, indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        console.print(f"[bold]{each['trial']}[/bold]")
        for finding in each["findings"]:
            console.print(f"  {finding['name']}: {finding['sentence']}.", markup=False)
            console.print(f"    what usually helps: {finding['remedy']}", style="dim", markup=False)
        if not each["findings"]:
            console.print("  nothing stands out")
