"""Reads runs back as data frames. DuckDB, pandas and Polars read the same files without this module."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlbench.errors import UserError, nearest
from rlbench.store.schema import SCHEMA_VERSION, arrow_schema

RESULTS = Path("results")


def find_run(name: str, results: Path = RESULTS) -> Path:
    """Return the folder of the run ``name``: a path, a run id under ``results``, or ``"latest"``.

    Raises UserError when there is no such run.
    """
    known = run_ids(results)
    if name == "latest" and known:
        return results / known[-1]
    for path in (Path(name), results / name):
        if (path / "run.json").is_file():
            return path
    listed = f"known: {', '.join(known[-5:])}" if known else f"there are no runs in {results}/"
    raise UserError(f"unknown run '{name}'{nearest(name, known)} ({listed})")


def run_ids(results: Path = RESULTS) -> list[str]:
    """Ids of the runs under ``results``, oldest first."""
    runs = [path.parent for path in results.glob("*/run.json")]
    return [run.name for run in sorted(runs, key=lambda run: ((run / "run.json").stat().st_mtime_ns, run.name))]


def stored_trials(run: Path) -> set[str]:
    """Ids of the trials that are wholly stored in ``run``."""
    return {path.stem for path in (run / "trials").glob("*.parquet")}


def read_table(runs: Path | list[Path], table: str) -> pd.DataFrame:
    """Return ``table`` of one or several runs as one frame (empty when nothing is stored).

    Raises UserError for a corrupt file and for one that rlbench did not write.
    """
    schema = arrow_schema(table)
    parts: list[pa.Table] = []
    for run in runs if isinstance(runs, list) else [runs]:
        parts += [_read(path, table, schema) for path in sorted((run / table).glob("*.parquet"))]
    joined = pa.concat_tables(parts) if parts else schema.empty_table()
    return joined.to_pandas()


def _read(path: Path, table: str, schema: pa.Schema) -> pa.Table:
    try:
        content = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable Parquet file ({first}); remove it and resume the run") from None
    metadata = content.schema.metadata or {}
    version = metadata.get(b"rlbench_schema", b"").decode()
    if metadata.get(b"rlbench_table", b"").decode() != table:
        raise UserError(f"{path}: not written by rlbench as table '{table}'; remove it from the run's folder")
    if version != SCHEMA_VERSION:
        raise UserError(f"{path}: schema version {version}, this rlbench reads {SCHEMA_VERSION}")
    try:
        return content.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException):
        raise UserError(f"{path}: columns differ from schema {SCHEMA_VERSION} of table '{table}'") from None
