"""``rlbench run``: compare libraries on scenarios."""

from __future__ import annotations

import json as jsonlib
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rlbench.catalog.library import Algorithm, Library, find_library, load_libraries, with_sources
from rlbench.catalog.scenario import Scenario, load_scenario, overridden
from rlbench.errors import UserError
from rlbench.execute.own import own_scenario
from rlbench.execute.run import execute_run
from rlbench.execute.spec import RunSpec
from rlbench.present.charts import chart_list
from rlbench.present.machine_readable import run_json
from rlbench.present.report import write_report
from rlbench.present.table import run_table
from rlbench.provision.package import check_unchanged, read_package
from rlbench.store.reader import RESULTS, find_run, read_table, run_ids
from rlbench.store.schema import TABLES


def run(
    scenarios: list[str] = typer.Argument(None, help="Scenarios: names (see `rlbench scenarios`) or .toml files."),
    scenario: list[str] = typer.Option(None, "--scenario", help="The same as SCENARIOS; repeat."),
    env: str = typer.Option(
        None,
        "--env",
        metavar="ID",
        help="Instead of a scenario: a Gymnasium environment, `Name-v0` or `module:Name-v0`.",
    ),
    env_package: str = typer.Option(
        None, "--env-package", metavar="PATH|NAME", help="Package that has the environment of --env."
    ),
    algorithm: Algorithm = typer.Option(None, "--algorithm", help="Algorithm for --env (default: ppo)."),
    steps: int = typer.Option(None, "--steps", min=1, help="Environment steps; same as `--set budget.env_steps=`."),
    library: list[str] = typer.Option(
        None,
        "--library",
        "-l",
        help="Library to compare; repeat, or separate by commas; 'all' for every one.",
    ),
    seeds: int = typer.Option(None, "--seeds", min=1, help="Seeds per library (default: the scenario's)."),
    changes: list[str] = typer.Option(
        None, "--set", help="Change a setting of the scenarios, e.g. `--set budget.env_steps=50000`; repeat."
    ),
    workers: str = typer.Option(
        None, "--workers", metavar="N,N,...", help="Run the scenarios with these numbers of worker processes in turn."
    ),
    resume: str = typer.Option(None, "--resume", help="Run what is missing of this run (id, path or 'latest')."),
    adapters: list[Path] = typer.Option(None, "--adapters", help="Folder with adapters of your own; repeat."),
    sources: list[str] = typer.Option(
        None,
        "--source",
        metavar="NAME=PATH",
        help="Copy of the source of a library that no index has; repeat.",
    ),
    results: Path = typer.Option(RESULTS, "--results", help="Folder that receives the run."),
    run_id: str = typer.Option(None, "--run-id", help="Name of the run (default: date, time and scenario)."),
    jobs: int = typer.Option(2, "--jobs", min=1, help="Environments built at a time."),
    keep_ledgers: bool = typer.Option(False, "--keep-ledgers", help="Keep the raw ledgers under the run's .work."),
    json: bool = typer.Option(False, "--json", help="Print the figures as JSON instead of tables."),
) -> None:
    """Run libraries on scenarios and measure them.

    Trials are interleaved over seeds; results go to results/RUN as Parquet, charts and report.html. Ctrl-C keeps
    what is finished; `--resume` runs the rest. Exit code 0: all trials ran; 1: some did not; 2: wrong input.

    Examples:

        rlbench run quickstart

        rlbench run quickstart -l sb3,tianshou --seeds 5 --set budget.env_steps=50000

        rlbench run cartpole-workers -l sb3,tianshou --workers 1,2,4

        rlbench run --env my_envs:Maze-v0 --env-package ./my-envs -l sb3,tianshou --steps 20000

        rlbench run --resume latest
    """
    names = [*(scenarios or []), *(scenario or [])]
    if resume:
        if names or env or env_package or algorithm or steps or library or changes or seeds or run_id or workers:
            raise UserError("--resume takes the scenarios, libraries, seeds and settings from the run: leave them out")
        folder = find_run(resume, results)
        spec = RunSpec.load(folder)
        known = with_sources(load_libraries([*map(Path, spec.adapters), *(adapters or [])]), sources or [])
        chosen = [find_library(name, known) for name in spec.libraries]
        if spec.package:
            check_unchanged(spec.package)
    else:
        settings = _settings(changes or []) | ({"budget.env_steps": steps} if steps else {})
        known = with_sources(load_libraries(adapters), sources or [])
        package = read_package(env_package) if env_package else None
        if env:
            if names:
                raise UserError(f"--env {env} takes the place of a scenario: leave out {', '.join(names)}")
            chosen = _libraries(library or [], [], known)
            chosen_scenarios = [own_scenario(env, package, algorithm, settings, chosen, jobs, _say)]
        else:
            for option, value in (("--env-package", env_package), ("--algorithm", algorithm)):
                if value:
                    raise UserError(f"{option} {value}: goes with --env only, e.g. --env module:Name-v0")
            chosen_scenarios = _swept(_scenarios(names, settings), workers)
            chosen = _libraries(library or [], chosen_scenarios, known)
        count = seeds or max(scenario.seeds for scenario in chosen_scenarios)
        name = run_id or f"{datetime.now():%Y%m%d-%H%M%S}-{chosen_scenarios[0].name}"
        if Path(name).name != name or name in run_ids(results):
            raise UserError(f"--run-id {name}: must be a new plain name (that one is taken or has a slash in it)")
        folder = results / name
        absolute = [str(path.resolve()) for path in adapters or []]
        labels, numbers = [each.label for each in chosen], list(range(1, count + 1))
        spec = RunSpec(name, labels, chosen_scenarios, numbers, absolute, package)
        spec.save(folder)
    _execute(folder, spec, chosen, {each.label: each for each in chosen}, jobs, keep_ledgers, json)


def _execute(
    folder: Path,
    spec: RunSpec,
    chosen: list[Library],
    by_name: dict[str, Library],
    jobs: int,
    keep_ledgers: bool,
    json: bool,
) -> None:
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        statuses = execute_run(folder, spec, chosen, jobs, keep_ledgers)
    except KeyboardInterrupt:
        errors.print(f"\nstopped; finished trials are kept. Continue with: rlbench run --resume {folder}")
        raise typer.Exit(130) from None
    except UserError:
        if not any((folder / "trials").glob("*.parquet")):
            _discard(folder)
        raise
    trials = read_table(folder, "trials")
    charts = chart_list(folder)
    report = write_report(folder, by_name, charts)
    if json:
        typer.echo(jsonlib.dumps(run_json(trials, read_table(folder, "audit")) | {"run": str(folder)}, indent=1))
    else:
        console = Console(soft_wrap=False)
        console.print(run_table(trials, read_table(folder, "audit")))
        typer.echo(f"\nParquet  {folder}/{{{','.join(TABLES)}}}/")
        typer.echo(f"charts   {folder}/charts/ (PNG and SVG)")
        typer.echo(f"report   {report}")
    if set(statuses) - {"ok", "skipped"}:
        raise typer.Exit(1)


def _discard(folder: Path) -> None:
    """Remove a run that came to nothing: only what rlbench wrote before its first trial."""
    (folder / "run.json").unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _settings(changes: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--set {change}: must be KEY=VALUE, e.g. --set budget.env_steps=50000")
        try:
            settings[key] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            settings[key] = value
    return settings


def _scenarios(names: list[str], settings: dict[str, Any]) -> list[Scenario]:
    if not names:
        raise UserError("name a scenario, e.g. `rlbench run quickstart` (see `rlbench scenarios`)")
    loaded = [load_scenario(name) for name in names]
    return [overridden(each, settings, f"--set on scenario '{each.name}'") if settings else each for each in loaded]


def _swept(scenarios: list[Scenario], workers: str | None) -> list[Scenario]:
    """Each scenario once per number of workers."""
    if workers is None:
        return scenarios
    for each in scenarios:
        if each.topology.mode == "sync":
            raise UserError(
                f"--workers: scenario '{each.name}' has no workers (its mode is 'sync'); try cartpole-workers"
            )
    try:
        counts = [int(count) for count in workers.split(",")]
    except ValueError:
        raise UserError(f"--workers {workers}: must be numbers separated by commas, e.g. --workers 1,2,4") from None
    return [overridden(each, {"topology.workers": count}, "--workers") for each in scenarios for count in counts]


def _libraries(names: list[str], scenarios: list[Scenario], known: dict[str, Library]) -> list[Library]:
    asked = [name for group in names for name in group.split(",") if name.strip()]
    if not asked:
        asked = [name for scenario in scenarios for name in scenario.libraries]
    if not asked:
        raise UserError("name the libraries to compare, e.g. --library sb3,cleanrl or --library all")
    if "all" in asked:
        return list(known.values())
    return list({library.label: library for library in (find_library(name, known) for name in asked)}.values())
