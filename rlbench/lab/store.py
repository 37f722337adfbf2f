"""The lab's results on disk: ``lab.json``, ``measurements/NAME.parquet``, ``verdicts/NAME.parquet``, ``charts/``.

Columns are listed here with unit and meaning. The version is in the metadata of every Parquet file as
``rlbench_lab_schema`` and grows when a column changes its meaning or goes away.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlbench import __version__
from rlbench.errors import UserError
from rlbench.execute.machine import git_commit, machine
from rlbench.lab.catalog import Experiment
from rlbench.lab.run import Found
from rlbench.store.schema import Column

LAB_SCHEMA_VERSION = "1"

_S, _I, _F, _B = pa.string(), pa.int64(), pa.float64(), pa.bool_()

MEASUREMENTS = [
    Column("experiment", _S, "", "name of the experiment"),
    Column("condition", _S, "", "what was varied: an implementation, a method, a control"),
    Column("at", _F, "", "place on the axis that the experiment sweeps (null: nothing is swept)"),
    Column("repeat", _I, "", "repeat, or seed, from 0; all conditions of a repeat ran next to each other"),
    Column("metric", _S, "", "what was measured"),
    Column("value", _F, "see unit", "the measurement; null when it was not measured"),
    Column("unit", _S, "", "unit of value"),
    Column("reason", _S, "", "why value is null"),
]

VERDICTS = [
    Column("experiment", _S, "", "name of the experiment"),
    Column("claim", _S, "", "the claim under test"),
    Column("status", _S, "", "ok or failed"),
    Column("verdict", _S, "", "holds here, does not hold here, or cannot be tested here; null when failed"),
    Column("sentence", _S, "", "why, with figures and their 95 % intervals over repeats"),
    Column("reason", _S, "", "why the experiment failed"),
    Column("output", _S, "", "the end of what a failed experiment printed"),
    Column("quick", _B, "", "whether the sizes were the quick ones"),
    Column("sizes", _S, "", "the sizes, as JSON"),
    Column("seconds", _F, "s", "wall time of the experiment"),
    Column("versions", _S, "", "Python and packages that measured, as JSON"),
]

Entry = dict[str, Any]


def begin(results: Path, quick: bool) -> Path:
    """Make a new folder for the lab's results under ``results`` and return it; raises UserError when it cannot."""
    base = results / f"lab-{datetime.now():%Y%m%d-%H%M%S}"
    facts = {
        "schema_version": LAB_SCHEMA_VERSION, "rlbench": __version__, "commit": git_commit(), "quick": quick,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"), "machine": machine(),
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    try:
        folder, number = base, 1
        while folder.exists():
            number += 1
            folder = base.with_name(f"{base.name}-{number}")
        folder.mkdir(parents=True)
        (folder / "lab.json").write_text(json.dumps(facts, indent=1))
    except OSError as error:
        raise UserError(f"--results {results}: cannot be written ({error.strerror or error})") from None
    return folder


def discard(folder: Path) -> None:
    """Remove the folder of a run that came to nothing: it holds only what ``begin`` wrote."""
    (folder / "lab.json").unlink()
    folder.rmdir()


def entry(experiment: Experiment, found: Found, quick: bool) -> Entry:
    """Return the verdict's row."""
    return {
        "experiment": experiment.name, "claim": experiment.claim, "status": found.status, "verdict": found.verdict,
        "sentence": found.sentence, "reason": found.reason, "output": found.output or None, "quick": quick,
        "sizes": json.dumps(experiment.sizes["quick" if quick else "full"]), "seconds": round(found.seconds, 1),
        "versions": json.dumps(found.versions),
    }  # fmt: skip


def write(folder: Path, verdict: Entry, rows: list[dict[str, Any]]) -> None:
    """Write an experiment's measurements, then its verdict; raises UserError when the disk does not take them."""
    name = verdict["experiment"]
    _write(folder / "measurements" / f"{name}.parquet", MEASUREMENTS, [{"experiment": name, **each} for each in rows])
    _write(folder / "verdicts" / f"{name}.parquet", VERDICTS, [verdict])


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of ``"measurements"`` or ``"verdicts"``, ordered by experiment."""
    paths = sorted((folder / table).glob("*.parquet"))
    return [each for path in paths for each in pq.read_table(path, partitioning=None).to_pylist()]


def _write(path: Path, columns: list[Column], rows: list[dict[str, Any]]) -> None:
    schema = pa.schema(
        [(column.name, column.type) for column in columns], metadata={"rlbench_lab_schema": LAB_SCHEMA_VERSION}
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); free space or name another "
                        "folder with --results") from None  # fmt: skip
    finally:
        temporary.unlink(missing_ok=True)
