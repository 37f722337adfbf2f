"""Is an environment what its lock says? A fast look at its files, and a check that imports the library."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

from rlbench.catalog.library import Library
from rlbench.provision.cache import MARKER, current_folder, lock_hash, read_marker
from rlbench.provision.pins import public_version, read_pins
from rlbench.provision.source import source_folder
from rlbench.provision.torch import accelerator
from rlbench.provision.uv import UvFailed, guest_variables, run_uv

# Import of the slowest library took under a minute on a busy two-core machine.
IMPORT_LIMIT_S = 300.0

NOTE = "note: "


def guest_python(folder: Path) -> Path:
    """Return the path of the environment's interpreter."""
    return folder / "bin" / "python"


def faults(library: Library, folder: Path) -> list[str]:
    """Return how the environment in ``folder`` differs from the library's lock, looking at files only."""
    marker = read_marker(folder)
    if marker is None:
        return [f"{MARKER} is missing or unreadable"]
    found = []
    if marker.lock_sha256 != lock_hash(library):
        found.append("built from another requirements.lock")
    python = guest_python(folder)
    if not python.exists() or not os.access(python, os.X_OK):
        found.append("its Python is gone")
    source = library.install.source
    if source is not None and not source_folder(folder, source).is_dir():
        found.append("its source folder is gone")
    have = distributions(folder)
    for pin in read_pins(library.lock, marker.python_version):
        version = have.get(pin.name)
        if version is None:
            found.append(f"{pin} is missing")
        elif pin.version is not None and public_version(version) != pin.version:
            found.append(f"{pin.name} is {version} but the lock has {pin.version}")
    return found


def distributions(folder: Path) -> dict[str, str]:
    """Return the version of each installed distribution, read off the names of the dist-info folders."""
    have: dict[str, str] = {}
    for path in sorted(folder.glob("lib*/python3*/site-packages/*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        have[canonicalize_name(name)] = version
    return have


def check(library: Library) -> list[str]:
    """Return the problems of the library's environment: other than the lock, failing import, unmet needs.

    An entry that starts with ``"note: "`` is worth knowing but no problem.
    """
    folder = current_folder(library, accelerator())
    if folder is None:
        return [f"no environment for its present lock (run `rlbench env build {library.name}`)"]
    problems = faults(library, folder)
    if problems:
        return problems
    python = guest_python(folder)
    return [*_import_problem(python, library), *_unmet(python, library), *_torch_notes(folder)]


def _import_problem(python: Path, library: Library) -> list[str]:
    import_name = library.import_name
    program = f"import {import_name}"
    if (library.folder / "shim.py").is_file():
        # The adapter imports it first, too.
        program = f"import sys; sys.path.append({str(library.folder.absolute())!r}); import shim, {import_name}"
    with tempfile.TemporaryDirectory(prefix="rlbench-check-") as folder:
        try:
            done = subprocess.run(
                # Isolated: a folder called like the library must not stand in for it.
                [python, "-I", "-c", program],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=IMPORT_LIMIT_S,
                cwd=folder,
                env=guest_variables(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [f"`import {import_name}` takes longer than {IMPORT_LIMIT_S:.0f} s"]
    if done.returncode == 0:
        return []
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return [f"`import {import_name}` fails: {last}"]


def _unmet(python: Path, library: Library) -> list[str]:
    if library.install.pip_only:
        names = ", ".join(library.install.pip_only)
        return [f"{NOTE}requirements are not checked, since uv cannot read those of {names}"]
    try:
        run_uv(["pip", "check", "--python", str(python)])
    except UvFailed as error:
        unmet = [line.strip() for line in error.output.splitlines() if line.startswith("The package")]
        if not unmet:
            return [f"`uv pip check` fails: {error}"]
        if library.install.no_deps:
            return [f"{NOTE}{len(unmet)} requirements of its packages are unmet, as meant by install.no_deps"]
        return unmet
    return []


def _torch_notes(folder: Path) -> list[str]:
    version = distributions(folder).get("torch", "")
    if accelerator() == "cuda" and version.endswith("+cpu"):
        return [f"{NOTE}this machine has a GPU, but torch {version} cannot use it"]
    return []
