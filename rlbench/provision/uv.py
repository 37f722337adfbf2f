"""Runs uv in an environment of its own, so that the host's interpreter settings do not leak into a guest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence

import uv

from rlbench.errors import UserError

# They would make uv, or the interpreters that uv starts, use the host's packages instead of the guest's.
HOST_ONLY = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONPYCACHEPREFIX",
    "__PYVENV_LAUNCHER__",
    "UV_PROJECT_ENVIRONMENT",
    "UV_SYSTEM_PYTHON",
)

NO_CONNECTION = (
    "dns error",
    "(connect)",
    "error sending request",
    "timed out",
    "connection refused",
    "unreachable",
)
DISK_FULL = ("no space left on device", "disk quota exceeded")


class UvFailed(Exception):
    """uv, or another tool, ended with an error; the message is what it printed, made one line."""

    def __init__(self, output: str) -> None:
        super().__init__(one_line(output))
        self.output = output

    @property
    def no_connection(self) -> bool:
        """Whether a server could not be reached, as against a package that is missing or does not build."""
        return any(sign in self.output.lower() for sign in NO_CONNECTION)

    @property
    def disk_full(self) -> bool:
        """Whether there was no room for the files."""
        return any(sign in self.output.lower() for sign in DISK_FULL)


class Cancelled(Exception):
    """The caller asked for the build to be given up."""


def uv_path() -> str:
    """Return the uv that came with rlbench; raises UserError when it is not there."""
    try:
        return os.fspath(uv.find_uv_bin())
    except FileNotFoundError as error:
        raise UserError(f"uv is not installed beside rlbench ({error}); run `pip install uv`") from None


def guest_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables without those that belong to the host's interpreter."""
    return {name: value for name, value in (environ or os.environ).items() if name not in HOST_ONLY}


def run_uv(
    arguments: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
    inherit: Iterable[int] = (),
    stdin: str = "",
) -> str:
    """Run ``uv arguments...`` as ``run_tool`` does and return its standard output."""
    command = [uv_path(), *arguments]
    return run_tool(command, variables=variables, cancelled=cancelled, inherit=inherit, stdin=stdin)


def run_tool(
    command: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
    inherit: Iterable[int] = (),
    stdin: str = "",
) -> str:
    """Run a tool that builds environments (uv, pip, git) and return its standard output.

    ``inherit`` names file descriptors that stay open in it. Raises UvFailed when it fails and Cancelled soon
    after ``cancelled`` is set; on these and on any other exception (Ctrl-C) it and all that it started have
    ended.
    """
    # A working folder without a project: the pyproject.toml of the folder that the user is in must not count.
    with tempfile.TemporaryDirectory(prefix="rlbench-uv-") as folder:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**guest_variables(), "UV_NO_PROGRESS": "1", **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=tuple(inherit),
            start_new_session=True,
        )
        try:
            output, errors = _communicate(process, stdin, cancelled)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise UvFailed(errors or output or f"{command[0]} ended with status {process.returncode}")
    return output


def version() -> str:
    """Return uv's version, e.g. ``"0.9.2"``."""
    return run_uv(["--version"]).split()[1]


def one_line(output: str, limit: int = 400) -> str:
    """Return uv's error as one line of at most ``limit`` characters: causes joined, warnings left out."""
    kept = []
    for line in output.splitlines():
        text = line.strip(" \t×│╰─▶├┬╭·").removeprefix("error: ").removeprefix("cause: ").removeprefix("Caused by: ")
        if text and not text.startswith(("warning:", "hint:", "Using Python", "Resolved ", "Prepared ")):
            kept.append(text)
    joined = "; ".join(kept)
    return joined if len(joined) <= limit else joined[: limit - 2].rstrip() + " …"


def _communicate(process: subprocess.Popen[str], stdin: str, cancelled: threading.Event | None) -> tuple[str, str]:
    feed: str | None = stdin
    while True:
        try:
            return process.communicate(feed, timeout=0.2)
        except subprocess.TimeoutExpired:
            feed = None
        if cancelled is not None and cancelled.is_set():
            raise Cancelled


def _end(process: subprocess.Popen[str]) -> None:
    # The whole session: uv runs compilers and interpreters of its own.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
