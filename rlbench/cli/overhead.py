"""``rlbench overhead``: what the probe itself costs."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from rlbench.catalog.library import find_library, load_libraries
from rlbench.catalog.scenario import load_scenario, overridden
from rlbench.errors import Unavailable, UserError
from rlbench.execute.overhead import measure_overhead
from rlbench.provision.build import environments


def overhead(
    library: list[str] = typer.Option(..., "--library", "-l", help="Library; repeat, or separate by commas."),
    scenario: str = typer.Option("quickstart", "--scenario", help="Scenario to run."),
    steps: int = typer.Option(None, "--steps", min=1, help="Environment steps per arm (default: the scenario's)."),
    rounds: int = typer.Option(5, "--rounds", min=1, help="Pairs of runs."),
    adapters: list[Path] = typer.Option(None, "--adapters", help="Folder with adapters of your own; repeat."),
    json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """Measure what the probe costs: full probe against a bare step counter, in turn, as a ratio with interval.

    Example:

        rlbench overhead --library sb3,cleanrl --rounds 7
    """
    known = load_libraries(adapters)
    chosen = [find_library(name, known) for group in library for name in group.split(",") if name.strip()]
    asked = load_scenario(scenario)
    if steps:
        asked = overridden(asked, {"budget.env_steps": steps}, "--steps")
    console = Console(stderr=True, highlight=False)
    built = environments(chosen, report=console.print)
    results = []
    for each in chosen:
        guest = built[each.name]
        if isinstance(guest, Unavailable):
            raise UserError(f"{each.name}: {guest}")
        results.append(measure_overhead(each, guest, asked, rounds, console.print))
    if json:
        typer.echo(jsonlib.dumps(results, indent=1))
        return
    table = Table(
        "library",
        "median ratio",
        "ratio of means [95 %]",
        "CPU: median ratio",
        "CPU: ratio [95 %]",
        title=f"full probe / bare step counter, {asked.name}, {rounds} rounds (1 = no cost)",
    )
    for each_result in results:
        cells = [each_result["library"]]
        for name in ("throughput", "cpu"):
            found = each_result[name]
            spread = f" [{found['low']:.3f}, {found['high']:.3f}]" if found["low"] is not None else ""
            cells += [f"{found['median_ratio']:.3f}", f"{found['ratio']:.3f}{spread}"]
        table.add_row(*cells)
    Console().print(table)
