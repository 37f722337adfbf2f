"""``rlbench lab``: experiments that each test one published claim about asynchronous RL."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rlbench.errors import UserError
from rlbench.lab import chart, page, store
from rlbench.lab.catalog import Experiment, experiments, find_experiments
from rlbench.lab.run import interpreter, run_experiment
from rlbench.store.reader import RESULTS

lab_app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@lab_app.command("list")
def list_experiments(as_json: AsJson = False) -> None:
    """List the experiments and the claim that each tests.

    Example: rlbench lab list
    """
    known = experiments()
    if as_json:
        rows = [{"name": e.name, "title": e.title, "claim": e.claim, "sizes": e.sizes} for e in known.values()]
        typer.echo(jsonlib.dumps(rows, indent=1, ensure_ascii=False))
        return
    shown = RichTable("experiment", "claim")
    for each in known.values():
        shown.add_row(each.name, escape(each.claim))
    Console().print(shown)


@lab_app.command("run")
def run_lab(
    name: Annotated[str, typer.Argument(help="An experiment, several separated by commas, or 'all'.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: minutes for all, verdicts are preliminary.")
    ] = False,
    results: Annotated[Path, typer.Option("--results", help="Folder that results go to.")] = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Run experiments one after another; each ends in a table, a chart and a verdict.

    Writes Parquet, charts and one page, lab.html, into a new folder. The environment 'reference' is built on first
    use. One experiment that fails does not stop the others (exit code 1); Ctrl-C keeps those that are finished.

    Examples:

        rlbench lab run buffer-lock

        rlbench lab run sync,lora-traffic --quick

        rlbench lab run all --results lab-results --json
    """
    known = experiments()
    chosen = find_experiments(name, known)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    # Before the environment, whose building takes minutes: a folder that cannot be written is told at once.
    folder = store.begin(results, quick)
    facts = jsonlib.loads((folder / "lab.json").read_text())
    machine = facts["machine"]
    if facts["load_average"] > machine["cores_usable"] / 2:
        errors.print(
            f"the machine is busy (load average {facts['load_average']:g} on {machine['cores_usable']} cores): "
            "intervals will be wide"
        )
    entries: list[dict[str, Any]] = []
    try:
        python = interpreter(lambda message: errors.print(escape(message)))
        for number, experiment in enumerate(chosen, 1):
            errors.print(f"[bold][{number}/{len(chosen)}] {experiment.name}[/bold]: {escape(experiment.title)}")
            found = run_experiment(experiment, python, quick, lambda note: errors.print(f"    {escape(note)}"))
            entry = store.entry(experiment, found, quick)
            store.write(folder, entry, found.rows)
            entries.append(entry)
            if found.rows:
                caption = [f"{page.headline(entry)}. {page.conditions(entry, machine)}"]
                chart.draw(experiment, found.rows, caption, folder / "charts")
            page.write_page(folder, known)
            errors.print(f"    {escape(_said(entry))} ({entry['seconds']:.0f} s)")
            if not as_json and found.rows:
                _print_table(experiment, found.rows)
    except KeyboardInterrupt:
        if not entries:
            store.discard(folder)
            errors.print("\nstopped before the first experiment was finished")
            raise typer.Exit(130) from None
        errors.print(f"\nstopped; {len(entries)} finished experiments are kept in {folder}/")
        raise typer.Exit(130) from None
    except UserError:
        if not entries:
            store.discard(folder)
        raise
    if as_json:
        rows = [
            {
                **each,
                "sizes": jsonlib.loads(each["sizes"]),
                "versions": jsonlib.loads(each["versions"]),
                "conditions": page.conditions(each, machine),
            }
            for each in entries
        ]
        typer.echo(jsonlib.dumps({"results": str(folder), "experiments": rows}, indent=1, ensure_ascii=False))
    else:
        for each in entries:
            typer.echo(f"{each['experiment']}: {_said(each)}\n    {page.conditions(each, machine)}")
        typer.echo(f"\nParquet  {folder}/{{measurements,verdicts}}/\ncharts   {folder}/charts/ (PNG and SVG)")
        typer.echo(f"page     {folder}/lab.html")
    if any(each["status"] != "ok" for each in entries):
        raise typer.Exit(1)


def _said(entry: dict[str, Any]) -> str:
    return f"{page.headline(entry)}: {entry['sentence'] or entry['reason']}"


def _print_table(experiment: Experiment, rows: list[dict[str, Any]]) -> None:
    made = page.table(rows, experiment.chart["x"])
    shown = RichTable(*made.heads, title=experiment.name, title_justify="left")
    for each in made.rows:
        shown.add_row(*map(escape, each))
    console = Console()
    console.print(shown)
    if made.omitted:
        console.print(f"{made.omitted} rows more are in the Parquet file")
