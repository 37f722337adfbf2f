"""Reads a trial's ledgers into arrays, time-ordered over all processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlbench.probe import stamp
from rlbench.probe.ledger import ENV, HEADER, PASS, TERMINATED, TRUNCATED, UPDATE, read_header, read_rows

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Samples:
    """Every observation handed to the library, by environment, then number; ``start[env]`` is an offset into them.

    ``action_ns`` is 0 where no action came back. ``step`` marks those with one: they are the environment steps.
    """

    env: Array
    ready_ns: Array
    action_ns: Array
    reward: Array
    terminated: Array
    truncated: Array
    start: dict[int, int]
    length: dict[int, int]
    pid: dict[int, int]

    @property
    def step(self) -> Array:
        """Indices of the samples that an action was taken on."""
        return np.flatnonzero(self.action_ns)


@dataclass
class Passes:
    """Batches of observations fed to networks, in time order.

    Row j of pass i is ``sample[first[i] + j]``: an index into Samples, or -1 where the stamp names none; ``pid`` is
    the process that noted the pass.
    """

    time_ns: Array
    pid: Array
    module: Array
    flags: Array
    weights: Array
    rows: Array
    first: Array
    sample: Array


@dataclass
class Updates:
    """Optimizer steps in time order, one row for each fed module that the optimizer owns."""

    time_ns: Array
    pid: Array
    module: Array
    optimizer: Array
    learning_rate: Array
    weights: Array


@dataclass
class Ledgers:
    """A trial's ledgers; ``modules`` and ``optimizers`` are described by the processes that own them.

    Modules that several processes describe by the same name ``shared`` are one: weights in shared memory that each of
    them updates. Passes and updates then carry the first one's index.
    """

    samples: Samples
    passes: Passes
    updates: Updates
    modules: list[dict[str, Any]]
    optimizers: list[dict[str, Any]]
    facts: list[dict[str, Any]]


def read_ledgers(folder: Path) -> Ledgers:
    """Return all ledgers under the trial's ``folder``; a ledger that a dead guest left empty counts as no rows."""
    samples = _samples(folder)
    modules: list[dict[str, Any]] = []
    optimizers: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    base: dict[int, tuple[int, int]] = {}
    for path in sorted(folder.glob("taps-*.json")):
        described = json.loads(path.read_text())
        pid = int(path.stem.split("-")[1])
        base[pid] = (len(modules), len(optimizers))
        modules += [{**each, "pid": pid} for each in described.pop("modules")]
        optimizers += [{**each, "pid": pid} for each in described.pop("optimizers")]
        facts.append({**described, "pid": pid})
    passes, updates = _passes(folder, samples, base), _updates(folder, base)
    first: dict[str, int] = {}
    same = [
        first.setdefault(each["shared"], index) if "shared" in each else index for index, each in enumerate(modules)
    ]
    passes.module = np.array(same, np.int64)[passes.module]
    updates.module = np.array(same, np.int64)[updates.module]
    return Ledgers(samples, passes, updates, modules, optimizers, facts)


def _samples(folder: Path) -> Samples:
    parts: list[tuple[int, int, Array]] = []
    for path in folder.glob("env-*.ledger"):
        header = read_header(path)
        if header:
            parts.append((header["env"], header["pid"], np.array(read_rows(path, ENV))))
    parts.sort(key=lambda part: part[0])
    rows = np.concatenate([part[2] for part in parts]) if parts else np.empty(0, ENV)
    lengths = [len(part[2]) for part in parts]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Samples(
        env=np.repeat([part[0] for part in parts], lengths).astype(np.int64),
        ready_ns=rows["ready_ns"],
        action_ns=rows["action_ns"],
        reward=rows["reward"],
        terminated=(rows["flags"] & TERMINATED) > 0,
        truncated=(rows["flags"] & TRUNCATED) > 0,
        start={part[0]: int(start) for part, start in zip(parts, starts[:-1], strict=True)},
        length={part[0]: len(part[2]) for part in parts},
        pid={part[0]: part[1] for part in parts},
    )


def _passes(folder: Path, samples: Samples, base: dict[int, tuple[int, int]]) -> Passes:
    rows: list[Array] = []
    ids: list[Array] = []
    pids: list[Array] = []
    for path in sorted(folder.glob("pass-*.ledger")):
        header = read_header(path)
        part = np.array(read_rows(path, PASS))
        if not header or not len(part):
            continue
        ids.append(_sample_of(samples, *_decoded(path.with_suffix(".ids"), part, header["layout"], header["dim"])))
        offset = base.get(header["pid"], (0, 0))[0]
        part["module"] += offset
        rows.append(part)
        pids.append(np.full(len(part), header["pid"]))
    if not rows:
        none = np.empty(0, np.int64)
        return Passes(none, none, none, none, np.empty(0, "V16"), none, none, none)
    joined, sample, pid = np.concatenate(rows), np.concatenate(ids), np.concatenate(pids)
    order = np.argsort(joined["time_ns"], kind="stable")
    counts = (joined["bytes"] // joined["row_bytes"]).astype(np.int64)
    first = np.cumsum(counts) - counts
    if not np.array_equal(order, np.arange(len(order))):
        sample = sample[ranges(first[order], counts[order])]
        joined, counts, pid = joined[order], counts[order], pid[order]
        first = np.cumsum(counts) - counts
    # A stamp that names an observation not handed over yet was decoded by chance.
    when = np.repeat(joined["time_ns"], counts)
    known = sample >= 0
    sample[known] = np.where(samples.ready_ns[sample[known]] <= when[known], sample[known], -1)
    return Passes(
        joined["time_ns"],
        pid,
        joined["module"],
        joined["flags"],
        joined["weights"],
        counts,
        first.astype(np.int64),
        sample,
    )


def _decoded(path: Path, passes: Array, layout: str, dim: int) -> tuple[Array, Array]:
    """Environment and number named by each row of ``passes``, whose observations are in the file at ``path``."""
    end = int(passes["ids_offset"][-1]) + int(passes["bytes"][-1])
    raw = np.fromfile(path, np.uint8, end - HEADER, offset=HEADER)
    counts = passes["bytes"] // passes["row_bytes"]
    first = np.cumsum(counts) - counts
    env, number = np.empty((2, int(counts.sum())), np.int64)
    for width in np.unique(passes["row_bytes"]):
        some = passes["row_bytes"] == width
        rows = raw if some.all() else raw[ranges(passes["ids_offset"][some] - HEADER, passes["bytes"][some])]
        rows = rows.reshape(-1, width)
        if width != stamp.ID_BYTES[layout]:
            rows = stamp.extract(layout, dim, rows.view(np.float32))
        where = ranges(first[some], counts[some])
        env[where], number[where] = stamp.decode(layout, rows)
    return env, number


def _sample_of(samples: Samples, env: Array, number: Array) -> Array:
    """Indices into Samples for decoded ids, -1 where no such environment or observation exists."""
    top = max(samples.start, default=-1) + 1
    starts, lengths = np.zeros(top + 1, np.int64), np.zeros(top + 1, np.int64)
    for index, start in samples.start.items():
        starts[index], lengths[index] = start, samples.length[index]
    env = np.minimum(env, top)
    return np.where(number < lengths[env], starts[env] + number, -1)


def _updates(folder: Path, base: dict[int, tuple[int, int]]) -> Updates:
    parts: list[Array] = []
    pids: list[Array] = []
    for path in sorted(folder.glob("update-*.ledger")):
        header = read_header(path)
        part = np.array(read_rows(path, UPDATE))
        if header and len(part):
            modules, optimizers = base.get(header["pid"], (0, 0))
            part["module"] += modules
            part["optimizer"] += optimizers
            parts.append(part)
            pids.append(np.full(len(part), header["pid"]))
    rows = np.concatenate(parts) if parts else np.empty(0, UPDATE)
    order = np.argsort(rows["time_ns"], kind="stable")
    rows, pid = rows[order], np.concatenate(pids or [np.empty(0, np.int64)])[order]
    return Updates(rows["time_ns"], pid, rows["module"], rows["optimizer"], rows["learning_rate"], rows["weights"])


def ranges(first: Array, counts: Array) -> Array:
    """Return the concatenation of ``arange(f, f + n)`` for each pair, without a loop."""
    total = int(counts.sum())
    if not total:
        return np.empty(0, np.int64)
    ends = np.cumsum(counts)
    return np.arange(total) + np.repeat(first - (ends - counts), counts)
