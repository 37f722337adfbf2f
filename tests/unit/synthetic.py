"""A synthetic run on disk with all that a real one can have: good, failed, differing, not learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rlbench.store.schema import FIGURES
from rlbench.store.writer import write_trial

SETTINGS = {
    "name": "quickstart",
    "environment": {"id": "CartPole-v1"},
    "algorithm": {"name": "ppo", "learning_rate": 1e-3, "n_steps": 256, "batch_size": 64, "n_epochs": 10},
    "topology": {"mode": "sync", "n_envs": 4, "workers": 0, "threads": 1, "device": "cpu"},
    "budget": {"env_steps": 20480, "seconds": None},
    "learning": {"return_threshold": 195.0, "window": 20},
    "staleness": {"threshold": 8},
}
MACHINE = {
    "cpu": "Example CPU 9000",
    "cores": 8,
    "cores_usable": 2,
    "memory_mb": 16000,
    "gpus": [],
    "os": "Linux",
}
NO_GPU = "no GPU in this machine"
HOSTILE = "Traceback:\n  <script>alert('tail')</script>\nModuleNotFoundError: no module 'x' & more"

# library -> mean steps/s, ceiling, mean return, mean lag
SPEEDS = {"sb3": (3200.0, 61000.0, 310.0, 79.5), "cleanrl": (2500.0, 58000.0, 280.0, 79.5)}
SPEEDS |= {"tianshou": (4100.0, 60000.0, 24.0, 60.0), "sample_factory": (9800.0, 60500.0, 220.0, 8.0)}


def trial_row(library: str, seed: int, run_id: str = "run-1", **changes: Any) -> dict[str, Any]:
    """One row of `trials`, status ok, all figures measured but the GPU's; ``changes`` replace columns."""
    speed, ceiling, reward, lag = SPEEDS.get(library, (1000.0, 50000.0, 200.0, 10.0))
    speed *= 1 + 0.02 * (seed - 0.5)
    row: dict[str, Any] = {
        "run_id": run_id, "library": library, "library_version": "1.2.3", "scenario": "quickstart",
        "algorithm": "ppo", "env_id": "CartPole-v1", "mode": "sync", "n_envs": 4, "workers": 0,
        "device": "cpu", "cpu_threads": 1, "seed": seed, "order": seed, "status": "ok",
        "learned": reward > 195, "audit_ok": True, "drifted": False,
        "settings": json.dumps(SETTINGS), "warnings": "[]", "machine": json.dumps(MACHINE),
        "packages": json.dumps({"torch": "2.5.0", "gymnasium": "1.0.0"}), "python": "3.11.9",
        "rlbench_version": "0.1.0", "started_at": "2025-01-02T03:04:05Z", "calibration_ms": 50.0,
    }  # fmt: skip
    row |= {column.name: 1.0 for column in FIGURES}
    row |= {
        "env_steps": 20480, "updates": 3200, "episodes": 150, "wall_s": 12.0, "env_steps_per_s": speed,
        "ceiling_steps_per_s": ceiling, "share_of_ceiling": speed / ceiling,
        "action_latency_ms_p50": 400 / speed,
        "action_latency_ms_p99": 1300 / speed, "update_latency_ms_p50": 1.23, "sample_age_ms_p50": 150.0,
        "lag_mean": lag, "lag_min": 0.0, "lag_max": 2 * lag, "reuse_mean": 10.0, "provenance_genuine": 1.0,
        "provenance_foreign": 0.0, "return_last": reward, "return_greedy": 1.2 * reward,
        "peak_memory_mb": 412.0, "time_env": 0.2, "time_act": 0.35, "time_learn": 0.4, "time_other": 0.05,
        "tokens_per_s": None,
        "gpu_memory_mb": None, "gpu_utilisation": None,
        "null_reasons": json.dumps({
            "tokens_per_s": "not a token scenario", "gpu_memory_mb": NO_GPU, "gpu_utilisation": NO_GPU,
        }),
    }  # fmt: skip
    row |= {"lag_p95": 1.9 * lag, "sync_lag_mean": 0.0, "queue_lag_mean": lag, "overlap": 0.0, "actor_idle": 0.4}
    row |= {"learner_idle": 0.6, "silent_workers": 0, "adapter_share": 0.0, "stall_share": 0.4}
    row |= {"never_learned": 0.0, "provenance_never_acted": 0.0, "lag_over_threshold": 0.0, "processes": 1}
    row |= changes
    mode = "" if row["mode"] == "sync" else f"-{row['mode']}{row['workers']}"
    return row | {"trial_id": changes.get("trial_id", f"{row['scenario']}-{library}{mode}-s{seed}")}


def failed_row(library: str, seed: int, status: str, reason: str, **changes: Any) -> dict[str, Any]:
    """One row of `trials` that was not ok: every figure null, for the reason that the trial has."""
    nothing: dict[str, Any] = {column.name: None for column in FIGURES}
    nothing |= {"learned": None, "audit_ok": None, "status": status, "reason": reason, "output_tail": HOSTILE}
    nothing["null_reasons"] = json.dumps({column.name: reason for column in FIGURES})
    return trial_row(library, seed, **(nothing | changes))


def audit_rows(row: dict[str, Any], differs: bool = False) -> list[dict[str, Any]]:
    """Audit of one trial: one setting as asked, one not settable, and the learning rate, which may differ."""
    said = [
        ("n_envs", "4", "4", "ok", None),
        ("learning_rate", "0.001", "0.0003" if differs else "0.001", "differs" if differs else "ok", None),
        ("max_grad_norm", "0.5", None, "not settable", "the library clips by value"),
    ]
    identity = {key: row[key] for key in ("run_id", "trial_id", "library", "seed")}
    columns = ("setting", "asked", "seen", "verdict", "note")
    return [identity | dict(zip(columns, each, strict=True)) for each in said]


def store(run: Path, row: dict[str, Any], differs: bool = False, detail: bool = True) -> None:
    """Write one trial with all of its tables (only the trial's row when it was not ok, or without ``detail``)."""
    tables: dict[str, Any] = {"trials": row}
    if row["status"] == "ok" and detail:
        tables |= {"audit": audit_rows(row, differs), **_detail(row)}
    write_trial(run, row["trial_id"], tables)


def build_run(
    results: Path, run_id: str = "run-1", rows: list[dict[str, Any]] | None = None, detail: bool = True
) -> Path:
    """Write a run and return its folder. The default one has every case that the presentation marks."""
    run = results / run_id
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"run_id": run_id, "scenarios": ["quickstart"]}))
    for row in default_rows(run_id) if rows is None else rows:
        store(run, row, differs=row["audit_ok"] is False, detail=detail)
    return run


def default_rows(run_id: str = "run-1") -> list[dict[str, Any]]:
    """sb3 good; cleanrl differs and drifted once; tianshou does not learn; one failed, two unavailable."""
    rows = [trial_row("sb3", seed, run_id) for seed in (0, 1)]
    rows += [trial_row("cleanrl", seed, run_id, audit_ok=False, drifted=seed == 1) for seed in (0, 1)]
    rows += [trial_row("tianshou", seed, run_id) for seed in (0, 1)]
    rows += [trial_row("sample_factory", 0, run_id)]
    rows += [failed_row("sample_factory", 1, "failed", "ModuleNotFoundError: no module 'x'", run_id=run_id)]
    rows += [failed_row("rllib", seed, "unavailable", "no Python 3.9 here", run_id=run_id) for seed in (0, 1)]
    return rows


def topology_rows(run_id: str = "run-1", seeds: int = 1) -> list[dict[str, Any]]:
    """Two libraries in one process, and with 1, 2 and 4 workers in step and asynchronous; planned interleaved."""
    cells = [(mode, workers) for workers in (4, 1, 2) for mode in ("async", "workers")] + [("sync", 0)]
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for mode, workers in cells:
            for library in ("sample_factory", "sb3"):
                speed = SPEEDS[library][0] * (1.0 if not workers else workers ** (0.8 if mode == "async" else 0.5))
                asynchronous = mode == "async"
                rows.append(trial_row(
                    library, seed, run_id, mode=mode, workers=workers, order=len(rows), env_steps_per_s=speed,
                    overlap=0.6 if asynchronous else 0.0, actor_idle=0.2 if asynchronous else 0.45,
                    learner_idle=0.1 if asynchronous else 0.6, sync_lag_mean=2.5 if asynchronous else 0.0,
                    never_learned=0.12 if asynchronous else 0.0, learned=True,
                ))  # fmt: skip
    return rows


def _timeline(identity: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    """2 s in rounds of 0.4 s: processes collect, then the learner learns, which only asynchronous ones overlap."""
    asynchronous, workers = row["mode"] == "async", row["workers"]
    spans = []
    for start in np.arange(0, 2, 0.4):
        for step in range(10):
            at = start + 0.025 * step
            spans += [(0, "act", at, at + 0.01)] if not asynchronous else []
            for process in range(1, workers + 1) or [0]:
                spans.append((process, "env", at + 0.01, at + 0.02 - 0.001 * process))
        spans.append(
            (0, "learn", start + 0.05, start + 0.38) if asynchronous else (0, "learn", start + 0.26, start + 0.4)
        )
    return [identity | dict(zip(("process", "kind", "start_s", "end_s"), span, strict=True)) for span in spans]


def _detail(row: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    rng = np.random.default_rng(row["seed"] + sum(map(ord, row["library"])))
    identity = {key: row[key] for key in ("run_id", "trial_id", "library", "seed")}
    speed, steps = row["env_steps_per_s"], row["env_steps"]
    seconds = steps / speed
    ends = np.cumsum(rng.integers(60, 200, size=160))
    ends = ends[ends < steps]
    rise = 1 / (1 + np.exp(-(ends / steps - 0.4) * 10))
    returns = 20 + (row["return_last"] - 20) * rise + rng.normal(0, 12, len(ends))
    whole = range(int(np.ceil(seconds)))
    lags = np.arange(int(row["lag_max"]) + 1)
    action = rng.lognormal(np.log(1000 * row["action_latency_ms_p50"]), 0.4, 4000).astype(int)
    age = rng.lognormal(np.log(1000 * row["sample_age_ms_p50"]), 0.5, 2000).astype(int)
    return {
        "episodes": [
            identity | {"phase": "train", "env": i % 4, "end_step": int(e), "end_s": e / speed, "length": 100,
                        "return": float(r), "truncated": False}
            for i, (e, r) in enumerate(zip(ends, returns, strict=True))
        ] + [identity | {"phase": "greedy", "env": 0, "length": 100, "return": row["return_greedy"]}],
        "windows": [
            identity | {"second": s, "duration_s": min(1.0, seconds - s), "lag_mean": row["lag_mean"],
                        "env_steps": int(speed * min(1.0, seconds - s) * rng.uniform(0.9, 1.1)),
                        "memory_mb": row["peak_memory_mb"] * (1 - 0.3 / (s + 1))}
            for s in whole
        ],
        "lags": [
            identity | {"kind": "lag", "value": int(v), "count": int(c)}
            for v, c in zip(lags, rng.integers(900, 1100, len(lags)), strict=True)
        ],
        "timeline": _timeline(identity, row),
        "latencies": [*_histogram(identity, "action", action), *_histogram(identity, "age", age)],
        "updates": [
            identity | {"version": v, "time_s": v * seconds / 800, "learning_rate": 1e-3, "batch_rows": 64,
                        "latency_ms": 1.2, "lag_mean": float(v % int(row["lag_max"] + 1)),
                        "lag_max": float(v % int(row["lag_max"] + 1)) + 3}
            for v in range(800)
        ],
    }  # fmt: skip


def _histogram(identity: dict[str, Any], kind: str, values: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    found, counts = np.unique(values, return_counts=True)
    return [
        identity | {"kind": kind, "value_us": int(value), "count": int(count)}
        for value, count in zip(found, counts, strict=True)
    ]
