"""Where environments are kept: ``<cache>/envs/<library>-<key>``, each with a marker file.

A folder of that name is always complete, because a build goes on in ``.partial-<library>-...`` beside it and
is renamed at its end. What a killed build leaves behind is therefore easy to tell and is removed by the next
one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from rlbench.catalog.library import Library
from rlbench.errors import Unavailable
from rlbench.provision.torch import Accelerator
from rlbench.provision.uv import Cancelled

# Raised when environments of the same lock must be built anew because rlbench builds them in another way.
FORMAT = 1

MARKER = "rlbench-env.json"


@dataclass(frozen=True)
class Marker:
    """What an environment was built from and what it holds; ``size_mb`` in MB of 10**6 bytes."""

    library: str
    key: str
    lock_sha256: str
    python_version: str
    accelerator: Accelerator
    build_s: float
    built_at: str
    size_mb: float
    packages: dict[str, str]


def cache_root() -> Path:
    """Return the cache folder: ``$RLBENCH_CACHE``, or the user's cache folder for rlbench."""
    return Path(os.environ.get("RLBENCH_CACHE") or platformdirs.user_cache_dir("rlbench")).expanduser().absolute()


def environments_root() -> Path:
    """Return the folder that holds all environments."""
    return cache_root() / "envs"


def lock_hash(library: Library) -> str:
    """Return the SHA-256 of the library's lock, in hexadecimal."""
    return hashlib.sha256(library.lock.read_bytes()).hexdigest()


def environment_key(library: Library, python_version: str, accelerator: Accelerator) -> str:
    """Return 12 hexadecimal digits that differ whenever the environment would be built differently."""
    parts = [FORMAT, lock_hash(library), python_version, accelerator, platform.machine()]
    text = json.dumps([*parts, library.install.model_dump(mode="json", exclude_none=True)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def environment_folders(library_name: str) -> list[Path]:
    """Return the library's environments, the last built first; those of an older lock are among them."""
    folders = [path.parent for path in environments_root().glob(f"{library_name}-*/{MARKER}")]
    return sorted(folders, key=lambda folder: (folder / MARKER).stat().st_mtime, reverse=True)


def current_folder(library: Library, accelerator: Accelerator) -> Path | None:
    """Return the environment built from the library's present lock and options for this machine, or None.

    Any Python of the right minor version will do, so none needs to be looked for while one is cached.
    """
    for folder in environment_folders(library.name):
        marker = read_marker(folder)
        if marker is None or not marker.python_version.startswith(f"{library.python}."):
            continue
        if marker.key == environment_key(library, marker.python_version, accelerator):
            return folder
    return None


def read_marker(folder: Path) -> Marker | None:
    """Return the marker of an environment; None when it is missing or not of this form."""
    try:
        return Marker(**json.loads((folder / MARKER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_marker(folder: Path, marker: Marker) -> None:
    """Write the marker of an environment."""
    (folder / MARKER).write_text(json.dumps(asdict(marker), indent=1) + "\n", encoding="utf-8")


def partial_folders(library_name: str) -> list[Path]:
    """Return what unfinished builds of the library left behind."""
    return sorted(environments_root().glob(f".partial-{library_name}-*"))


def remove(library_name: str, report: Callable[[str], None]) -> int:
    """Remove all environments of a library and what unfinished builds left; return how many there were.

    Waits for a build of the library that is under way. Raises Unavailable when a folder cannot be removed.
    """
    if not environments_root().is_dir():
        return 0
    with guard(library_name, report):
        folders = environment_folders(library_name)
        with writable():
            for folder in folders:
                discard(folder)
            for folder in partial_folders(library_name):
                shutil.rmtree(folder)
    return len(folders)


def discard(folder: Path) -> None:
    """Remove an environment; it is renamed first, so that an interrupted removal leaves no half of it."""
    library_name = folder.name.rpartition("-")[0]
    waste = folder.with_name(f".partial-{library_name}-removed-{os.getpid()}-{folder.name.rpartition('-')[2]}")
    folder.rename(waste)
    shutil.rmtree(waste)


@contextmanager
def guard(library_name: str, report: Callable[[str], None], cancelled: threading.Event | None = None) -> Iterator[int]:
    """Hold the library's lock file, so that one process at a time builds or removes its environments.

    Yields the file descriptor; a child that inherits it keeps the lock until it ends, even when rlbench is
    killed. Raises Unavailable when the cache cannot be written and Cancelled when ``cancelled`` is set while
    waiting.
    """
    with writable():
        environments_root().mkdir(parents=True, exist_ok=True)
        descriptor = os.open(environments_root() / f".lock-{library_name}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        waiting = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    report(f"{library_name}: another rlbench is at work on this environment; waiting for it")
                waiting = True
            if cancelled is not None and cancelled.is_set():
                raise Cancelled
            time.sleep(0.1)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def writable() -> Iterator[None]:
    """Turn a full disk, a read-only cache and the like into Unavailable with one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(no_room()) from None
        raise Unavailable(
            f"the cache {environments_root()} cannot be written ({error.strerror}); "
            "set RLBENCH_CACHE to a folder that can"
        ) from None


def no_room() -> str:
    """Return the sentence for a full disk."""
    return f"no space left for {environments_root()}; free some or set RLBENCH_CACHE to another disk"


def apparent_size_mb(folder: Path) -> float:
    """Return the sum of the sizes of all files under ``folder``, in MB of 10**6 bytes."""
    total = 0
    for parent, _, names in os.walk(folder):
        total += sum(os.lstat(os.path.join(parent, name)).st_size for name in names)
    return round(total / 1e6, 1)
