"""A package that the user brings along (``--env-package``): a folder, an archive, or a requirement for an index."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rlbench.errors import UserError

PROJECT_FILES = ("pyproject.toml", "setup.py")
ARCHIVES = (".whl", ".tar.gz", ".zip")
# What tools leave in a checkout: none of it belongs to the package, and a run's own results must not change it.
_LEFT_OUT = ("build", "dist", "results", "venv", "node_modules")


@dataclass(frozen=True)
class Package:
    """``given`` is an absolute path or a requirement; ``digest`` a SHA-256 over the content or the requirement."""

    given: str
    digest: str

    @property
    def path(self) -> Path | None:
        """The folder or archive; None for a requirement."""
        return Path(self.given) if os.path.isabs(self.given) else None

    @property
    def distribution(self) -> str | None:
        """Normalised name of a requirement; None for a path, whose name is known once it is built."""
        return None if self.path else canonicalize_name(Requirement(self.given).name)

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.path.name if self.path else self.given


def read_package(given: str) -> Package:
    """Return the package that the user named, by path or by name.

    A name that is also a folder with a project in it, or a file, is the path: what lies here is meant before what an
    index has. Raises UserError when it is neither.
    """
    path = Path(given).expanduser().absolute()
    by_address = re.match(r"[\w.\[\],-]+\s*@\s*[\w+]+://", given)
    looks_like_path = not by_address and (os.sep in given or given.startswith((".", "~")) or given.endswith(ARCHIVES))
    if path.is_file():
        if not path.name.endswith(ARCHIVES):
            raise UserError(f"--env-package {given}: a file must be a package archive ({', '.join(ARCHIVES)})")
        return Package(str(path), hashlib.sha256(path.read_bytes()).hexdigest())
    if path.is_dir() and (looks_like_path or _is_project(path)):
        if not _is_project(path):
            raise UserError(f"--env-package {given}: no package, it has neither {' nor '.join(PROJECT_FILES)}")
        return Package(str(path), _tree_digest(path))
    if looks_like_path:
        raise UserError(f"--env-package {given}: there is no such folder or file")
    try:
        requirement = Requirement(given)
    except InvalidRequirement:
        raise UserError(
            f"--env-package {given}: neither a path nor the name of a package, e.g. minigrid or minigrid==3.0.0"
        ) from None
    return Package(str(requirement), hashlib.sha256(str(requirement).encode()).hexdigest())


def check_unchanged(package: Package) -> None:
    """Raise UserError when the package is not there any more, or not as it was when the run began."""
    if read_package(package.given) != package:
        raise UserError(f"{package.given} has changed since the run began; start a new run")


def copy_package(path: Path, target: Path) -> Path:
    """Copy the folder or archive below ``target`` and return the copy: builds write beside the sources."""
    copy = target / path.name.replace(" ", "-")
    if path.is_file():
        shutil.copy2(path, copy)
        return copy
    for file in _files(path):
        destination = copy / file.relative_to(path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, destination)
    # Some projects take their version from git.
    if (path / ".git").is_dir():
        shutil.copytree(path / ".git", copy / ".git", symlinks=True)
    return copy


def _is_project(path: Path) -> bool:
    return any((path / name).is_file() for name in PROJECT_FILES)


def _tree_digest(root: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(_files(root)):
        name = file.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    """The files of a package's folder, without hidden ones and what tools leave there."""
    for parent, folders, names in os.walk(root):
        top = Path(parent) == root
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name != "__pycache__"
            and not name.endswith(".egg-info")
            and not (top and name in _LEFT_OUT)
        ]
        yield from (Path(parent, name) for name in names if not name.startswith(".") and Path(parent, name).is_file())
