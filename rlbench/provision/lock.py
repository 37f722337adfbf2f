"""Writes a library's requirements.lock anew from its requirements.in."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rlbench.catalog.library import Library
from rlbench.errors import UserError
from rlbench.provision.index import PipSettings, masked, pip_settings, uv_flags, uv_variables
from rlbench.provision.interpreter import find_interpreter
from rlbench.provision.pins import without
from rlbench.provision.torch import cuda_only
from rlbench.provision.uv import UvFailed, run_uv


def lock(
    library: Library,
    *,
    source: PipSettings | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> dict[str, tuple[str | None, str | None]]:
    """Resolve requirements.in for the library's Python, write requirements.lock, return what changed.

    The result maps a distribution to its old and new version (None: not in the lock). Local versions
    (``+cpu``) and the packages that only a CUDA build of torch asks for are left out: they differ by machine.
    Raises UserError when requirements.in is missing or cannot be resolved, Unavailable without the library's
    Python.
    """
    wanted = (library.folder / "requirements.in").absolute()
    if not wanted.is_file():
        raise UserError(f"{wanted} is missing: it names the packages that the lock is made from")
    interpreter = find_interpreter(library.python, lambda message: report(f"{library.name}: {message}"))
    settings = source or pip_settings()
    install = library.install
    asked = wanted.read_text(encoding="utf-8")
    by_pip = {canonicalize_name(name) for name in install.pip_only or []}
    with tempfile.TemporaryDirectory(prefix="rlbench-lock-") as folder:
        for_uv, constraints = Path(folder) / wanted.name, Path(folder) / "build-constraints.txt"
        for_uv.write_text(without(wanted, by_pip), encoding="utf-8")
        constraints.write_text("".join(f"{each}\n" for each in install.build_constraints), encoding="utf-8")
        arguments = [
            "pip",
            "compile",
            str(Path(folder) / wanted.name),
            "--no-header",
            "--no-annotate",
            "--quiet",
        ]
        arguments += ["--build-constraints", str(constraints)]
        arguments += ["--python", str(interpreter.path), "--upgrade", *uv_flags(settings)]
        if install.no_deps:
            arguments.append("--no-deps")
        try:
            output = run_uv(arguments, variables=uv_variables(settings))
        except UvFailed as error:
            raise UserError(f"{wanted} cannot be resolved: {masked(str(error))}") from None
    output += "".join(f"{name}=={version}\n" for name, version in _versions(asked).items() if name in by_pip)
    before = _versions(library.lock.read_text(encoding="utf-8")) if library.lock.is_file() else {}
    text = locked_text(output, keep=set(_versions(asked)))
    _replace(library.lock, text)
    after = _versions(text)
    names = sorted({*before, *after})
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def locked_text(compiled: str, keep: set[str]) -> str:
    """Return uv's output as the text of a lock; what is in ``keep`` stays even if only CUDA needs it."""
    lines = []
    for line in compiled.splitlines():
        text = line.strip()
        if not text or text.startswith(("#", "--")):
            continue
        name = canonicalize_name(re.split(r"[=<>!~;@ \[]", text, maxsplit=1)[0])
        if cuda_only(name) and name not in keep:
            continue
        lines.append(re.sub(r"(==[^+\s;]+)\+[A-Za-z0-9._-]+", r"\1", text))
    return "\n".join(lines) + "\n"


def _versions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        try:
            requirement = Requirement(re.sub(r"(^|\s)#.*$", "", line).strip())
        except InvalidRequirement:
            # An option or an empty line: not a distribution.
            continue
        found[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return found


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None
