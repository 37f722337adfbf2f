"""Libraries: ``adapters/<name>/adapter.toml`` as a validated model, and how adapters are found."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlbench.catalog.paths import shipped
from rlbench.catalog.toml import read_toml, validated
from rlbench.errors import UserError, nearest

ENTRY_POINT_GROUP = "rlbench.adapters"

Algorithm = Literal["ppo", "a2c", "dqn", "sac"]
Mode = Literal["sync", "workers", "async"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Table):
    """Code that no package index has: one folder of a git repository at one commit."""

    git: str = Field(description="address that `git clone` understands")
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    folder: str = Field(description="top-level package of the repository that guests import")
    without: list[str] = Field(default_factory=list, description="files of the folder that are left out")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="rlbench.provision.source.tree_hash")]


class Install(_Table):
    """How the environment is built from the lock.

    Options that are None are no part of an environment's key, so a new one leaves environments as they are.
    """

    no_deps: bool = Field(False, description="install exactly the lock, ignoring the packages' own requirements")
    build_constraints: list[str] = Field(
        default_factory=list, description="constraints for building source distributions"
    )
    pip_only: list[str] | None = Field(
        None,
        description="packages that uv refuses; the pip of the lock installs them, without their requirements",
    )
    source: Source | None = None


class Capabilities(_Table):
    """What the library can do; `rlbench adapter check` holds the adapter to it."""

    algorithms: list[Algorithm] = Field(min_length=1)
    action_spaces: list[Literal["discrete", "box"]] = Field(min_length=1)
    modes: list[Mode] = Field(default=["sync"], min_length=1)
    devices: list[Literal["cpu", "cuda"]] = Field(default=["cpu"], min_length=1)
    max_envs: int | None = Field(None, ge=1, description="largest n_envs (null: no limit)")


class Axes(_Table):
    """The library's architecture, in one phrase per axis."""

    orchestration: str = Field(description="who starts and schedules actors and learners")
    rollout_buffer: str = Field(description="where experience waits to be learned from")
    weight_sync: str = Field(description="how new weights reach the actors")
    staleness_management: str = Field(description="what is done about samples of old policies")
    partial_rollouts: str = Field(description="whether a rollout may span updates or episodes")
    lora: str = Field(description="support for low-rank adapters")
    distributed_backend: str = Field(description="what it uses to span processes and machines")


class Issue(_Table):
    """A defect of the library that was found by measurement."""

    title: str
    evidence: str


class Library(_Table):
    """One RL framework under test.

    ``folder`` holds ``adapter.toml``, ``adapter.py``, ``requirements.in`` and ``requirements.lock``.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    title: str
    package: str = Field(description="distribution whose version identifies the library")
    import_name: str = Field(description="top-level package, imported by `env check` and used to attribute time")
    aliases: list[str] = Field(default_factory=list)
    url: str = ""
    licence: str
    released: str = Field("", description="month of the pinned release, YYYY-MM")
    alive: bool
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    backend: Literal["torch", "tensorflow", "jax", "chainer", "numpy"]
    install: Install = Install()
    capabilities: Capabilities
    axes: Axes
    variants: dict[str, str] = Field(
        default_factory=dict, description="`name:variant` works around a defect of the library; what it does"
    )
    not_settable: dict[str, str] = Field(default_factory=dict, description="audited setting -> why not")
    known_issues: list[Issue] = Field(default_factory=list)
    folder: Path = Field(exclude=True)
    variant: str | None = Field(None, exclude=True)
    source_copy: Path | None = Field(None, exclude=True, description="where this machine has install.source")

    @property
    def label(self) -> str:
        """What trials, tables and charts call it: ``name``, or ``name:variant``."""
        return f"{self.name}:{self.variant}" if self.variant else self.name

    @property
    def lock(self) -> Path:
        """The pinned requirements that the environment is built from."""
        return self.folder / "requirements.lock"

    @property
    def adapter(self) -> Path:
        """The module that drives the library; imported in the guest only."""
        return self.folder / "adapter.py"


def load_library(folder: Path) -> Library:
    """Return the library described in ``folder``; raises UserError when its files are missing or wrong."""
    toml = folder / "adapter.toml"
    library = validated(Library, {**read_toml(toml), "folder": folder}, str(toml))
    for path in (library.adapter, library.lock):
        if not path.is_file():
            raise UserError(f"{toml}: {path.name} is missing beside it")
    return library


def load_libraries(extra: list[Path] | None = None) -> dict[str, Library]:
    """Return all libraries by name: shipped ones, those of installed packages, those under the ``extra`` folders.

    An extra folder may be one adapter or hold several. A later one replaces an earlier one of the same name.
    """
    folders = _adapter_folders(shipped("adapters"))
    for point in entry_points(group=ENTRY_POINT_GROUP):
        module = point.load()
        folders += _adapter_folders(Path(module.__file__).parent)
    for folder in extra or []:
        found = _adapter_folders(folder)
        if not found:
            raise UserError(f"--adapters {folder}: no adapter.toml in it or in its subfolders")
        folders += found
    libraries = [load_library(folder) for folder in folders]
    return {library.name: library for library in sorted(libraries, key=lambda each: each.name)}


def find_library(name: str, libraries: dict[str, Library]) -> Library:
    """Return the library called ``name`` (or by one of its other spellings), as the variant behind a colon if any.

    Raises UserError, naming the nearest.
    """
    name, colon, variant = name.partition(":")
    if colon:
        library = find_library(name, libraries)
        if variant not in library.variants:
            raise UserError(
                f"library '{library.name}' has no variant '{variant}'{nearest(variant, library.variants)} "
                f"(it has: {', '.join(library.variants) or 'none'})"
            )
        return library.model_copy(update={"variant": variant})
    wanted = name.strip().lower().replace("-", "_")
    if wanted in libraries:
        return libraries[wanted]
    for library in libraries.values():
        if wanted in [alias.lower().replace("-", "_") for alias in library.aliases]:
            return library
    known = [*libraries, *(alias for each in libraries.values() for alias in each.aliases)]
    raise UserError(
        f"unknown library '{name}'{nearest(wanted, known)} (known: {', '.join(libraries)}; see `rlbench libraries`)"
    )


def with_sources(libraries: dict[str, Library], given: list[str]) -> dict[str, Library]:
    """Return the libraries with the copies of their sources that ``given`` names, as ``NAME=PATH``.

    Raises UserError when one is not of this form, is no folder, or is for a library from the package index.
    """
    known = dict(libraries)
    for each in given:
        name, equals, place = each.partition("=")
        if not equals:
            raise UserError(f"--source {each}: must be NAME=PATH, e.g. --source spinup=~/spinningup")
        library = find_library(name, known)
        if library.install.source is None:
            raise UserError(f"--source {each}: {library.title} comes from the package index, not from a folder")
        path = Path(place).expanduser().absolute()
        if not path.is_dir():
            raise UserError(f"--source {each}: there is no folder {path}")
        known[library.name] = library.model_copy(update={"source_copy": path})
    return known


def _adapter_folders(root: Path) -> list[Path]:
    if (root / "adapter.toml").is_file():
        return [root]
    return sorted(path.parent for path in root.glob("*/adapter.toml"))
