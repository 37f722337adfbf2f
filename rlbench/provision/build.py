"""Builds a library's environment from its lock with uv, atomically, or takes the one that is cached."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from rlbench.catalog.library import Library
from rlbench.errors import Unavailable, UserError
from rlbench.provision import cache
from rlbench.provision.check import distributions, faults, guest_python
from rlbench.provision.index import PipSettings, masked, pip_settings, uv_flags, uv_variables
from rlbench.provision.interpreter import Interpreter, find_interpreter
from rlbench.provision.pins import read_pins, torch_requirement, without
from rlbench.provision.source import install_source, source_version
from rlbench.provision.torch import accelerator, torch_flags, torch_index
from rlbench.provision.uv import UvFailed, run_tool, run_uv

Report = Callable[[str], None]


@dataclass(frozen=True)
class GuestEnv:
    """A library's environment, ready for use; ``size_mb`` is apparent size in MB of 10**6 bytes."""

    library: str
    folder: Path
    python: Path
    build_s: float | None  # None: it was cached
    size_mb: float
    packages: dict[str, str]  # installed distributions -> version
    python_version: str  # full, e.g. "3.11.7"


def environment(
    library: Library,
    *,
    source: PipSettings | None = None,
    report: Report = lambda message: None,
    cancelled: threading.Event | None = None,
) -> GuestEnv:
    """Return the library's environment: the cached one when it equals the lock, else one that is built now.

    ``source`` says where packages come from (default: the user's pip settings); ``report`` gets sentences
    that start with the library's name. Raises Unavailable when it cannot be built, UserError when the lock is
    wrong, and ``uv.Cancelled`` soon after ``cancelled`` is set.
    """
    found = cached(library)
    if found is not None:
        return found
    interpreter = find_interpreter(library.python, lambda message: report(f"{library.name}: {message}"))
    with cache.guard(library.name, report, cancelled) as descriptor:
        # Another rlbench may have built it while this one waited.
        found = cached(library)
        if found is not None:
            return found
        with cache.writable():
            for waste in cache.partial_folders(library.name):
                shutil.rmtree(waste)
        return _Build(library, interpreter, source or pip_settings(), report, cancelled, descriptor).run()


def environments(
    libraries: Iterable[Library],
    jobs: int = 2,
    report: Report = lambda message: None,
    *,
    done: Callable[[str, GuestEnv | Unavailable], None] = lambda name, result: None,
) -> dict[str, GuestEnv | Unavailable]:
    """Return the environment of each library, or why it has none; one that fails does not stop the others.

    Up to ``jobs`` are built at a time. ``report`` and ``done`` (called as each library is finished) are
    called from several threads. Ctrl-C ends all builds and leaves nothing half-built.
    """
    cancelled = threading.Event()

    def outcome(library: Library) -> GuestEnv | Unavailable:
        result: GuestEnv | Unavailable
        try:
            result = environment(library, report=report, cancelled=cancelled)
        except Unavailable as error:
            result = error
        except UserError as error:
            result = Unavailable(str(error))
        done(library.name, result)
        return result

    futures: dict[str, Future[GuestEnv | Unavailable]] = {}
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            for library in libraries:
                futures[library.name] = pool.submit(outcome, library)
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def cached(library: Library) -> GuestEnv | None:
    """Return the library's environment when it is there and equal to the lock; starts no process."""
    folder = cache.current_folder(library, accelerator())
    if folder is None or faults(library, folder):
        return None
    marker = cache.read_marker(folder)
    return None if marker is None else _guest(folder, marker, build_s=None)


def _guest(folder: Path, marker: cache.Marker, build_s: float | None) -> GuestEnv:
    return GuestEnv(
        library=marker.library,
        folder=folder,
        python=guest_python(folder),
        build_s=build_s,
        size_mb=marker.size_mb,
        packages=marker.packages,
        python_version=marker.python_version,
    )


@dataclass(frozen=True)
class _Build:
    """One build; its parts share what it is built from and how it is told to stop."""

    library: Library
    interpreter: Interpreter
    source: PipSettings
    report: Report
    cancelled: threading.Event | None
    descriptor: int

    def run(self) -> GuestEnv:
        """Build beside the final place and rename; whatever happens, no half-built environment stays."""
        name, kind = self.library.name, accelerator()
        key = cache.environment_key(self.library, self.interpreter.version, kind)
        final = cache.environments_root() / f"{name}-{key}"
        partial = final.with_name(f".partial-{name}-{key}-{os.getpid()}")
        self._told(f"building with Python {self.interpreter.version} for {kind}")
        start = time.perf_counter()
        try:
            with cache.writable():
                partial.mkdir()
                self._install(partial)
                marker = cache.Marker(
                    library=name,
                    key=key,
                    lock_sha256=cache.lock_hash(self.library),
                    python_version=self.interpreter.version,
                    accelerator=kind,
                    build_s=round(time.perf_counter() - start, 2),
                    built_at=datetime.now(UTC).isoformat(timespec="seconds"),
                    size_mb=cache.apparent_size_mb(partial),
                    packages=distributions(partial) | source_version(self.library),
                )
                cache.write_marker(partial, marker)
                wrong = faults(self.library, partial)
                if wrong:
                    raise Unavailable(f"{name} was installed, but not as its lock says: {'; '.join(wrong[:3])}")
                if final.exists():
                    # Of the same key but found faulty: somebody changed it by hand.
                    cache.discard(final)
                partial.rename(final)
        except UvFailed as error:
            raise Unavailable(self._sentence(error)) from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        self._told(f"built in {marker.build_s:.1f} s, {marker.size_mb:.0f} MB")
        return _guest(final, marker, build_s=marker.build_s)

    def _install(self, folder: Path) -> None:
        # Absolute: uv runs in another folder.
        lock, install = self.library.lock.absolute(), self.library.install
        self._uv(
            [
                *("venv", "--relocatable", "--clear", "--no-project"),
                *("--python", str(self.interpreter.path)),
                *("--prompt", f"rlbench-{self.library.name}"),
                str(folder),
            ]
        )
        if install.source is not None:
            # First of all: without it the rest would be in vain.
            install_source(self.library, folder, self._tool)
        options = ["--python", str(guest_python(folder)), "--compile-bytecode", *uv_flags(self.source)]
        if install.build_constraints:
            constraints = folder / "build-constraints.txt"
            constraints.write_text("\n".join(install.build_constraints) + "\n", encoding="utf-8")
            options += ["--build-constraints", str(constraints)]
        pins = read_pins(lock, self.interpreter.version)
        torch = torch_requirement(pins)
        flags = torch_flags(torch, self.interpreter, accelerator(), self.source, self._told)
        if install.no_deps:
            if torch is not None:
                # A CUDA build of torch brings libraries along that no lock names.
                self._pip([*options, "--constraints", str(lock), torch], flags)
            options.append("--no-deps")
        by_pip = {canonicalize_name(name) for name in install.pip_only or []}
        if by_pip:
            lock = folder / "requirements.txt"
            lock.write_text(without(self.library.lock, by_pip), encoding="utf-8")
        self._pip([*options, "-r", str(lock)], flags)
        if by_pip:
            pip = [str(guest_python(folder)), "-m", "pip", "install", "--no-deps", "--quiet"]
            self._tool([*pip, *(str(pin) for pin in pins if pin.name in by_pip)])

    def _pip(self, arguments: list[str], flags: list[str]) -> None:
        if torch_index.unreachable:
            flags = []
        try:
            self._uv(["pip", "install", *arguments, *flags])
        except UvFailed as error:
            if not flags or not error.no_connection:
                raise
            torch_index.unreachable = "PyTorch's own index stopped answering"
            self._told(f"{torch_index.unreachable}; the configured index is tried")
            self._uv(["pip", "install", *arguments])

    def _told(self, message: str) -> None:
        self.report(f"{self.library.name}: {message}")

    def _uv(self, arguments: list[str]) -> None:
        run_uv(
            arguments,
            variables=uv_variables(self.source),
            cancelled=self.cancelled,
            inherit=[self.descriptor],
        )

    def _tool(self, command: list[str]) -> str:
        return run_tool(command, cancelled=self.cancelled, inherit=[self.descriptor])

    def _sentence(self, error: UvFailed) -> str:
        if error.disk_full:
            return cache.no_room()
        reason = masked(str(error))
        way_out = "check the network and pip's index settings (`rlbench doctor` shows them)"
        tail = f"; {way_out}" if error.no_connection else ""
        return f"the environment of {self.library.name} cannot be built: {reason}{tail}"
