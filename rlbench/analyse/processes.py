"""Who works when: acting, stepping and learning per process, how far they overlap, who waits and who lags behind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from rlbench.analyse.join import Joined
from rlbench.analyse.ledgers import Array, Ledgers
from rlbench.analyse.policy import UNKNOWN
from rlbench.analyse.steady import Window

# The timeline holds this much of the steady state: enough to see who waits for whom, little enough to draw.
TIMELINE_S = 3.0
# Spans closer than this are one: the gaps between environments of one vector are not waiting.
MERGED_NS = 200_000
SILENT_SHARE = 0.25


class Spans(NamedTuple):
    """Busy spans of one process doing one thing, ns, merged and in order; ``kind`` is env, act or learn."""

    pid: int
    kind: str
    start: Array
    end: Array


def busy_spans(ledgers: Ledgers, joined: Joined, window: Window) -> list[Spans]:
    """Return what each process did in the window.

    env: from an action to the next observation. act: from an acting pass to the first action it led to (in the
    process that holds the network). learn: from a batch's forward pass to the end of its optimizer step.
    """
    samples = ledgers.samples
    found: list[Spans] = []
    follows = np.append(np.diff(samples.env) == 0, False)
    stepped = np.flatnonzero((samples.action_ns > 0) & follows)
    begin, end = samples.action_ns[stepped], samples.ready_ns[stepped + 1]
    owner = _owners(ledgers)[stepped] if len(stepped) else stepped
    for pid in np.unique(owner):
        found.append(_merged(int(pid), "env", begin[owner == pid], end[owner == pid], window))
    if joined.module == UNKNOWN:
        return found
    acted = np.flatnonzero((joined.acted_ns > 0) & (samples.action_ns > 0))
    by_pass = [joined.acted_pid[acted], joined.acted_ns[acted]]
    first = pd.Series(samples.action_ns[acted]).groupby(by_pass).min()
    actor, asked = first.index.get_level_values(0).to_numpy(), first.index.get_level_values(1).to_numpy()
    for pid in np.unique(actor):
        mine = actor == pid
        found.append(_merged(int(pid), "act", asked[mine], first.to_numpy()[mine], window))
    return found + [_merged(int(pid), "learn", begun, ended, window) for pid, begun, ended in joined.learning]


def process_figures(ledgers: Ledgers, spans: list[Spans], window: Window) -> dict[str, float]:
    """Return ``overlap``, ``actor_idle``, ``learner_idle``, ``straggler_ratio`` and ``silent_workers``."""
    whole = window.end - window.start
    collect = _union([each for each in spans if each.kind != "learn"])
    learn = _union([each for each in spans if each.kind == "learn"])
    figures = {}
    if len(learn[0]):
        figures["overlap"] = _intersection(collect, learn) / whole
        figures["learner_idle"] = 1 - float((learn[1] - learn[0]).sum()) / whole
    workers = sorted({each.pid for each in spans if each.kind == "env"})
    busy = []
    for pid in workers:
        start, end = _union([each for each in spans if each.pid == pid])
        busy.append(float((end - start).sum()) / whole)
    if busy:
        figures["actor_idle"] = 1 - float(np.mean(busy))
    samples = ledgers.samples
    inside = samples.step[window.holds(samples.action_ns[samples.step])]
    pids, owner = np.array(sorted(set(samples.pid.values()))), _owners(ledgers)[inside]
    if len(pids) > 1:
        counts = np.array([(owner == pid).sum() for pid in pids])
        figures["straggler_ratio"] = float(counts.min() / max(1.0, float(np.median(counts))))
    late = samples.action_ns[inside] > window.end - SILENT_SHARE * whole
    figures["silent_workers"] = int(sum(not (late & (owner == pid)).any() for pid in pids))
    return figures


def timeline_table(spans: list[Spans], window: Window) -> pd.DataFrame:
    """The first seconds of the steady state as rows ``process, kind, start_s, end_s`` (from the window's start)."""
    limit = window.start + int(TIMELINE_S * 1e9)
    pids = {pid: number for number, pid in enumerate(sorted({each.pid for each in spans}))}
    parts = [
        pd.DataFrame(
            {
                "process": pids[each.pid],
                "kind": each.kind,
                "start_s": (each.start[each.start < limit] - window.start) / 1e9,
                "end_s": (np.minimum(each.end[each.start < limit], limit) - window.start) / 1e9,
            }
        )
        for each in spans
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _owners(ledgers: Ledgers) -> Array:
    """Process of each sample's environment."""
    samples = ledgers.samples
    by_env = np.zeros(max(samples.pid, default=-1) + 1, np.int64)
    for env, pid in samples.pid.items():
        by_env[env] = pid
    return by_env[samples.env]


def _merged(pid: int, kind: str, start: Array, end: Array, window: Window) -> Spans:
    inside = (end > window.start) & (start < window.end) & (end >= start)
    start, end = np.clip(start[inside], window.start, None), np.clip(end[inside], None, window.end)
    return Spans(pid, kind, *_joined(start, end, MERGED_NS))


def _joined(start: Array, end: Array, gap: int) -> tuple[Array, Array]:
    """Merge spans that overlap or lie less than ``gap`` apart."""
    if not len(start):
        return start.astype(np.int64), end.astype(np.int64)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    new = np.append(True, start[1:] > reach[:-1] + gap)
    return start[new], np.append(reach[:-1][new[1:]], reach[-1])


def _union(spans: list[Spans]) -> tuple[Array, Array]:
    none = np.empty(0, np.int64)
    start = np.concatenate([each.start for each in spans] or [none])
    return _joined(start, np.concatenate([each.end for each in spans] or [none]), 0)


def _intersection(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
    """Length of the intersection of two unions of spans."""
    points = np.concatenate([*a, *b])
    change = np.concatenate([np.ones(len(a[0])), -np.ones(len(a[1])), np.full(len(b[0]), 2), np.full(len(b[1]), -2)])
    order = np.argsort(points, kind="stable")
    state = np.cumsum(change[order])[:-1]
    return float(np.diff(points[order])[state == 3].sum())
