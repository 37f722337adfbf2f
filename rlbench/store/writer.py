"""Writes a trial's rows: one Parquet file per table and trial, each put in place by an atomic rename.

``trials/<trial>.parquet`` is written last, so its presence means that the trial is wholly stored.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlbench.errors import UserError
from rlbench.store.schema import TABLES, arrow_schema

Rows = dict[str, Any] | list[dict[str, Any]] | pd.DataFrame


def write_trial(run: Path, trial_id: str, tables: dict[str, Rows]) -> None:
    """Store one trial's tables under ``run``.

    ``tables`` maps table names to rows (a dict for one row, a list of dicts, or a frame); a missing table is
    written empty. Raises UserError when the disk is full or not writable; nothing half-written stays behind.
    """
    order = [name for name in TABLES if name != "trials"] + ["trials"]
    for name in order:
        replace_table(run, name, trial_id, tables.get(name, []))


def replace_table(run: Path, table: str, trial_id: str, rows: Rows) -> None:
    """Write, or write anew, one table of one trial; raises UserError as write_trial does."""
    _write(run / table / f"{trial_id}.parquet", _arrow(table, rows))


def _arrow(name: str, rows: Rows) -> pa.Table:
    schema = arrow_schema(name)
    if isinstance(rows, pd.DataFrame):
        missing = [column for column in schema.names if column not in rows.columns]
        frame = rows.assign(**dict.fromkeys(missing)) if missing else rows
        return pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False).replace_schema_metadata(
            schema.metadata
        )
    listed = [rows] if isinstance(rows, dict) else rows
    return pa.Table.from_pylist([{key: row.get(key) for key in schema.names} for row in listed], schema=schema)


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, temporary, compression="zstd")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free space or mend the permissions, "
            f"then continue with `rlbench run --resume {path.parent.parent}`"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
