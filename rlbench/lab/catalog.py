"""Which experiments there are: read from the experiments' source, because only the guest may import them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

from rlbench.errors import UserError, nearest

FOLDER = Path(__file__).resolve().parent / "experiments"
LITERALS = ("CLAIM", "SIZES", "CHART")


class Experiment(NamedTuple):
    """One experiment.

    ``title`` is the docstring's first line, ``sizes`` maps ``"quick"`` and ``"full"`` to sizes by name, and ``chart``
    says what is drawn (see rlbench.lab.chart).
    """

    name: str
    module: str
    title: str
    text: str
    claim: str
    sizes: dict[str, dict[str, Any]]
    chart: dict[str, Any]


def experiments(folder: Path = FOLDER) -> dict[str, Experiment]:
    """Return all experiments by name, in alphabetical order; raises ValueError for one that lacks a part."""
    paths = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return {each.name: each for each in map(_read, paths)}


def find_experiments(name: str, known: dict[str, Experiment]) -> list[Experiment]:
    """Return the experiment called ``name``, or every one for ``"all"``; several names are separated by commas.

    Raises UserError that names the nearest.
    """
    if name == "all":
        return list(known.values())
    found = {}
    for each in (part.strip().lower().replace("_", "-") for part in name.split(",")):
        if each not in known:
            raise UserError(f"unknown experiment '{each}'{nearest(each, known)} (known: {', '.join(known)}, all)")
        found[each] = known[each]
    return list(found.values())


def _read(path: Path) -> Experiment:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    found: dict[str, Any] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and target.id in LITERALS:
            found[target.id] = ast.literal_eval(node.value) if node.value else None
    missing = [name for name in LITERALS if name not in found]
    text = ast.get_docstring(tree) or ""
    if missing or not text:
        raise ValueError(f"{path}: an experiment needs a docstring and {', '.join(LITERALS)} (missing: {missing})")
    title = text.splitlines()[0]
    return Experiment(
        path.stem.replace("_", "-"), path.stem, title, text, found["CLAIM"], found["SIZES"], found["CHART"]
    )
