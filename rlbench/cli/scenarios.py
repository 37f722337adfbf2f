"""``rlbench scenarios``: list and show what can be run."""

from __future__ import annotations

import json as jsonlib

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rlbench.catalog.scenario import load_scenario, scenario_names


def scenarios(
    name: str = typer.Argument(None, help="Scenario to show: a name, or a .toml file of your own."),
    json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """List the scenarios, or show one with every setting.

    Examples:

        rlbench scenarios

        rlbench scenarios quickstart --json
    """
    console = Console()
    if name:
        content = load_scenario(name).model_dump(mode="json")
        if json:
            typer.echo(jsonlib.dumps(content, indent=1))
            return
        table = Table("setting", "value", title=content["name"], caption=content["description"])
        for key, value in content.items():
            if isinstance(value, dict):
                for inner, each in value.items():
                    table.add_row(f"{key}.{inner}", _text(each))
            elif key not in ("name", "description"):
                table.add_row(key, _text(value))
        console.print(table)
        return
    loaded = [load_scenario(each) for each in scenario_names()]
    if json:
        typer.echo(jsonlib.dumps([each.model_dump(mode="json") for each in loaded], indent=1))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("topology", no_wrap=True)
    table.add_column("env steps", justify="right", no_wrap=True)
    table.add_column("description")
    for each in loaded:
        topology = each.topology
        where = topology.mode + (f" x {topology.workers}" if topology.workers else "")
        table.add_row(
            each.name,
            f"{where}, {topology.n_envs} {'env' if topology.n_envs == 1 else 'envs'}",
            f"{each.budget.env_steps:,}",
            each.description,
        )
    console.print(table)


def _text(value: object) -> str:
    return "-" if value is None else str(value)
