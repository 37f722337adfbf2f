"""`rlbench doctor`: what this machine has, and what each library still needs."""

from __future__ import annotations

import json as json_module
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from rlbench import __version__
from rlbench.catalog.library import Library, load_libraries
from rlbench.execute.machine import git_commit, machine
from rlbench.provision import cache
from rlbench.provision.build import cached
from rlbench.provision.check import faults
from rlbench.provision.index import PipSettings, masked, pip_settings
from rlbench.provision.interpreter import Interpreter, installed
from rlbench.provision.pins import read_pins, torch_requirement
from rlbench.provision.torch import accelerator, torch_index
from rlbench.provision.uv import version as uv_version


def doctor(
    json: Annotated[bool, typer.Option("--json", help="As JSON on standard output.")] = False,
    adapters: Annotated[
        list[Path] | None,
        typer.Option("--adapters", metavar="DIR", help="A folder with more adapters; may be repeated."),
    ] = None,
) -> None:
    """Show what this machine has, where packages come from, and what each library still needs.

    Example: rlbench doctor --json
    """
    libraries = list(load_libraries(adapters).values())
    report = examination(libraries)
    if json:
        typer.echo(json_module.dumps(report, indent=1))
    else:
        _print(report)


def examination(libraries: list[Library]) -> dict[str, Any]:
    """Return all that `rlbench doctor` shows; sizes in MB of 10**6 bytes."""
    source = pip_settings()
    versions = sorted({library.python for library in libraries}, key=lambda text: int(text.split(".")[1]))
    pythons = {version: installed(version) for version in versions}
    return {
        "rlbench": {"version": __version__, "git_commit": git_commit(), "python": sys.version.split()[0]},
        "machine": {**machine(), "memory_available_mb": round(psutil.virtual_memory().available / 1e6)},
        "accelerator": accelerator(),
        "uv": uv_version(),
        "pythons": {
            version: None if found is None else {"version": found.version, "path": str(found.path)}
            for version, found in pythons.items()
        },
        "disk": {
            "cache": {
                "folder": str(cache.environments_root()),
                "free_mb": _free_mb(cache.environments_root()),
            },
            "results": {"folder": str(Path("results").absolute()), "free_mb": _free_mb(Path("results"))},
        },
        "index": _index(source),
        "torch_index": _torch_index(libraries, pythons, source),
        "libraries": {library.name: _needs(library, pythons[library.python]) for library in libraries},
    }


def _needs(library: Library, python: Interpreter | None) -> dict[str, str]:
    """The state of a library's environment and the command that mends it (empty: nothing to do)."""
    build = f"rlbench env build {library.name}"
    if cached(library) is not None:
        return {"state": "ready", "todo": ""}
    folder = cache.current_folder(library, accelerator())
    if folder is not None:
        return {"state": f"faulty: {'; '.join(faults(library, folder)[:3])}", "todo": build}
    state = "built for another lock" if cache.environment_folders(library.name) else "not built"
    if python is None:
        return {
            "state": f"{state}; Python {library.python} is not here, uv will try to fetch it",
            "todo": build,
        }
    return {"state": state, "todo": build}


def _index(source: PipSettings) -> dict[str, Any]:
    return {
        "index_url": masked(source.index_url or "") or None,
        "extra_index_url": [masked(each) for each in source.extra_index_url],
        "find_links": [masked(each) for each in source.find_links],
        "constraint": [masked(each) for each in source.constraint],
        "trusted_host": list(source.trusted_host),
        "no_index": source.no_index,
    }


def _torch_index(
    libraries: list[Library], pythons: dict[str, Interpreter | None], source: PipSettings
) -> dict[str, Any]:
    """Whether PyTorch's own index answers with the torch that the locks want, tried once per pin."""
    trials: dict[str, str | None] = {}
    for library in libraries:
        python = pythons[library.python]
        if python is None:
            continue
        requirement = torch_requirement(read_pins(library.lock, python.version))
        if requirement is not None and requirement not in trials:
            trials[requirement] = torch_index.obstacle(requirement, python, accelerator(), source)
    obstacles = sorted({reason for reason in trials.values() if reason is not None})
    return {
        "reachable": None if not trials else torch_index.unreachable is None,
        "obstacles": obstacles,
    }


def _free_mb(folder: Path) -> int:
    """Free space for the user where ``folder`` is, or would be made."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return round(shutil.disk_usage(folder).free / 1e6)


def _print(report: dict[str, Any]) -> None:
    facts, index = report["machine"], report["index"]
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    commit = report["rlbench"]["git_commit"]
    table.add_row("rlbench", report["rlbench"]["version"] + (f" (commit {commit[:12]})" if commit else ""))
    table.add_row("processor", f"{facts['cpu']}, {facts['cores']} cores ({facts['cores_usable']} usable)")
    table.add_row("memory", f"{facts['memory_mb']} MB, {facts['memory_available_mb']} MB available")
    table.add_row("GPU", ", ".join(facts["gpus"]) or "none")
    table.add_row("system", f"{facts['os']}, {facts['kernel']}, {facts['architecture']}")
    for version, found in report["pythons"].items():
        here = f"{found['version']}  {found['path']}" if found else "not here; uv will try to fetch it"
        table.add_row(f"Python {version}", here)
    table.add_row("uv", report["uv"])
    for name, place in report["disk"].items():
        table.add_row(f"disk for {name}", f"{place['free_mb']} MB free  {place['folder']}")
    for name, value in index.items():
        if value:
            table.add_row(name.replace("_", "-"), " ".join(value) if isinstance(value, list) else str(value))
    if not any(index.values()):
        table.add_row("index", "uv's default")
    reachable = report["torch_index"]["reachable"]
    words = {True: "reachable", False: "not reachable", None: "not needed"}[reachable]
    obstacles = report["torch_index"]["obstacles"] if reachable else []
    table.add_row("PyTorch's index", "; ".join([words, *obstacles]))
    Console().print(table)
    libraries = Table("library", "environment", "to do")
    for name, needs in report["libraries"].items():
        libraries.add_row(name, needs["state"], needs["todo"])
    Console().print(libraries)
