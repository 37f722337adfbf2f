"""Reads a requirements.lock: which distribution must be there in which version."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rlbench.errors import UserError


@dataclass(frozen=True)
class Pin:
    """One line of a lock; ``version`` is None for a requirement that is given by address."""

    name: str
    version: str | None

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


def read_pins(lock: Path, python: str) -> list[Pin]:
    """Return the pins of a lock that apply to the Python with the full version ``python`` on this machine.

    Raises UserError, naming the file and the line, when a requirement is not pinned to one version.
    """
    environment = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "implementation_version": python,
    }
    pins = []
    for line in _lines(lock):
        if line.startswith("-"):
            raise UserError(f"{lock}: '{line}': a lock has pinned requirements only, no options")
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise UserError(f"{lock}: '{line}' is not a requirement ({error})") from None
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        pins.append(Pin(canonicalize_name(requirement.name), _pinned(requirement, lock)))
    return pins


def public_version(version: str) -> str:
    """Return the version normalised and without its local part: ``"2.13.0"`` for ``"2.13.0+cpu"``."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version.partition("+")[0]


def torch_requirement(pins: list[Pin]) -> str | None:
    """Return e.g. ``"torch==2.13.0"`` when the lock has torch."""
    return next((str(pin) for pin in pins if pin.name == "torch"), None)


def without(requirements: Path, names: Iterable[str]) -> str:
    """Return the text of a file of requirements without those of the distributions ``names``."""
    left_out = {canonicalize_name(name) for name in names}
    kept = [line for line in _lines(requirements) if _name(line) not in left_out]
    return "".join(f"{line}\n" for line in kept)


def _name(line: str) -> str:
    return canonicalize_name(re.split(r"[=<>!~;@ \[]", line, maxsplit=1)[0])


def _lines(lock: Path) -> list[str]:
    """The requirements, one each: comments, hashes and line continuations taken out."""
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{lock}: cannot be read ({error.strerror})") from None
    text = re.sub(r"\\\n", " ", text)
    lines = (re.sub(r"(^|\s)#.*$", "", line) for line in text.splitlines())
    return [stripped for line in lines if (stripped := re.sub(r"\s--hash=\S+", "", line).strip())]


def _pinned(requirement: Requirement, lock: Path) -> str | None:
    if requirement.url:
        return None
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "===") or "*" in specifiers[0].version:
        raise UserError(f"{lock}: '{requirement}' is not pinned with '==' (run `rlbench env lock` to pin it)")
    return public_version(specifiers[0].version)
