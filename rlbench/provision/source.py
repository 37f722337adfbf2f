"""Puts code that no package index has into an environment: from its git repository, or from a copy of it.

Whatever it comes from, it is compared with the hash in adapter.toml, so a copy need not be a git repository.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from rlbench.catalog.library import Library, Source
from rlbench.errors import Unavailable
from rlbench.provision.uv import UvFailed

Tool = Callable[[list[str]], str]


def install_source(library: Library, environment: Path, run: Tool) -> None:
    """Copy the library's source folder into ``environment`` and put it on the path of its Python.

    ``run`` runs a command line and raises UvFailed. Raises Unavailable when the source cannot be had.
    """
    source = library.install.source
    assert source is not None
    with tempfile.TemporaryDirectory(prefix="rlbench-source-") as work:
        found = _fetched(library, source, Path(work), run)
        if tree_hash(found) != source.sha256:
            raise Unavailable(
                f"{found} differs from what {source.git} has in its folder {source.folder} "
                f"at commit {source.commit[:7]}"
            )
        target = source_folder(environment, source)
        shutil.copytree(found, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name in source.without:
        (target / name).unlink()
    for packages in environment.glob("lib/python3*/site-packages"):
        # Relative to the folder that it lies in: environments are renamed.
        (packages / "rlbench-source.pth").write_text(os.path.relpath(target.parent, packages) + "\n")


def source_folder(environment: Path, source: Source) -> Path:
    """Return where an environment has the source."""
    return environment / "source" / source.folder


def source_version(library: Library) -> dict[str, str]:
    """Return the version under which results name the library's source: its commit; empty without one."""
    source = library.install.source
    return {} if source is None else {library.package.lower(): source.commit[:7]}


def tree_hash(folder: Path) -> str:
    """Return a SHA-256 over the names and contents of all files under ``folder``, bytecode left out."""
    digest = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name in sorted(files):
        if "__pycache__" not in name:
            digest.update(name.encode() + b"\0" + hashlib.sha256(files[name].read_bytes()).digest())
    return digest.hexdigest()


def _fetched(library: Library, source: Source, work: Path, run: Tool) -> Path:
    """The source's folder: of the user's copy, or of a clone made under ``work``."""
    variable = f"RLBENCH_SOURCE_{library.name.upper()}"
    way_out = f"give a copy of it with `--source {library.name}=PATH` or in {variable}"
    given = library.source_copy or (Path(os.environ[variable]) if os.environ.get(variable) else None)
    repository = given.expanduser().absolute() if given else work / "clone"
    try:
        if given is None:
            run(
                [
                    "git",
                    "clone",
                    "--quiet",
                    "--filter=blob:none",
                    "--no-checkout",
                    source.git,
                    str(repository),
                ]
            )
        archive = work / "source.tar"
        run(["git", "-C", str(repository), "archive", f"--output={archive}", source.commit, source.folder])
    except (UvFailed, FileNotFoundError) as error:
        if given is None:
            raise Unavailable(
                f"the source of {library.title} is on no package index and git could not fetch it from "
                f"{source.git} ({error}); {way_out}"
            ) from None
        if not (repository / source.folder).is_dir():
            raise Unavailable(
                f"{repository} has neither a folder {source.folder} nor commit {source.commit[:7]}; {way_out}"
            ) from None
        return repository / source.folder
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    return work / source.folder
