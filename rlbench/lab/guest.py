"""The guest's side of an experiment: ``python -m rlbench.lab.guest FOLDER``.

Reads ``job.json`` (module, quick), appends sentences to ``notes.txt`` while it measures, and writes ``found.json``:
``rows``, ``verdict``, ``sentence`` and ``versions``.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Run the job in ``folder``. An experiment that raises leaves no ``found.json``, only its traceback."""
    job = json.loads((folder / "job.json").read_text())
    experiment = importlib.import_module(f"rlbench.lab.experiments.{job['module']}")
    with (folder / "notes.txt").open("a", buffering=1) as notes:
        rows = experiment.measure(job["quick"], lambda sentence: print(sentence, file=notes))
    verdict, sentence = experiment.verdict(rows)
    # Which versions measured: only of what the experiment imported.
    versions = {"python": platform.python_version()}
    for name in ("numpy", "torch"):
        if name in sys.modules:
            versions[name] = str(sys.modules[name].__version__)
    found = {"rows": rows, "verdict": verdict, "sentence": sentence, "versions": versions}
    partial = folder / "found.json.partial"
    partial.write_text(json.dumps(found, allow_nan=False))
    os.replace(partial, folder / "found.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
