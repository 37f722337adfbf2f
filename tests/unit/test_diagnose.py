"""Each diagnosis on a trial that has exactly that fault, and none on one without."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from rlbench.analyse.diagnose import RULES, Evidence, diagnose
from rlbench.catalog.scenario import load_scenario

SOUND: dict[str, Any] = {
    "status": "ok",
    "reason": None,
    "mode": "async",
    "settings": json.dumps(load_scenario("cartpole-async").model_dump(mode="json")),
    "machine": json.dumps({"cores": 8}),
    "learned": True,
    "updates": 640,
    "silent_workers": 0,
    "straggler_ratio": 0.97,
    "stall_share": 0.2,
    "learner_idle": 0.3,
    "never_learned": 0.0,
    "time_env": 0.2,
    "time_act": 0.3,
    "action_latency_ms_p50": 0.5,
    "lag_over_threshold": 0.9,
    "lag_max": 159,
    "provenance_genuine": 1.0,
    "adapter_share": 0.001,
    "processes": 4,
    "return_last": 200.0,
    "return_greedy": 400.0,
}


def trial(sync_lag: int = 20, threads: str = "1", memory: list[float] | None = None, **changes: Any) -> Evidence:
    lags = pd.DataFrame({"kind": ["sync_lag"], "value": [sync_lag], "count": [10]})
    audit = pd.DataFrame({"setting": ["threads"], "seen": [threads]})
    windows = pd.DataFrame({"memory_mb": memory or [500.0] * 30})
    return Evidence({**SOUND, **changes}, {"lags": lags, "audit": audit, "windows": windows})


FAULTS: dict[str, Evidence] = {
    "did not run": trial(status="killed", reason="the guest was ended by SIGKILL"),
    "silent workers": trial(silent_workers=1, straggler_ratio=0.1),
    "stragglers": trial(straggler_ratio=0.3),
    "learner-bound": trial(mode="sync", stall_share=0.7),
    "env-bound": trial(time_env=0.8),
    "act-bound": trial(time_act=0.6),
    "stale weights": trial(lag_max=400),
    "weights never synced": trial(sync_lag=639),
    "buffer overflow": trial(never_learned=0.4),
    "foreign samples": trial(provenance_genuine=0.0, provenance_never_acted=1.0, provenance_foreign=0.0),
    "adapter overhead": trial(adapter_share=0.3),
    "thread oversubscription": trial(threads="4"),
    "memory growth": trial(memory=[500.0 + 20 * second for second in range(30)]),
    "does not learn": trial(learned=False, return_last=20.0, return_greedy=9.0),
}


def test_there_is_a_fault_for_every_rule() -> None:
    assert set(FAULTS) == {name for name, _, _ in RULES}


@pytest.mark.parametrize("name", FAULTS)
def test_exactly_that_fault_is_found(name: str) -> None:
    assert [finding.name for finding in diagnose(FAULTS[name])] == [name]


def test_a_sound_trial_has_no_findings() -> None:
    assert diagnose(trial()) == []


def test_figures_that_were_not_measured_lead_to_no_findings() -> None:
    missing = dict.fromkeys(
        (name for name, value in SOUND.items() if isinstance(value, int | float) and name != "learned"), None
    )
    assert diagnose(trial(**missing, learned=None)) == []


def test_an_asynchronous_learner_that_is_never_idle_and_still_loses_samples() -> None:
    names = [finding.name for finding in diagnose(trial(learner_idle=0.02, never_learned=0.4))]
    assert names == ["learner-bound", "buffer overflow"]
