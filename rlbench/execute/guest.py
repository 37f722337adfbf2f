"""The guest's side of the border: the folder of code it may import, its environment variables, its job."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from rlbench.catalog.library import Library
from rlbench.catalog.paths import PACKAGE
from rlbench.catalog.scenario import Scenario

MARK = "RLBENCH_TRIAL"
# The pipeline is what the adapter `reference` drives; other guests never import it.
GUEST_PARTS = ("probe", "pipeline")
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# What a user's shell may hold that would leak the host's packages or settings into a guest.
_UNWANTED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
    "PYENV_VERSION",
    "PYTHONDONTWRITEBYTECODE",
)


def guest_code(folder: Path) -> Path:
    """Copy the guest's part of rlbench under ``folder`` and return the directory for its PYTHONPATH.

    A copy, so that nothing else of the host is importable and a run's code cannot change while it runs.
    """
    package = folder / "rlbench"
    for part in GUEST_PARTS:
        shutil.copytree(PACKAGE / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", package / "__init__.py")
    # Python runs a module of this name at every start, in whatever process a library starts.
    (folder / "sitecustomize.py").write_text(
        "import os\n\nif 'RLBENCH_TAPS' in os.environ:\n"
        "    from rlbench.probe.children import prepare\n\n    prepare()\n"
    )
    return folder


def guest_variables(
    code: Path, threads: int, mark: str, temporary: Path | None = None, layer: Path | None = None
) -> dict[str, str]:
    """Environment of a guest: the user's, with threads pinned and ``mark`` to find its processes by.

    ``temporary`` receives what the library writes to the temporary directory, so that it goes with the trial;
    ``layer`` holds packages beside the library's own.
    """
    variables = {key: value for key, value in os.environ.items() if key not in _UNWANTED}
    variables |= dict.fromkeys(_THREADS, str(threads))
    variables |= {
        "PYTHONPATH": os.pathsep.join(str(path.resolve()) for path in (code, layer) if path is not None),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        MARK: mark,
    }
    if temporary is not None:
        temporary.mkdir(exist_ok=True)
        variables["TMPDIR"] = str(temporary.resolve())
    return variables


def write_job(folder: Path, library: Library, scenario: Scenario, seed: int, arm: str = "measure") -> dict[str, Any]:
    """Write the trial's ``job.json`` into ``folder`` and return it."""
    job = {
        "scenario": scenario.model_dump(mode="json"),
        "folder": str(folder.resolve()),
        "seed": seed,
        "arm": arm,
        "variant": library.variant,
        "backend": library.backend,
        "adapter": str(library.adapter.resolve()),
        "import_name": library.import_name,
    }
    (folder / "job.json").write_text(json.dumps(job, indent=1))
    return job
