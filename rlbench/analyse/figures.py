"""A finished trial's figures and tables, from its ledgers and its outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlbench.analyse.audit import DIFFERS, audit
from rlbench.analyse.breakdown import time_shares
from rlbench.analyse.join import Joined, join
from rlbench.analyse.latency import latencies
from rlbench.analyse.learning import episodes_table, learning
from rlbench.analyse.ledgers import Ledgers, read_ledgers
from rlbench.analyse.policy import UNKNOWN
from rlbench.analyse.processes import busy_spans, process_figures, timeline_table
from rlbench.analyse.reported import reported_rows
from rlbench.analyse.staleness import staleness
from rlbench.analyse.steady import lags, rates, steady_window, windows_table
from rlbench.catalog.scenario import Scenario
from rlbench.store.schema import FIGURES

ADAPTER_TOO_MUCH = 0.05
# Of fewer looks at the stack no share can be told; at ten a second these are two seconds of processor time.
FEWEST_LOOKS = 20


def analyse_trial(
    folder: Path,
    scenario: Scenario,
    outcome: dict[str, Any],
    usage: list[dict[str, Any]],
    wall_s: float,
    not_settable: dict[str, str],
) -> tuple[dict[str, Any], dict[str, pd.DataFrame | list[dict[str, Any]]]]:
    """Return ``(columns of the trials row, the other tables)`` of the trial in ``folder``.

    ``outcome`` is the guest's outcome.json (may lack keys when it died early); ``usage`` the supervisor's samples,
    ``wall_s`` how long the guest ran. Every figure that is None has its reason in ``null_reasons``.
    """
    ledgers = read_ledgers(folder)
    joined = join(ledgers, scenario.topology.n_envs)
    window = steady_window(ledgers, joined)
    figures: dict[str, float | None] = _whole(ledgers, joined, outcome, usage) | {"wall_s": wall_s}
    reasons: dict[str, str] = {}
    tables: dict[str, pd.DataFrame | list[dict[str, Any]]] = {}
    fallback = joined.reason or "training ended before a second round of updates: there is no steady state"
    if window:
        figures |= rates(ledgers, joined, window)
        figures |= time_shares(ledgers, joined, window)
        spans = busy_spans(ledgers, joined, window)
        figures |= process_figures(ledgers, spans, window)
        tables["timeline"] = timeline_table(spans, window)
        measured, tables["latencies"] = latencies(ledgers, joined, window, scenario.topology.mode == "async")
        figures |= measured
        stale, why, tables["lags"] = staleness(ledgers, joined, window, scenario.staleness.threshold)
        figures |= stale
        reasons |= why
        fallback = why.get("", joined.reason or "no event of this kind was seen in the steady state")
        ceiling = figures.get("ceiling_steps_per_s")
        if ceiling:
            figures["share_of_ceiling"] = (figures["env_steps_per_s"] or 0) / ceiling
        tokens = outcome.get("tokens_per_step")
        if tokens:
            figures["tokens_per_s"] = tokens * (figures["env_steps_per_s"] or 0)
    episodes = episodes_table(ledgers, outcome.get("greedy", []))
    learned, why = learning(episodes, scenario.learning.window, scenario.learning.return_threshold)
    figures |= learned
    reasons |= why
    tables["episodes"] = episodes
    tables["windows"] = windows_table(ledgers, joined, usage)
    tables["updates"] = _updates_table(ledgers, joined)
    rows = audit(scenario, ledgers, joined, outcome["spaces"], not_settable) if "spaces" in outcome else []
    tables["audit"] = [dict(row) for row in rows]
    for name in ("gpu_memory_mb", "gpu_utilisation"):
        if figures.get(name) is None:
            reasons[name] = "no GPU was used"
    if "adapter_share" not in figures:
        few = f"the main process computed too little: its stack was looked at fewer than {FEWEST_LOOKS} times"
        reasons |= dict.fromkeys(("adapter_share", "probe_share"), few)
    if "straggler_ratio" not in figures and window:
        reasons["straggler_ratio"] = "one process steps all environments"
    if not outcome.get("tokens_per_step"):
        reasons["tokens_per_s"] = "not a token environment"
    row: dict[str, Any] = {}
    for column in FIGURES:
        value = figures.get(column.name)
        row[column.name] = value
        if value is None:
            reasons.setdefault(column.name, fallback)
        else:
            reasons.pop(column.name, None)
    reasons.pop("", None)
    tables["reported"] = reported_rows(outcome.get("reported", []), row)
    row["null_reasons"] = json.dumps(reasons)
    row["audit_ok"] = not any(each["verdict"] == DIFFERS for each in rows) if rows else None
    row["learned"] = _has_learned(figures, scenario.learning.return_threshold)
    row["warnings"] = json.dumps(_warnings(figures, rows))
    return row, tables


def _whole(
    ledgers: Ledgers, joined: Joined, outcome: dict[str, Any], usage: list[dict[str, Any]]
) -> dict[str, float | None]:
    """Figures over the whole trial, start-up included."""
    samples = ledgers.samples
    steps = len(samples.step)
    figures: dict[str, float | None] = {
        "env_steps": steps,
        "updates": len(joined.version_ns) if joined.reason is None else None,
        "episodes": int((samples.terminated | samples.truncated).sum()),
    }
    figures |= {name: outcome.get(name) for name in ("ceiling_steps_per_s", "probe_us_per_step", "import_s")}
    start = outcome.get("train_start_ns")
    if start and steps:
        figures["first_step_s"] = (int(samples.action_ns[samples.step].min()) - start) / 1e9
    if start and len(joined.version_ns):
        figures["first_update_s"] = (int(joined.version_ns[0]) - start) / 1e9
    owners = outcome.get("owners")
    if owners and owners["looks"] >= FEWEST_LOOKS:
        seconds = owners["seconds"]
        figures["adapter_share"] = seconds["adapter"] / sum(seconds.values())
        figures["probe_share"] = seconds["probe"] / sum(seconds.values())
    if usage:
        figures["peak_memory_mb"] = max(each["memory_mb"] for each in usage)
        figures["processes"] = max(each["processes"] for each in usage)
        figures["threads"] = max(each["threads"] for each in usage)
        if steps:
            figures["cpu_s_per_1k_steps"] = max(each["cpu_s"] for each in usage) / steps * 1000
        gpu = [each["gpu_memory_mb"] for each in usage if each.get("gpu_memory_mb")]
        if gpu:
            figures["gpu_memory_mb"] = max(gpu)
            figures["gpu_utilisation"] = float(np.mean([each["gpu_utilisation"] for each in usage]))
    return figures


def _updates_table(ledgers: Ledgers, joined: Joined) -> pd.DataFrame:
    count = len(joined.version_ns)
    if not count:
        return pd.DataFrame()
    steps = ledgers.samples.step
    origin = int(ledgers.samples.action_ns[steps].min()) if len(steps) else int(joined.version_ns[0])
    seen = joined.forward_ns > 0
    latency = np.where(seen, (joined.version_ns - joined.forward_ns) / 1e6, np.nan)
    lag = lags(joined)
    known = lag != UNKNOWN
    by_version = pd.Series(lag[known]).groupby(joined.consumed_version[known])
    version = np.arange(count)
    return pd.DataFrame(
        {
            "version": version + 1,
            "time_s": (joined.version_ns - origin) / 1e9,
            "learning_rate": joined.learning_rate,
            "batch_rows": pd.array(np.where(seen, joined.batch_rows, 0), dtype="Int64"),
            "latency_ms": latency,
            "lag_mean": pd.Series(version).map(by_version.mean()),
            "lag_max": pd.Series(version).map(by_version.max()),
        }
    )


def _has_learned(figures: dict[str, float | None], threshold: float | None) -> bool | None:
    returns = [value for name in ("return_last", "return_greedy") if (value := figures.get(name)) is not None]
    return max(returns) >= threshold if threshold is not None and returns else None


def _warnings(figures: dict[str, float | None], audit_rows: list[dict[str, str | None]]) -> list[str]:
    found = [
        f"{row['setting']}: asked {row['asked']}, seen {row['seen']}" for row in audit_rows if row["verdict"] == DIFFERS
    ]
    share = figures.get("adapter_share")
    if share is not None and share > ADAPTER_TOO_MUCH:
        found.append(f"{100 * share:.0f} % of the sampled time is in the adapter's own code")
    genuine = figures.get("provenance_genuine")
    if genuine is not None and genuine < 0.99:
        found.append(f"only {100 * genuine:.1f} % of the consumed samples are ones that the environment acted on")
    return found
