"""Made-up libraries and environments for the tests of rlbench.provision."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from rlbench.catalog.library import Axes, Capabilities, Install, Library
from rlbench.provision import cache
from rlbench.provision.torch import accelerator

PYTHON = "{}.{}".format(*sys.version_info[:2])
PYTHON_FULL = "{}.{}.{}".format(*sys.version_info[:3])


def sample_library(folder: Path, lock: str = "six==1.16.0\n", install: Install | None = None) -> Library:
    """A library of this interpreter's Python whose lock is ``lock``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.lock").write_text(lock)
    return Library(
        name="sample",
        title="Sample",
        package="six",
        import_name="six",
        licence="MIT",
        alive=True,
        python=PYTHON,
        backend="numpy",
        install=install or Install(),
        capabilities=Capabilities(algorithms=["ppo"], action_spaces=["discrete"]),
        axes=Axes(**dict.fromkeys(Axes.model_fields, "none")),
        folder=folder,
    )


def sample_environment(library: Library, installed: dict[str, str]) -> Path:
    """A folder in the cache that looks like the library's environment with ``installed`` in it."""
    key = cache.environment_key(library, PYTHON_FULL, accelerator())
    folder = cache.environments_root() / f"{library.name}-{key}"
    packages = folder / "lib" / f"python{PYTHON}" / "site-packages"
    packages.mkdir(parents=True)
    for name, version in installed.items():
        (packages / f"{name}-{version}.dist-info").mkdir()
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    cache.write_marker(
        folder,
        cache.Marker(
            library=library.name,
            key=key,
            lock_sha256=hashlib.sha256(library.lock.read_bytes()).hexdigest(),
            python_version=PYTHON_FULL,
            accelerator=accelerator(),
            build_s=1.0,
            built_at="2026-01-01T00:00:00+00:00",
            size_mb=0.1,
            packages=installed,
        ),
    )
    return folder
