"""``rlbench libraries``: what is known of the libraries under test."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Any

import typer
from packaging.utils import canonicalize_name
from rich import box
from rich.console import Console
from rich.table import Table

from rlbench import __version__
from rlbench.catalog.library import Axes, Library, find_library, load_libraries
from rlbench.provision.pins import read_pins


def libraries(
    name: str = typer.Argument(None, help="Library to show with everything that is known of it."),
    adapters: list[Path] = typer.Option(None, "--adapters", help="Folder with adapters of your own; repeat."),
    json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """List the libraries with version, state, licence, what they can do and how they are built; or show one.

    Examples:

        rlbench libraries

        rlbench libraries sb3
    """
    known = load_libraries(adapters)
    chosen = [find_library(name, known)] if name else list(known.values())
    if json:
        facts = [_facts(each) for each in chosen]
        typer.echo(jsonlib.dumps(facts[0] if name else facts, indent=1))
    elif name:
        _one(chosen[0])
    else:
        _all(chosen)


def version(library: Library) -> str | None:
    """The version that the lock pins, rlbench's own for its pipeline, or None for a library built from source."""
    pinned = {pin.name: pin.version for pin in read_pins(library.lock, f"{library.python}.0")}
    return ({"rlbench": __version__} | pinned).get(canonicalize_name(library.package))


def _facts(library: Library) -> dict[str, Any]:
    return {**library.model_dump(mode="json"), "version": version(library)}


def _all(chosen: list[Library]) -> None:
    console = Console()
    # It fits 80 columns: a name that is cut off cannot be typed.
    facts = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("library", "version", "licence", "back end"):
        facts.add_column(heading, no_wrap=True)
    for heading in ("released", "algorithms", "modes"):
        facts.add_column(heading, min_width=len("abandoned"))
    for each in chosen:
        able = each.capabilities
        facts.add_row(
            each.name,
            version(each) or "source",
            each.licence,
            each.backend,
            (each.released or "?") + ("" if each.alive else " abandoned"),
            " ".join(able.algorithms),
            " ".join(able.modes),
        )
    console.print(facts)
    for axis, field in Axes.model_fields.items():
        table = Table(title=axis.replace("_", " "), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("library", no_wrap=True)
        table.add_column(field.description or axis)
        for each in chosen:
            table.add_row(each.name, getattr(each.axes, axis))
        console.print(table)


def _one(library: Library) -> None:
    console = Console()
    able = library.capabilities
    table = Table(
        title=f"{library.title} {version(library) or '(from source)'}", show_header=False, title_justify="left"
    )
    rows = {
        "name": ", ".join([library.name, *library.aliases]),
        "url": library.url or "-",
        "released": library.released or "?",
        "state": "alive" if library.alive else "abandoned",
        "licence": library.licence,
        "interpreter": f"Python {library.python}",
        "back end": library.backend,
        "algorithms": ", ".join(able.algorithms),
        "action spaces": ", ".join(able.action_spaces),
        "parallel modes": ", ".join(able.modes),
        "devices": ", ".join(able.devices),
        **{axis.replace("_", " "): getattr(library.axes, axis) for axis in Axes.model_fields},
        **{f"variant {variant}": what for variant, what in library.variants.items()},
        **{f"not settable: {setting}": why for setting, why in library.not_settable.items()},
        **{f"known issue: {issue.title}": issue.evidence for issue in library.known_issues},
    }
    for key, value in rows.items():
        table.add_row(key, value)
    console.print(table)
