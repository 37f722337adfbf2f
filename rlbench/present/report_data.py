"""What the HTML report says, as plain data for its template."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd

from rlbench.analyse.diagnose import RULES, Evidence, Finding, diagnose
from rlbench.analyse.statistics import ratio
from rlbench.catalog.library import Library
from rlbench.errors import UserError
from rlbench.present import groups as g
from rlbench.present.chart_data import machine_text
from rlbench.present.figures import BY_NAME, FIGURES, MISSING, Figure, format_value, with_unit
from rlbench.present.table import bounds, learned_text, reasons_text

MAIN = [
    "env_steps_per_s", "share_of_ceiling", "action_latency_ms_p50", "action_latency_ms_p99",
    "update_latency_ms_p50", "lag_mean", "lag_p95", "lag_max", "sample_age_ms_p50",
    "reuse_mean", "provenance_genuine", "return_last", "return_greedy", "seconds_to_threshold",
    "cpu_s_per_1k_steps", "peak_memory_mb",
]  # fmt: skip

# Tables that a diagnosis rests on beside the trial's own row.
EVIDENCE = ["lags", "audit", "windows"]


def load_run(run: Path) -> dict[str, Any]:
    """Return ``run.json``; raises UserError when it is missing or not JSON."""
    try:
        return dict(json.loads((run / "run.json").read_text()))
    except (OSError, ValueError) as error:
        raise UserError(f"{run / 'run.json'}: cannot be read ({error})") from None


def sections(trials: pd.DataFrame, audit: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one section per scenario: its facts, headline and table rows."""
    found = []
    for scenario in dict.fromkeys(trials["scenario"].dropna()):
        part = trials[trials["scenario"] == scenario]
        groups = g.group_trials(part)
        context = g.varying(groups)
        first = part.iloc[0]
        settings = part["settings"].dropna()
        found.append(
            {
                "name": scenario,
                "line": f"{str(first['algorithm']).upper()} on {first['env_id']}",
                "headline": _headline(groups, context),
                "rows": [_row(group, context, audit) for group in groups],
                "settings": json.dumps(json.loads(settings.iloc[0]), indent=2) if len(settings) else "not recorded",
                "nulls": [entry for group in groups if (entry := _nulls(group, context))],
            }
        )
    return found


def audits(audit: pd.DataFrame) -> list[dict[str, Any]]:
    """Return per library the audited settings, equal rows of several seeds merged, differing ones first."""
    found = []
    columns = ["setting", "asked", "seen", "verdict", "note"]
    for library, rows in audit.groupby("library", sort=True):
        merged = rows.fillna(dict.fromkeys(columns, "")).groupby(columns, sort=False).size().reset_index(name="n")
        merged = merged.sort_values("verdict", key=lambda verdict: verdict != "differs", kind="stable")
        found.append({"library": library, "rows": merged.to_dict("records"),
                      "differs": int((merged["verdict"] == "differs").sum())})  # fmt: skip
    return found


def problems(trials: pd.DataFrame) -> list[dict[str, str]]:
    """Return the trials that were not ok, with status, reason and output tail (untrusted text)."""
    return [
        {
            "trial": str(trial["trial_id"]),
            "status": str(trial["status"]),
            "reason": g.plain(str(trial["reason"])) if not pd.isna(trial["reason"]) else "no reason recorded",
            "tail": g.plain(str(trial["output_tail"])) if not pd.isna(trial["output_tail"]) else "",
        }
        for _, trial in trials[trials["status"] != "ok"].sort_values("order").iterrows()
    ]


def diagnoses(trials: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Return per scenario and group what `diagnose` finds, seeds merged; ``tables`` holds `EVIDENCE`."""
    found = []
    for scenario in dict.fromkeys(trials["scenario"].dropna()):
        groups = g.group_trials(trials[trials["scenario"] == scenario])
        context = g.varying(groups)
        for group in groups:
            marked = f"{g.label(group, context)} {g.symbols(g.markers(group))}".strip()
            found.append({"scenario": scenario, "name": marked, "findings": _findings(group, tables)})
    return found


def _findings(group: g.Group, tables: dict[str, pd.DataFrame]) -> list[dict[str, str]]:
    """The group's findings in the order of the rules; the figures are those of the first seed that has each."""
    seen: dict[str, list[tuple[int, Finding]]] = {}
    for record in group.trials.to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        mine = {name: table[table["trial_id"] == row["trial_id"]] for name, table in tables.items()}
        for finding in diagnose(Evidence(row, mine)):
            seen.setdefault(finding.name, []).append((row["seed"], finding))
    whole = len(group.trials)
    merged = []
    for name in sorted(seen, key=[rule[0] for rule in RULES].index):
        seed, first = seen[name][0]
        share = f"in {len(seen[name])} of {whole} seeds" if whole > 1 else ""
        # The same words for all seeds need no seed to be named.
        example = f"seed {seed}: " if len({finding.sentence for _, finding in seen[name]}) > 1 else ""
        sentence = example + g.plain(first.sentence)
        merged.append({"name": name, "share": share, "sentence": sentence, "remedy": first.remedy})
    return merged


def facts(trials: pd.DataFrame, info: dict[str, Any]) -> dict[str, Any]:
    """Return the run's facts: id, date, machines, versions, statuses and the command to repeat it."""
    started = sorted(trials["started_at"].dropna())
    machines = [machine_text(json.loads(text)) for text in dict.fromkeys(trials["machine"].dropna())]
    commits = sorted(set(trials["git_commit"].dropna()))
    return {
        "run_id": str(info.get("run_id") or (trials["run_id"].iloc[0] if len(trials) else "unknown")),
        "started": started[0][:16].replace("T", " ") + " UTC" if started else "not recorded",
        "machines": list(dict.fromkeys(machines)) or ["not recorded"],
        "rlbench": ", ".join(sorted(set(trials["rlbench_version"].dropna()))) or "not recorded",
        "commit": ", ".join(commit[:12] for commit in commits),
        "statuses": ", ".join(f"{count} {status}" for status, count in trials["status"].value_counts().items()),
        "versions": _versions(trials),
        "command": command(trials, info),
    }


def command(trials: pd.DataFrame, info: dict[str, Any]) -> str:
    """Return the command line that runs the same libraries, scenarios and seeds again, from ``run.json``."""
    # run.json holds whole scenarios; one that is only named is taken as a shipped one.
    scenarios = [each["name"] if isinstance(each, dict) else each for each in info.get("scenarios", [])]
    libraries = info.get("libraries") or list(dict.fromkeys(trials["library"].dropna()))
    words = ["rlbench", "run", *map(str, scenarios or dict.fromkeys(trials["scenario"].dropna()))]
    for name in libraries:
        words += ["--library", str(name)]
    seeds = info.get("seeds") or list(dict.fromkeys(trials["seed"].dropna()))
    words += ["--seeds", str(len(seeds))] if seeds else []
    for folder in info.get("adapters", []):
        words += ["--adapters", str(folder)]
    return shlex.join(words)


def library_notes(names: list[str], libraries: dict[str, Library] | None) -> list[dict[str, Any]]:
    """Return what the catalogue knows of the libraries: architecture, variants, issues, what is not settable.

    ``names`` are those of the trials, ``library`` or ``library:variant``.
    """
    bare = dict.fromkeys(name.split(":")[0] for name in names)
    known = [libraries[name] for name in bare if name in libraries] if libraries else []
    return [
        {
            "title": each.title,
            "axes": {name.replace("_", " "): phrase for name, phrase in each.axes.model_dump().items()},
            "variants": {f"{each.name}:{variant}": what for variant, what in each.variants.items()},
            "issues": each.known_issues,
            "not_settable": each.not_settable,
        }
        for each in known
    ]


def _headline(groups: list[g.Group], context: list[str]) -> str:
    speed = "env_steps_per_s"
    fair: list[tuple[float, g.Group]] = []
    for group in groups:
        mean = g.measured(group, speed).summary.mean
        judged, found = g.learned(group)
        as_asked = bool(group.ok["audit_ok"].eq(True).all()) and len(group.ok) == len(group.trials)
        if mean is not None and as_asked and judged == found == len(group.trials):
            fair.append((mean, group))
    if not fair:
        return "No library both learned in every seed and ran with the settings as asked."
    mean, best = max(fair, key=lambda each: each[0])
    names = {id(group): f"{g.label(group, context)} {g.symbols(g.markers(group))}".strip() for _, group in fair}
    shown = with_unit(BY_NAME[speed], mean)
    said = f"Fastest of those that learned in every seed with the settings as asked: {names[id(best)]}, {shown}"
    level = [names[id(group)] for _, group in fair if group is not best and not _apart(best, group, speed)]
    return f"{said}; no difference that can be called to {', '.join(level)}." if level else f"{said}."


def _apart(first: g.Group, second: g.Group, figure: str) -> bool:
    found = ratio(g.by_seed(first, figure), g.by_seed(second, figure))
    return found is not None and found.low is not None and found.low > 1


def _row(group: g.Group, context: list[str], audit: pd.DataFrame) -> dict[str, Any]:
    marks = g.markers(group, audit)
    judged, found = g.learned(group)
    return {
        "name": g.label(group, context),
        "symbols": g.symbols(marks),
        "markers": [f"{mark.symbol} {mark.text}" for mark in marks],
        "seeds": f"{len(group.ok)}/{len(group.trials)}",
        "learned": {"text": learned_text(group), "sort": found / judged if judged else ""},
        "bad": bool(judged and found < judged),
        "cells": [_cell(group, BY_NAME[name]) for name in MAIN],
    }


def _cell(group: g.Group, figure: Figure) -> dict[str, Any]:
    value, reasons = g.measured(group, figure.name)
    return {
        "text": format_value(figure, value.mean),
        "interval": bounds(figure, value),
        "sort": "" if value.mean is None else repr(value.mean),
        "why": "; ".join(reasons_text(reasons)) if value.mean is None else "",
    }


def _nulls(group: g.Group, context: list[str]) -> dict[str, Any] | None:
    if not len(group.ok):
        return None  # said once, under the trials that did not run
    by_reason: dict[str, list[str]] = {}
    for figure in FIGURES:
        value, reasons = g.measured(group, figure.name)
        if value.mean is None:
            by_reason.setdefault("; ".join(reasons_text(reasons)) or MISSING, []).append(figure.name)
    return {"name": g.label(group, context), "reasons": by_reason} if by_reason else None


def _versions(trials: pd.DataFrame) -> list[dict[str, str]]:
    found = {}
    for _, trial in trials.iterrows():
        packages = g.loads(trial["packages"], {})
        if not pd.isna(trial["library_version"]):
            found[str(trial["library"])] = {
                "library": str(trial["library"]),
                "version": str(trial["library_version"]),
                "python": "" if pd.isna(trial["python"]) else str(trial["python"]),
                "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())),
            }
    return [found[name] for name in sorted(found)]
