"""`rlbench env`: the libraries' environments - build, list, check, remove, lock."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlbench.catalog.library import Library, find_library, load_libraries, with_sources
from rlbench.errors import Unavailable, UserError
from rlbench.provision import cache
from rlbench.provision.build import GuestEnv, cached, environments
from rlbench.provision.check import NOTE
from rlbench.provision.check import check as check_environment
from rlbench.provision.layer import remove_layers
from rlbench.provision.lock import lock as write_lock
from rlbench.provision.torch import accelerator

env_app = typer.Typer(
    name="env",
    help="Build, list, check and remove the libraries' virtual environments.",
    no_args_is_help=True,
)

Names = Annotated[list[str] | None, typer.Argument(metavar="[LIBRARY]...", help="Libraries, by name.")]
All = Annotated[bool, typer.Option("--all", help="All known libraries.")]
Adapters = Annotated[
    list[Path] | None,
    typer.Option("--adapters", metavar="DIR", help="A folder with more adapters; may be repeated."),
]


@env_app.command()
def build(
    libraries: Names = None,
    every: All = False,
    jobs: Annotated[int, typer.Option(min=1, help="Environments built at a time.")] = 2,
    adapters: Adapters = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--source", metavar="NAME=PATH", help="Copy of the source of a library that no index has; repeat."
        ),
    ] = None,
) -> None:
    """Build environments from their locks; one that is there already is kept.

    Example: rlbench env build sb3 tianshou --jobs 2
    """
    chosen = _chosen(libraries, every, adapters, sources)
    results = _build_with_progress(chosen, jobs)
    built = [result for result in results.values() if isinstance(result, GuestEnv)]
    table = Table("library", "state", "Python", "packages", "MB", title=str(cache.environments_root()))
    for each in built:
        state = "cached" if each.build_s is None else f"built in {each.build_s:.1f} s"
        table.add_row(each.library, state, each.python_version, str(len(each.packages)), f"{each.size_mb:.0f}")
    if built:
        Console().print(table)
    for name, result in results.items():
        if isinstance(result, Unavailable):
            typer.echo(f"{name}: not available: {result}", err=True)
    if len(built) < len(results):
        raise typer.Exit(1)


@env_app.command("list")
def list_environments(
    json: Annotated[bool, typer.Option("--json", help="As JSON on standard output.")] = False,
    adapters: Adapters = None,
) -> None:
    """List the environments of all known libraries, those of older locks included.

    Example: rlbench env list --json
    """
    rows = [row for library in load_libraries(adapters).values() for row in _rows(library)]
    if json:
        typer.echo(json_module.dumps(rows, indent=1))
        return
    # The folder is in the title and in --json: a line with its path does not fit a terminal.
    table = Table(title=str(cache.environments_root()), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("packages", "MB") else "left")
    for row in rows:
        shown = {**row, "built_at": (row["built_at"] or "")[:10]}
        table.add_row(*("" if shown[key] is None else str(shown[key]) for key in _COLUMNS[:-1]))
    Console().print(table)


@env_app.command()
def check(libraries: Names = None, adapters: Adapters = None) -> None:
    """Compare environments with their locks and import each library; exit code 1 when there is a problem.

    Without a name, those libraries are checked that have an environment. Example: rlbench env check sb3
    """
    chosen = _chosen(libraries, not libraries, adapters)
    if not libraries:
        chosen = [library for library in chosen if cache.environment_folders(library.name)]
        if not chosen:
            typer.echo("no environment has been built yet (see `rlbench env build --help`)")
    failed = False
    for library in chosen:
        findings = check_environment(library)
        problems = [each for each in findings if not each.startswith(NOTE)]
        failed = failed or bool(problems)
        typer.echo(f"{library.name}: {'ok' if not problems else 'problem'}")
        for each in findings:
            typer.echo(f"  {each}")
    if failed:
        raise typer.Exit(1)


@env_app.command()
def remove(
    libraries: Names = None,
    every: All = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    adapters: Adapters = None,
) -> None:
    """Remove the environments of libraries, those of older locks and packages laid over them included.

    Example: rlbench env remove sb3 --yes
    """
    chosen = _chosen(libraries, every, adapters)
    folders = [folder for library in chosen for folder in cache.environment_folders(library.name)]
    if folders and not yes:
        for folder in folders:
            typer.echo(str(folder))
        typer.confirm(f"remove {len(folders)} environments?", abort=True)
    removed = 0
    for library in chosen:
        try:
            removed += cache.remove(library.name, lambda message: typer.echo(message, err=True))
            remove_layers(library.name)
        except Unavailable as error:
            raise UserError(str(error)) from None
    typer.echo(f"removed {removed} environments")


@env_app.command()
def lock(
    library: Annotated[str, typer.Argument(metavar="LIBRARY", help="The library, by name.")],
    adapters: Adapters = None,
) -> None:
    """Resolve a library's requirements.in anew and write its requirements.lock.

    Example: rlbench env lock sb3
    """
    found = find_library(library, load_libraries(adapters))
    try:
        changes = write_lock(found, report=lambda message: typer.echo(message, err=True))
    except Unavailable as error:
        raise UserError(str(error)) from None
    for name, (old, new) in changes.items():
        typer.echo(f"{name}: {old or 'not in the lock'} -> {new or 'not in the lock'}")
    typer.echo(f"{found.lock}: {len(changes)} changes")


_COLUMNS = ("library", "state", "python", "accelerator", "packages", "size_mb", "built_at", "folder")
_HEADINGS = ("library", "state", "Python", "for", "packages", "MB", "built")


def _rows(library: Library) -> list[dict[str, Any]]:
    """One row per environment of the library, or one that says that it has none."""
    ready = cached(library)
    current = cache.current_folder(library, accelerator())
    rows = []
    for folder in cache.environment_folders(library.name):
        marker = cache.read_marker(folder)
        values = {
            "library": library.name,
            "state": "old" if folder != current else "ready" if ready is not None else "faulty",
            "python": marker.python_version if marker else None,
            "accelerator": marker.accelerator if marker else None,
            "packages": len(marker.packages) if marker else None,
            "size_mb": marker.size_mb if marker else None,
            "built_at": marker.built_at if marker else None,
            "folder": str(folder),
        }
        rows.append(values)
    return rows or [{**dict.fromkeys(_COLUMNS), "library": library.name, "state": "not built"}]


def _chosen(
    names: list[str] | None, every: bool, adapters: list[Path] | None, sources: list[str] | None = None
) -> list[Library]:
    """The libraries that the command line means, each once."""
    known = with_sources(load_libraries(adapters), sources or [])
    if every and names:
        raise UserError("name libraries or give --all, not both")
    if every:
        return list(known.values())
    if not names:
        raise UserError(f"name at least one library, or give --all (known: {', '.join(known)})")
    chosen = {library.name: library for library in (find_library(name, known) for name in names)}
    return list(chosen.values())


def _build_with_progress(libraries: list[Library], jobs: int) -> dict[str, GuestEnv | Unavailable]:
    console = Console(stderr=True)
    if not console.is_terminal:
        return environments(libraries, jobs, lambda message: typer.echo(message, err=True))
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, TaskID] = {
            library.name: progress.add_task(f"{library.name}: waiting", total=1, start=False) for library in libraries
        }

        def report(message: str) -> None:
            task = tasks[message.partition(":")[0]]
            progress.start_task(task)
            progress.update(task, description=message)

        def done(name: str, result: GuestEnv | Unavailable) -> None:
            if isinstance(result, Unavailable):
                progress.update(tasks[name], description=f"{name}: not available")
            elif result.build_s is None:
                progress.update(tasks[name], description=f"{name}: cached")
            progress.update(tasks[name], completed=1)

        return environments(libraries, jobs, report, done=done)
