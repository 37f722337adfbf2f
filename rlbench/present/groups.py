"""Trials grouped over seeds: what a table's row or a chart's line stands for, and the marks beside it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from rlbench.analyse.statistics import Summary, summary

# What tells one row from another. Shown only where it varies, the library always.
KEY = ["run_id", "library", "scenario", "algorithm", "mode", "n_envs", "workers", "device", "cpu_threads"]
HEADINGS = {
    "run_id": "run", "library": "library", "scenario": "scenario", "algorithm": "algorithm", "mode": "mode",
    "n_envs": "envs", "workers": "workers", "device": "device", "cpu_threads": "threads",
}  # fmt: skip

MODES = ["sync", "workers", "async"]

# Put behind a library's name wherever a figure of it is shown.
SYMBOLS = {"ours": "◆", "audit": "≠", "learning": "✗", "drift": "~", "status": "!"}
SYMBOL_MEANINGS = {
    "◆": "rlbench's own pipeline, not a library under test",
    "≠": "settings differ from the scenario",
    "✗": "does not learn",
    "~": "machine drifted",
    "!": "not all trials ok",
}

# The contestant that is rlbench's own (adapters/reference): always marked as such, and below the libraries.
OURS = "reference"

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Group(NamedTuple):
    """The trials of one library x scenario x topology of one run; ``ok`` are those whose status is ok."""

    key: dict[str, Any]
    trials: pd.DataFrame
    ok: pd.DataFrame


class Marker(NamedTuple):
    """Something that the reader must know beside every figure of a group."""

    symbol: str
    text: str


class Measured(NamedTuple):
    """A figure of a group over its seeds, and why it is null in how many trials (``reasons``)."""

    summary: Summary
    reasons: dict[str, int]


def group_trials(trials: pd.DataFrame) -> list[Group]:
    """Return the groups of the ``trials`` table by scenario and library, both as planned, then by topology."""
    if trials.empty:
        return []
    found = []
    for values, frame in trials.groupby(KEY, sort=False, dropna=False):
        key = {name: _plain(value) for name, value in zip(KEY, values, strict=True)}
        ordered = frame.sort_values("seed")
        found.append(Group(key, ordered, ordered[ordered["status"] == "ok"]))
    first: dict[str, float] = {}
    for group in found:
        name, order = str(group.key["library"]), group.trials["order"].min()
        first[name] = min(first.get(name, math.inf), math.inf if pd.isna(order) else float(order))
    return sorted(found, key=lambda each: (str(each.key["scenario"]), is_ours(each), *_place(each, first)))


def is_ours(group: Group) -> bool:
    """Whether the group is of rlbench's own pipeline, or a variant of it."""
    return str(group.key["library"]).partition(":")[0] == OURS


def varying(groups: list[Group]) -> list[str]:
    """Return the key columns, without the library, in which the groups differ."""
    names = [name for name in KEY if name != "library"]
    return [name for name in names if len({each.key[name] for each in groups}) > 1]


def label(group: Group, context: Iterable[str]) -> str:
    """Return the group's name with the ``context`` keys that its chart needs: ``sb3 · 2 workers``."""
    return " · ".join([str(group.key["library"]), *topology(group, context)])


def topology(group: Group, context: Iterable[str]) -> list[str]:
    """Return the group's value of each of the ``context`` keys in words: ``["async", "2 workers"]``."""
    context, parts = list(context), []
    for name in context:
        value = group.key[name]
        if name == "workers" and value == 0 and "mode" in context:
            continue  # that is what the mode says already
        if name == "mode" and value == "workers" and "workers" in context:
            continue  # that is what their number says
        noun = HEADINGS[name].removesuffix("s") if value == 1 else HEADINGS[name]
        parts.append(f"{value} {noun}" if name in ("n_envs", "workers", "cpu_threads") else str(value))
    return parts


def measured(group: Group, figure: str) -> Measured:
    """Return the figure's mean and interval over the seeds that were ok, and the reasons for the nulls."""
    values = group.ok[figure].dropna().astype(float)
    reasons: Counter[str] = Counter()
    for _, trial in group.trials.iterrows():
        if trial["status"] != "ok":
            reasons[trial_problem(trial)] += 1
        elif pd.isna(trial[figure]):
            reasons[loads(trial["null_reasons"], {}).get(figure) or "no reason recorded"] += 1
    return Measured(summary(value for value in values if math.isfinite(value)), dict(reasons))


def by_seed(group: Group, figure: str) -> dict[int, float]:
    """Return the figure's value for each seed that was ok and in which it was measured."""
    rows = group.ok[["seed", figure]].dropna()
    pairs = ((int(seed), float(value)) for seed, value in rows.itertuples(index=False))
    return {seed: value for seed, value in pairs if math.isfinite(value)}


def markers(group: Group, audit: pd.DataFrame | None = None) -> list[Marker]:
    """Return what must be said beside the group's figures; ``audit`` adds which settings differ."""
    found = [Marker(SYMBOLS["ours"], SYMBOL_MEANINGS[SYMBOLS["ours"]])] if is_ours(group) else []
    n_ok = len(group.ok)
    differing = group.ok[group.ok["audit_ok"].eq(False).fillna(False).astype(bool)]
    if len(differing):
        settings = _differing_settings(differing, audit)
        found.append(Marker(SYMBOLS["audit"], f"audit differs: {settings}" if settings else "audit differs"))
    failures = int(group.ok["learned"].eq(False).fillna(False).sum())
    if failures:
        found.append(Marker(SYMBOLS["learning"], f"does not learn{_share(failures, n_ok)}"))
    drifted = int(group.ok["drifted"].eq(True).fillna(False).sum())
    if drifted:
        found.append(Marker(SYMBOLS["drift"], f"drifted{_share(drifted, n_ok)}"))
    problems = Counter(trial_problem(trial) for _, trial in group.trials.iterrows() if trial["status"] != "ok")
    for problem, count in problems.items():
        found.append(Marker(SYMBOLS["status"], f"{problem}{_share(count, len(group.trials))}"))
    return found


def symbols(found: list[Marker]) -> str:
    """Return the markers' distinct symbols, in order, as one string (empty without markers)."""
    return "".join(dict.fromkeys(marker.symbol for marker in found))


def learned(group: Group) -> tuple[int, int]:
    """Return in how many of the group's trials learning was judged, and in how many of those it was found."""
    judged = group.ok["learned"].dropna().astype(bool)
    return len(judged), int(judged.sum())


def trial_problem(trial: pd.Series) -> str:
    """Return status and reason of a trial that is not ok as one phrase, the reason's first line only."""
    reason = "" if pd.isna(trial["reason"]) else plain(str(trial["reason"])).strip()
    return f"{trial['status']}: {reason.splitlines()[0]}" if reason else f"{trial['status']} (no reason recorded)"


def plain(text: str) -> str:
    """Return ``text`` of a guest without terminal escapes and control characters, newlines kept."""
    return "".join(c for c in _ESCAPE.sub("", text) if c.isprintable() or c in "\n\t")


def loads(text: Any, default: Any) -> Any:
    """Return the JSON in a text column, or ``default`` where the column is null."""
    return default if text is None or pd.isna(text) or text == "" else json.loads(text)


def _differing_settings(trials: pd.DataFrame, audit: pd.DataFrame | None) -> str:
    if audit is None or audit.empty:
        return ""
    rows = audit[(audit["verdict"] == "differs") & audit["trial_id"].isin(trials["trial_id"])]
    rows = rows[rows["run_id"].isin(trials["run_id"])]
    return ", ".join(dict.fromkeys(rows["setting"]))


def _share(part: int, whole: int) -> str:
    return "" if part == whole else f" ({part} of {whole} seeds)"


def _place(group: Group, first: dict[str, float]) -> tuple[float, str, int, float, float]:
    """Where a group stands within its scenario: topologies of one library next to each other, small ones first."""
    key = group.key
    mode = MODES.index(key["mode"]) if key["mode"] in MODES else len(MODES)
    return first[str(key["library"])], str(key["library"]), mode, key["workers"] or 0, key["n_envs"] or 0


def _plain(value: Any) -> Any:
    if value is None or pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value
