"""Finds the Python that a library asks for: the host's own, pyenv's, those on PATH, uv's; else uv fetches it.

uv alone is not enough: it does not look into pyenv, whose shims on PATH answer with an error for versions
that are not active. So every candidate is run before it is believed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlbench.errors import Unavailable
from rlbench.provision.uv import UvFailed, guest_variables, run_uv

# zlib, ssl and ctypes: a Python compiled without their headers starts, and fails later inside a library.
QUESTION = """
import ctypes, json, platform, ssl, sys, zlib
print(json.dumps([getattr(sys, "_base_executable", sys.executable), platform.python_version(),
                  platform.python_implementation()]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that was run and answered; ``version`` is the full one, e.g. ``"3.11.7"``."""

    path: Path
    version: str


def find_interpreter(version: str, report: Callable[[str], None] = lambda message: None) -> Interpreter:
    """Return a CPython ``version`` (e.g. ``"3.11"``), fetched by uv when this machine has none.

    Raises Unavailable, with the reason and the way out, when it cannot be had.
    """
    found = installed(version)
    if found is not None:
        return found
    report(f"Python {version} is not on this machine; uv fetches it")
    try:
        run_uv(["python", "install", "--no-bin", version])
    except UvFailed as error:
        raise Unavailable(
            f"Python {version} was not found in pyenv, PATH or uv, and uv could not fetch it ({error}); "
            f"install it, for example with `pyenv install {version}` or `uv python install {version}`"
        ) from None
    found = _managed(version)
    if found is None:
        raise Unavailable(f"uv installed Python {version} but it does not run; install it by another way")
    return found


def installed(version: str) -> Interpreter | None:
    """Return a CPython ``version`` that this machine already has, or None."""
    root = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    found = _search(version, root, os.environ.get("PATH", ""))
    return found or _managed(version)


@functools.cache
def _search(version: str, pyenv_root: str, path: str) -> Interpreter | None:
    seen = set()
    for candidate in _candidates(version, Path(pyenv_root), path):
        if candidate not in seen:
            seen.add(candidate)
            found = _asked(candidate, version)
            if found is not None:
                return found
    return None


def _candidates(version: str, pyenv_root: Path, path: str) -> Iterator[Path]:
    if "{}.{}".format(*sys.version_info[:2]) == version:
        yield Path(getattr(sys, "_base_executable", sys.executable))
        yield Path(sys.executable)
    roots = dict.fromkeys([pyenv_root, Path.home() / ".pyenv"])
    for root in roots:
        folders = [each for each in (root / "versions").glob("*") if _may_be(each.name, version)]
        for folder in sorted(folders, key=_patch, reverse=True):
            yield folder / "bin" / "python"
    for folder_name in path.split(os.pathsep):
        if folder_name:
            yield Path(folder_name) / f"python{version}"


def _may_be(name: str, version: str) -> bool:
    """Whether a pyenv folder can hold the version: ``3.11.7`` for 3.11, or a name of the user's own."""
    return name == version or name.startswith(f"{version}.") or not name[:1].isdigit()


def _patch(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)] if folder.name[:1].isdigit() else []


def _asked(candidate: Path, version: str) -> Interpreter | None:
    """The interpreter at ``candidate`` when it runs, is complete and is the version asked for."""
    if not os.access(candidate, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [candidate, "-I", "-c", QUESTION],
            capture_output=True,
            text=True,
            timeout=30,
            env=guest_variables(),
            check=False,
        )
        path, full, implementation = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    if implementation != "CPython" or not full.startswith(f"{version}."):
        return None
    return Interpreter(Path(path), full)


def _managed(version: str) -> Interpreter | None:
    try:
        path = run_uv(["python", "find", "--system", "--no-python-downloads", version]).strip()
    except UvFailed:
        return None
    return _asked(Path(path), version) if path else None
