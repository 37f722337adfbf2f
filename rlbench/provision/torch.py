"""Which build of PyTorch a machine needs, and where it comes from."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rlbench.provision.index import PipSettings, uv_flags, uv_variables
from rlbench.provision.interpreter import Interpreter
from rlbench.provision.uv import UvFailed, run_uv

Accelerator = Literal["cpu", "cuda"]

# The trial must be quick: behind a firewall that swallows packets uv would otherwise wait for minutes.
HURRY = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "8", "UV_HTTP_CONNECT_TIMEOUT": "4"}

# Packages that only a CUDA build of torch asks for: what torch brings along differs by machine, so no lock
# has them.
CUDA_ONLY = ("nvidia-c", "nvidia-n", "cuda-", "pytorch-triton", "triton")


@functools.cache
def accelerator() -> Accelerator:
    """Return ``"cuda"`` when this machine has an NVIDIA GPU and its driver, else ``"cpu"``."""
    if Path("/dev/nvidia0").exists():
        return "cuda"
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "cpu"
    try:
        done = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "cuda" if done.returncode == 0 and "GPU" in done.stdout else "cpu"


class TorchIndex:
    """Remembers, for this process, what PyTorch's own index was found to have; uv knows where it is."""

    def __init__(self) -> None:
        self.unreachable: str | None = None
        self._tried: dict[tuple[str, str, Accelerator], str | None] = {}

    def obstacle(self, requirement: str, interpreter: Interpreter, kind: Accelerator, pip: PipSettings) -> str | None:
        """Return why ``requirement`` (e.g. ``"torch==2.13.0"``) cannot come from there; None: it can."""
        if self.unreachable is not None:
            return self.unreachable
        trial = (requirement, interpreter.version, kind)
        if trial not in self._tried:
            self._tried[trial] = self._try(requirement, interpreter, kind, pip)
        return self._tried[trial]

    def _try(self, requirement: str, interpreter: Interpreter, kind: Accelerator, pip: PipSettings) -> str | None:
        arguments = ["pip", "compile", "-", "--no-deps", "--quiet", "--python", str(interpreter.path)]
        try:
            run_uv(
                [*arguments, *backend_flags(kind), *uv_flags(pip)],
                variables={**uv_variables(pip), **HURRY},
                stdin=requirement,
            )
        except UvFailed as error:
            if error.no_connection:
                self.unreachable = "PyTorch's own index cannot be reached"
                return self.unreachable
            return f"PyTorch's own index has no {requirement} for Python {interpreter.version}"
        return None


torch_index = TorchIndex()


def backend_flags(kind: Accelerator) -> list[str]:
    """Return uv's arguments for taking torch from PyTorch's index; ``auto`` fits the build to the driver."""
    return ["--torch-backend", "cpu" if kind == "cpu" else "auto"]


def torch_flags(
    requirement: str | None,
    interpreter: Interpreter,
    kind: Accelerator,
    pip: PipSettings,
    report: Callable[[str], None],
) -> list[str]:
    """Return uv's arguments for the torch that suits this machine; empty: from the configured places."""
    if requirement is None or pip.no_index:
        return []
    obstacle = torch_index.obstacle(requirement, interpreter, kind, pip)
    if obstacle is None:
        return backend_flags(kind)
    report(f"{obstacle}; {requirement} is taken from the configured index and find-links")
    return []


def cuda_only(name: str) -> bool:
    """Whether the distribution is one that only a CUDA build of torch asks for."""
    return name.startswith(CUDA_ONLY)
