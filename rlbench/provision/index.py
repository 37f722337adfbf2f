"""The user's pip settings, translated for uv, which does not read them.

Index addresses go to uv in environment variables and not as arguments, because they may hold a password and a
command line can be read by everybody on the machine. A setting that the user made for uv itself is left
alone.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlbench.provision.uv import guest_variables


@dataclass(frozen=True)
class PipSettings:
    """Where packages come from, by pip's own names; a None or empty value means pip's default."""

    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    constraint: tuple[str, ...] = ()
    trusted_host: tuple[str, ...] = ()
    no_index: bool = False
    cert: str | None = None


def pip_settings(environ: Mapping[str, str] | None = None, configured: Mapping[str, str] | None = None) -> PipSettings:
    """Return the settings in effect for ``pip install``.

    ``environ`` (default: the process's) wins over ``configured`` (default: what pip's configuration files
    say); in files ``[install]`` wins over ``[global]``. Places on this machine that do not exist are left
    out, as pip does.
    """
    environ = os.environ if environ is None else environ
    configured = pip_configuration() if configured is None else configured

    def value(name: str) -> str:
        from_environ = environ.get("PIP_" + name.upper().replace("-", "_"))
        if from_environ:
            return from_environ
        return configured.get(f"install.{name}") or configured.get(f"global.{name}") or ""

    return PipSettings(
        index_url=next(iter(_present(value("index-url").split())), None),
        extra_index_url=_present(value("extra-index-url").split()),
        find_links=_present(value("find-links").split()),
        constraint=_present(value("constraint").split()),
        trusted_host=tuple(value("trusted-host").split()),
        no_index=value("no-index").lower() in ("1", "true", "yes", "on"),
        cert=next(iter(_present(value("cert").split())), None),
    )


def uv_flags(settings: PipSettings) -> list[str]:
    """Return the arguments of ``uv pip install`` and ``compile`` that mean the same as the settings."""
    flags = []
    for place in settings.find_links:
        flags += ["--find-links", place]
    for path in settings.constraint:
        flags += ["--constraints", path]
    if settings.no_index:
        flags.append("--no-index")
    return flags


def uv_variables(settings: PipSettings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables for uv that mean the same as the settings.

    A variable that ``environ`` (default: the process's) already has is left out: the user meant it for uv.
    """
    environ = os.environ if environ is None else environ
    wanted = {
        "UV_DEFAULT_INDEX": settings.index_url or "",
        "UV_INDEX": " ".join(settings.extra_index_url),
        # pip takes the best version of all indexes; uv by default stops at the first index that knows the
        # name.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if settings.extra_index_url else "",
        "UV_INSECURE_HOST": " ".join(settings.trusted_host),
        "SSL_CERT_FILE": settings.cert or "",
    }
    aliases = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
    return {
        name: value
        for name, value in wanted.items()
        if value and name not in environ and aliases.get(name, name) not in environ
    }


def masked(text: str) -> str:
    """Return ``text`` with user names and passwords in addresses replaced by ``****``."""
    return re.sub(r"(?<=://)[^/\s@]+@", "****@", text)


@functools.cache
def pip_configuration() -> Mapping[str, str]:
    """Return pip's configuration files merged, e.g. ``{"global.find-links": "..."}``; empty without pip."""
    interpreters = dict.fromkeys([sys.executable, getattr(sys, "_base_executable", sys.executable)])
    for interpreter in interpreters:
        try:
            done = subprocess.run(
                [interpreter, "-m", "pip", "config", "list"],
                capture_output=True,
                text=True,
                timeout=60,
                env={**guest_variables(), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return parsed_configuration(done.stdout)
    return {}


def parsed_configuration(listing: str) -> dict[str, str]:
    """Return the lines of ``pip config list`` as a table, without those that repeat environment variables."""
    table = {}
    for line in listing.splitlines():
        key, separator, literal = line.partition("=")
        if separator and not key.startswith(":env:"):
            try:
                table[key.strip()] = str(ast.literal_eval(literal.strip()))
            except (ValueError, SyntaxError):
                table[key.strip()] = literal.strip()
    return table


def _present(places: list[str]) -> tuple[str, ...]:
    """The places without missing local ones; local paths made absolute, as uv runs in another folder."""
    kept = []
    for place in places:
        parts = urlsplit(place)
        if parts.scheme == "file":
            if Path(unquote(parts.path)).exists():
                kept.append(place)
        elif parts.scheme:
            kept.append(place)
        elif Path(place).expanduser().exists():
            kept.append(str(Path(place).expanduser().absolute()))
    return tuple(kept)
