"""A layer over a library's environment: the user's package and what it needs beside what the library has.

The environment itself is not touched: its packages are constraints of the resolution, only what it lacks is installed,
into ``<cache>/layers/<library>-<key>``, and that folder goes on the guest's path. Like environments, layers are built
in a partial folder and renamed, so one that is there is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rlbench.errors import Unavailable
from rlbench.provision import cache
from rlbench.provision.build import GuestEnv, Report
from rlbench.provision.index import PipSettings, masked, pip_settings, uv_flags, uv_variables
from rlbench.provision.package import Package, copy_package
from rlbench.provision.uv import UvFailed, run_uv

# Raised when layers of the same package must be built anew because rlbench builds them in another way.
FORMAT = 1
MARKER = "rlbench-layer.json"


@dataclass(frozen=True)
class Layer:
    """A folder for the guest's path; ``distribution`` is the user's package, ``packages`` all that the layer adds."""

    folder: Path
    distribution: str
    packages: dict[str, str]


def layers_root() -> Path:
    """Return the folder that holds all layers."""
    return cache.cache_root() / "layers"


def layer_over(guest: GuestEnv, package: Package, report: Report = lambda message: None) -> Layer:
    """Return the layer with ``package`` over the guest's environment: the cached one, or one that is built now.

    Raises Unavailable when the package does not go with what the library has pinned, or cannot be built or fetched.
    """
    key = sha256(f"{FORMAT} {guest.folder.name} {package.digest}".encode()).hexdigest()[:12]
    final = layers_root() / f"{guest.library}-{key}"
    found = _read(final)
    if found is not None:
        return found
    with cache.guard(f"layer-{guest.library}", report) as descriptor, cache.writable():
        # Another rlbench may have built it while this one waited.
        found = _read(final)
        if found is not None:
            return found
        layers_root().mkdir(parents=True, exist_ok=True)
        for waste in layers_root().glob(f".partial-{guest.library}-*"):
            shutil.rmtree(waste)
        report(f"{guest.library}: adding {package.label}")
        partial = layers_root() / f".partial-{guest.library}-{key}-{os.getpid()}"
        try:
            partial.mkdir()
            layer = _install(guest, package, partial, pip_settings(), descriptor)
            (partial / MARKER).write_text(json.dumps({**asdict(layer), "folder": None, "package": package.given}))
            partial.rename(final)
        except UvFailed as error:
            raise Unavailable(_sentence(error, guest, package)) from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return replace(layer, folder=final)


def with_layers(
    guests: Mapping[str, GuestEnv | Unavailable], package: Package | None, report: Report
) -> tuple[dict[str, GuestEnv | Unavailable], dict[str, Layer]]:
    """Return the guests as they are with ``package`` on top, and their layers, both by the keys of ``guests``.

    A guest that cannot have it becomes the reason why. Without a package, the guests are as they were.
    """
    if package is None:
        return dict(guests), {}
    layered: dict[str, GuestEnv | Unavailable] = {}
    layers: dict[str, Layer] = {}
    for name, guest in guests.items():
        if isinstance(guest, Unavailable):
            layered[name] = guest
            continue
        try:
            layers[name] = layer_over(guest, package, report)
            layered[name] = replace(guest, packages=guest.packages | layers[name].packages)
        except Unavailable as error:
            layered[name] = error
    return layered, layers


def remove_layers(library_name: str) -> int:
    """Remove all layers over the library's environments and return how many there were."""
    folders = [marker.parent for marker in layers_root().glob(f"{library_name}-*/{MARKER}")]
    with cache.writable():
        for folder in folders:
            waste = folder.with_name(f".partial-{folder.name}-removed-{os.getpid()}")
            folder.rename(waste)
            shutil.rmtree(waste)
    return len(folders)


def _read(folder: Path) -> Layer | None:
    try:
        marker = json.loads((folder / MARKER).read_text())
        return Layer(folder, marker["distribution"], marker["packages"])
    except (OSError, ValueError, KeyError):
        return None


def _install(guest: GuestEnv, package: Package, folder: Path, source: PipSettings, descriptor: int) -> Layer:
    """Install into ``folder`` what the guest lacks of the package and its requirements."""
    options = ["--python", str(guest.python), *uv_flags(source)]
    variables = uv_variables(source)
    with tempfile.TemporaryDirectory(prefix="rlbench-layer-") as temporary:
        constraints = Path(temporary, "constraints.txt")
        constraints.write_text("".join(f"{pin}\n" for pin in _pins(guest.packages)))
        asked = str(copy_package(package.path, Path(temporary))) if package.path else package.given
        resolved = run_uv(
            ["pip", "compile", "-", "--no-header", "--no-annotate", "--constraints", str(constraints), *options],
            variables=variables,
            inherit=[descriptor],
            stdin=f"{asked}\n",
        )
        lacking = [line for line in resolved.splitlines() if line.strip() and not _has(guest, line)]
        if lacking:
            wanted = Path(temporary, "requirements.txt")
            wanted.write_text("\n".join(lacking) + "\n")
            run_uv(
                [
                    *("pip", "install", "--no-deps", "--compile-bytecode"),
                    *("--target", str(folder), "-r", str(wanted), *options),
                ],
                variables=variables,
                inherit=[descriptor],
            )
    packages = _installed(folder)
    twice = sorted(set(packages) & set(guest.packages))
    if twice:
        raise Unavailable(
            f"{package.label} would replace {', '.join(twice)} in the environment of {guest.library}, "
            "which has to stay as it is"
        )
    return Layer(folder, package.distribution or _built_from_path(folder), packages)


def _pins(packages: dict[str, str]) -> list[str]:
    """Pins of the public versions, which indexes have; versions that are no versions (of a commit) are left out."""
    pins = []
    for name, version in sorted(packages.items()):
        try:
            pins.append(f"{name}=={Version(version).public}")
        except InvalidVersion:
            continue
    return pins


def _has(guest: GuestEnv, line: str) -> bool:
    """Whether the guest has the distribution of a resolved line already; a path is none of its."""
    try:
        return canonicalize_name(Requirement(line.strip()).name) in guest.packages
    except InvalidRequirement:
        return False


def _installed(folder: Path) -> dict[str, str]:
    packages: dict[str, str] = {}
    for path in folder.glob("*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        packages[canonicalize_name(name)] = version
    return packages


def _built_from_path(folder: Path) -> str:
    """The distribution that was installed from a path, by the note that installers leave of it."""
    for note in folder.glob("*.dist-info/direct_url.json"):
        return canonicalize_name(note.parent.name.partition("-")[0])
    raise Unavailable(f"{folder}: the package was installed without a note of where it came from")


def _sentence(error: UvFailed, guest: GuestEnv, package: Package) -> str:
    if error.disk_full:
        return cache.no_room()
    reason = masked(str(error)).removeprefix("No solution found when resolving dependencies; ")
    # The resolver's first sentence names the two that clash; what follows repeats it for those that need them.
    reason = reason.partition("; And because")[0].removesuffix(".")
    if "we can conclude" in reason and "was not found" not in reason:
        return f"{package.label} does not go with the packages of {guest.library}: {reason}"
    way_out = "; check the network and pip's index settings (`rlbench doctor` shows them)"
    tail = way_out if error.no_connection else ""
    return f"{package.label} cannot be added to the environment of {guest.library}: {reason}{tail}"
