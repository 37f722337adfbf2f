"""The instrument against a scripted learner: every figure must be exactly what the script says.

The expected figures are computed from the script with plain loops over its samples, knowing nothing of stamps,
ledgers or joins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlbench.store.reader import read_table
from tests.conftest import ORACLE

pytestmark = pytest.mark.e2e

THRESHOLD = 2
ASYNC = ("--set", "topology.mode=async", "--set", "topology.workers=2")


@pytest.fixture(scope="module")
def scripts() -> dict[str, Any]:
    pytest.importorskip("gymnasium")
    sys.path.insert(0, str(ORACLE))
    try:
        from script import SCRIPTS
    finally:
        sys.path.remove(str(ORACLE))
    return {name: make() for name, make in SCRIPTS.items()}


def figures_of(run: Path, library: str) -> dict[str, Any]:
    trials = read_table(run, "trials")
    row = trials[trials["library"] == library].iloc[0].to_dict()
    assert row["status"] == "ok", row["reason"]
    return row


def expected(script: Any, asynchronous: bool) -> dict[str, float]:
    """The figures by their definitions, sample by sample."""
    updates = script.updates
    actions = sorted(s["action"] for s in script.samples.values() if s["action"] is not None)
    resume = min(t for t in actions if t > updates[0])
    start = max(t for t in updates if t < resume)
    end = max(actions[-1], updates[-1])
    seconds = (end - start) / 1e9
    inside = [c for c in script.consumptions if start < c[2] <= end]
    first: dict[Any, tuple[int, int]] = {}
    times: dict[Any, int] = {}
    for sample, version, when in script.consumptions:
        if sample is not None:
            first.setdefault(sample, (version, when))
            times[sample] = times.get(sample, 0) + 1
    out: dict[str, float] = {
        "env_steps": len(actions),
        "updates": len(updates),
        "steady_s": seconds,
        "env_steps_per_s": sum(start < t <= end for t in actions) / seconds,
        "updates_per_s": sum(start < t <= end for t in updates) / seconds,
        "samples_learned_per_s": len(inside) / seconds,
        "reuse_mean": sum(times.values()) / len(times),
        "reuse_max": max(times.values()),
    }
    consumed = [None if sample is None else script.samples[sample] for sample, _, _ in inside]
    out["provenance_foreign"] = sum(s is None for s in consumed) / len(inside)
    out["provenance_never_acted"] = sum(s is not None and s["action"] is None for s in consumed) / len(inside)
    out["provenance_genuine"] = sum(s is not None and s["action"] is not None for s in consumed) / len(inside)
    lags, sync, queue, early = [], [], [], {}
    for (sample, version, _), s in zip(inside, consumed, strict=True):
        if s is None or s["acting"] is None:
            continue
        made = sum(t <= s["action"] for t in updates)
        lags.append(version - s["acting"])
        sync.append(made - s["acting"])
        queue.append(version - made)
        early[sample] = first[sample][0] - s["acting"]
    if lags:
        out |= {
            "lag_mean": np.mean(lags),
            "lag_min": min(lags),
            "lag_max": max(lags),
            "lag_p50": np.percentile(lags, 50),
            "lag_p95": np.percentile(lags, 95),
            "lag_p99": np.percentile(lags, 99),
            "sync_lag_mean": np.mean(sync),
            "queue_lag_mean": np.mean(queue),
            "lag_over_threshold": np.mean([lag > THRESHOLD for lag in lags]),
            "first_use_lag_mean": np.mean(list(early.values())),
            "first_use_lag_max": max(early.values()),
        }
    ages = [
        (when - script.samples[sample]["ready"]) / 1e6 for sample, (_, when) in first.items() if start < when <= end
    ]
    out |= {
        "sample_age_ms_p50": np.percentile(ages, 50),
        "sample_age_ms_p95": np.percentile(ages, 95),
        "sample_age_ms_max": max(ages),
    }
    if any(s["action"] is not None for s in (script.samples[sample] for sample in first)):
        newest = max(script.samples[sample]["action"] or 0 for sample in first)
        arrived = [key for key, s in script.samples.items() if s["action"] is not None and s["action"] <= newest]
        out["never_learned"] = sum(key not in first for key in arrived) / len(arrived)
    calm, stalled = [], 0
    for s in script.samples.values():
        if s["action"] is None or not start < s["action"] <= end:
            continue
        ready = max(s["ready"], start)
        if not asynchronous and any(ready < t < s["action"] for t in updates):
            stalled += s["action"] - ready
        else:
            calm.append((s["action"] - ready) / 1e6)
    out |= {f"action_latency_ms_p{p}": np.percentile(calm, p) for p in (50, 95, 99)}
    out |= {"action_latency_ms_max": max(calm), "stall_share": stalled / (end - start) / script.n_envs}
    latency = [
        (made - next(when for when, _ in reversed(script.batches) if when < made)) / 1e6
        for made in updates
        if start < made <= end
    ]
    out |= {f"update_latency_ms_p{p}": np.percentile(latency, p) for p in (50, 99)}
    waits = []
    for version, made in enumerate(updates, 1):
        if start < made <= end:
            acted = [s["action"] for s in script.samples.values() if s["acting"] is not None and s["acting"] >= version]
            if acted:
                waits.append(max(0, min(acted) - made) / 1e6)
    if waits:
        out |= {f"sync_latency_ms_p{p}": np.percentile(waits, p) for p in (50, 99)}
    return out | shares(script, start, end)


def shares(script: Any, start: int, end: int) -> dict[str, float]:
    """Overlap and idleness, by looking at every half millisecond (all of the script's times are multiples of it)."""
    cell = 500_000
    env: dict[str, set[int]] = {}
    act: dict[str, set[int]] = {}
    learn: set[int] = set()
    asked: dict[str, int] = {}
    for event in script.events:
        process = event["process"]
        if event["kind"] == "act":
            asked.setdefault(process, event["time"])
        elif event["kind"] == "step":
            if process in asked:
                act.setdefault(process, set()).update(range(asked.pop(process) // cell, event["action"] // cell))
            env.setdefault(process, set()).update(range(event["action"] // cell, event["ready"] // cell))
    for fed, _ in script.batches:
        made = next(time for time in script.updates if time > fed)
        learn.update(range(fed // cell, made // cell))
    window = set(range(start // cell, end // cell))
    collect = set().union(*env.values(), *act.values())
    learner = {"learner": learn}
    idle = [1 - len((env[p] | act.get(p, set()) | learner.get(p, set())) & window) / len(window) for p in env]
    return {
        "overlap": len(collect & learn & window) / len(window),
        "learner_idle": 1 - len(learn & window) / len(window),
        "actor_idle": float(np.mean(idle)),
        "silent_workers": 0,
    }


def agree(row: dict[str, Any], wanted: dict[str, float]) -> None:
    wrong = {
        name: (row[name], value)
        for name, value in wanted.items()
        if row[name] is None or row[name] != pytest.approx(value, rel=1e-9, abs=1e-12)
    }
    assert not wrong, f"(measured, scripted): {wrong}"


@pytest.mark.parametrize("variant", ["sync", "late"])
def test_one_process_gives_exactly_the_scripted_figures(oracle: Any, scripts: Any, variant: str) -> None:
    row = figures_of(oracle(variant), f"oracle:{variant}")
    agree(row, expected(scripts[variant], asynchronous=False))
    assert row["stamps_decoded"] == row["acting_version_known"] == 1


def test_separate_actor_processes_give_exactly_the_scripted_figures(oracle: Any, scripts: Any) -> None:
    row = figures_of(oracle("actors", extra=ASYNC), "oracle:actors")
    wanted = expected(scripts["actors"], asynchronous=True)
    assert wanted["sync_lag_mean"] > 0
    assert wanted["queue_lag_mean"] > 0
    assert 0 < wanted["never_learned"] < 1
    assert 0 < wanted["overlap"] < 1
    agree(row, wanted)


def test_synchronous_learning_obeys_the_law(oracle: Any) -> None:
    """Lag runs from 0 to epochs x minibatches - 1, each value as often as any other."""
    run = oracle("sync")
    lags = read_table(run, "lags")
    lag = lags[lags["kind"] == "lag"].set_index("value")["count"]
    assert lag.index.tolist() == [0, 1, 2, 3]
    assert lag.nunique() == 1


def test_unreadable_stamps_make_staleness_null_with_the_reason(oracle: Any, scripts: Any) -> None:
    row = figures_of(oracle("unreadable"), "oracle:unreadable")
    assert row["stamps_decoded"] < 0.999
    wanted = expected(scripts["unreadable"], asynchronous=False)
    assert row["provenance_foreign"] == pytest.approx(wanted["provenance_foreign"])
    reasons = json.loads(row["null_reasons"])
    for name in ("lag_mean", "lag_max", "sync_lag_mean", "queue_lag_mean", "reuse_mean", "never_learned"):
        assert pd.isna(row[name])
        assert "readable stamp" in reasons[name]


def test_an_overwritten_buffer_shows_in_the_provenance(oracle: Any) -> None:
    row = figures_of(oracle("overwritten"), "oracle:overwritten")
    assert row["provenance_genuine"] == 0
    assert row["provenance_never_acted"] == 1
    assert pd.isna(row["lag_mean"])
    assert any("consumed samples" in warning for warning in json.loads(row["warnings"]))


def test_learning_curve_and_thresholds(oracle: Any) -> None:
    run = oracle("sync")
    row = figures_of(run, "oracle:sync")
    assert row["return_greedy"] == row["return_last"] == 5
    assert row["episodes"] == 4
    # Both environments end their first episode in the fifth round of steps: the second one's is step 10.
    assert row["steps_to_threshold"] == 10
    episodes = read_table(run, "episodes")
    train = episodes[episodes["phase"] == "train"]
    assert train["end_step"].tolist() == [9, 10, 19, 20]
    assert train["length"].tolist() == [5, 5, 5, 5]
    assert (episodes["phase"] == "greedy").sum() == 20


def test_every_null_figure_has_a_reason(oracle: Any) -> None:
    from rlbench.store.schema import FIGURES

    run = oracle("sync", "unreadable", "overwritten")
    for row in read_table(run, "trials").to_dict("records"):
        reasons = json.loads(row["null_reasons"])
        for column in FIGURES:
            assert pd.isna(row[column.name]) == (column.name in reasons), column.name


def test_the_audit_tells_what_differs(oracle: Any) -> None:
    audit = read_table(oracle("sync"), "audit").set_index("setting")
    assert audit.loc["n_envs", "verdict"] == "ok"
    assert audit.loc["rollout_length", ["asked", "seen", "verdict"]].tolist() == ["6", "6", "ok"]
    assert audit.loc["batch_size", ["asked", "seen", "verdict"]].tolist() == ["6", "3", "differs"]
    assert audit.loc["gradient_steps_per_rollout", ["asked", "seen", "verdict"]].tolist() == [
        "2",
        "4",
        "differs",
    ]
    assert audit.loc["n_epochs", "verdict"] == "ok"
    assert audit.loc["learning_rate", "verdict"] == "differs"
    assert audit.loc["optimizer", "verdict"] == "not seen"
