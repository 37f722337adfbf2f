"""The versioned schema of a run's Parquet dataset: one list of columns per table, with unit and meaning.

Everything that reads or writes results derives from these lists, so ``rlbench schema`` cannot drift from the files.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

SCHEMA_VERSION = "1"


class Column(NamedTuple):
    """One column: its name, Arrow type, unit ("" where it has none) and meaning."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str


_S, _I, _F, _B = pa.string(), pa.int64(), pa.float64(), pa.bool_()

IDENTITY = [
    Column("run_id", _S, "", "the run (one invocation of rlbench run)"),
    Column("trial_id", _S, "", "the trial: library, scenario, topology and seed, unique within the run"),
]

# Every column of `trials` from here to MACHINE that is numeric is a figure: measured, or null with a reason.
FIGURES = [
    Column("env_steps", _I, "steps", "environment steps seen by the env tap, whole trial"),
    Column("updates", _I, "updates", "steps of the policy's optimizer, whole trial"),
    Column("episodes", _I, "episodes", "finished training episodes"),
    Column("wall_s", _F, "s", "from the start of the guest to its end, evaluation included"),
    Column("import_s", _F, "s", "start of the guest to the call of the adapter's train: imports"),
    Column("first_step_s", _F, "s", "call of train to the first environment step"),
    Column("first_update_s", _F, "s", "call of train to the first optimizer step"),
    Column("steady_s", _F, "s", "length of the steady-state window that the rates below are taken over"),
    Column("env_steps_per_s", _F, "steps/s", "environment steps per wall second, steady state"),
    Column("updates_per_s", _F, "updates/s", "policy optimizer steps per wall second, steady state"),
    Column(
        "samples_learned_per_s",
        _F,
        "samples/s",
        "consumed samples (with reuse) per wall second, steady state",
    ),
    Column("tokens_per_s", _F, "tokens/s", "generated tokens per wall second (token scenarios only)"),
    Column(
        "ceiling_steps_per_s",
        _F,
        "steps/s",
        "the same environment, same interpreter, random actions, no library",
    ),
    Column("share_of_ceiling", _F, "share", "env_steps_per_s / ceiling_steps_per_s"),
    Column("probe_us_per_step", _F, "us", "cost of the env tap per step, measured against the bare environment"),
    Column("action_latency_ms_p50", _F, "ms", "observation handed over to action received, no update in between"),
    Column("action_latency_ms_p95", _F, "ms", "as above, 95th percentile"),
    Column("action_latency_ms_p99", _F, "ms", "as above, 99th percentile"),
    Column("action_latency_ms_max", _F, "ms", "as above, maximum"),
    Column(
        "stall_share",
        _F,
        "share",
        "share of an environment's time spent waiting in gaps that contain updates",
    ),
    Column("update_latency_ms_p50", _F, "ms", "from a batch's forward pass to the end of its optimizer step"),
    Column("update_latency_ms_p99", _F, "ms", "as above, 99th percentile"),
    Column("sample_age_ms_p50", _F, "ms", "from the observation handed over to the first time it is learned from"),
    Column("sample_age_ms_p95", _F, "ms", "as above, 95th percentile"),
    Column("sample_age_ms_max", _F, "ms", "as above, maximum"),
    Column(
        "sync_latency_ms_p50",
        _F,
        "ms",
        "from a version's creation to the first action by that version or later",
    ),
    Column("sync_latency_ms_p99", _F, "ms", "as above, 99th percentile"),
    Column("lag_mean", _F, "updates", "policy versions between acting and learning, mean over consumed samples"),
    Column("lag_p50", _F, "updates", "as above, median"),
    Column("lag_p95", _F, "updates", "as above, 95th percentile"),
    Column("lag_p99", _F, "updates", "as above, 99th percentile"),
    Column("lag_min", _F, "updates", "as above, minimum"),
    Column("lag_max", _F, "updates", "as above, maximum"),
    Column("sync_lag_mean", _F, "updates", "part of the lag: newer weights existed but had not reached the actor"),
    Column("queue_lag_mean", _F, "updates", "part of the lag: updates made while the sample waited"),
    Column("first_use_lag_mean", _F, "updates", "lag at a sample's first consumption, mean"),
    Column("first_use_lag_max", _F, "updates", "lag at a sample's first consumption, maximum"),
    Column("lag_over_threshold", _F, "share", "consumptions whose lag exceeds the scenario's staleness threshold"),
    Column("reuse_mean", _F, "times", "how often a consumed sample is consumed, mean"),
    Column("reuse_max", _F, "times", "how often a consumed sample is consumed, maximum"),
    Column(
        "never_learned",
        _F,
        "share",
        "acted samples that are never consumed (those in flight at the end left out)",
    ),
    Column("stamps_decoded", _F, "share", "rows fed to the policy network whose stamp decodes to a real sample"),
    Column("acting_version_known", _F, "share", "consumed samples whose acting weights were identified"),
    Column(
        "provenance_genuine",
        _F,
        "share",
        "consumed rows that the environment produced and that were acted on",
    ),
    Column("provenance_never_acted", _F, "share", "consumed rows produced by the environment but never acted on"),
    Column("provenance_foreign", _F, "share", "consumed rows that no environment produced"),
    Column("return_last", _F, "return", "mean return of the last training episodes (scenario's window)"),
    Column("return_greedy", _F, "return", "mean return of 20 greedy episodes run by the harness after training"),
    Column("steps_to_threshold", _F, "steps", "env steps until the windowed mean return reached the threshold"),
    Column("seconds_to_threshold", _F, "s", "seconds after the first env step until the same moment"),
    Column("time_env", _F, "share", "wall time inside the environment, per env-stepping process"),
    Column("time_act", _F, "share", "wall time waiting for actions without an update"),
    Column("time_learn", _F, "share", "wall time of gaps that contain updates, up to the last of them"),
    Column("time_other", _F, "share", "the rest: between environments of one vector, resets"),
    Column("overlap", _F, "share", "wall time in which acting or stepping and learning go on at once"),
    Column(
        "actor_idle", _F, "share", "wall time in which an environment-stepping process neither steps, acts nor learns"
    ),
    Column("learner_idle", _F, "share", "wall time in which the learner does not learn"),
    Column("straggler_ratio", _F, "share", "steps of the slowest environment-stepping process / of the median one"),
    Column("silent_workers", _I, "", "environment-stepping processes without a step in the last quarter"),
    Column("adapter_share", _F, "share", "sampled processor time of the main thread in adapter code"),
    Column("probe_share", _F, "share", "the same in the code of the probe"),
    Column("peak_memory_mb", _F, "MB", "peak proportional set size of the whole process tree"),
    Column("cpu_s_per_1k_steps", _F, "s", "CPU seconds of the whole process tree per 1000 env steps, whole trial"),
    Column("processes", _I, "", "most processes alive at once"),
    Column("threads", _I, "", "most threads alive at once"),
    Column("gpu_memory_mb", _F, "MB", "peak GPU memory of the process tree"),
    Column("gpu_utilisation", _F, "share", "mean GPU utilisation"),
]

TRIALS = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("library_version", _S, "", "version of the library's distribution"),
    Column("scenario", _S, "", "scenario name"),
    Column("algorithm", _S, "", "algorithm that ran"),
    Column("env_id", _S, "", "environment id"),
    Column("mode", _S, "", "topology: sync, workers or async"),
    Column("n_envs", _I, "", "environments"),
    Column("workers", _I, "", "environment-stepping worker processes (0: in-process)"),
    Column("device", _S, "", "cpu or cuda"),
    Column("cpu_threads", _I, "", "threads per process allowed by the scenario"),
    Column("seed", _I, "", "seed"),
    Column("order", _I, "", "position in the run's interleaved plan"),
    Column("status", _S, "", "ok, failed, timeout, stalled, killed, memory, skipped or unavailable"),
    Column("reason", _S, "", "why the status is not ok (null when it is)"),
    Column("output_tail", _S, "", "last lines of the guest's output when the status is not ok"),
    Column(
        "learned",
        _B,
        "",
        "return reached the scenario's threshold; null when it has none or was not measured",
    ),
    Column("audit_ok", _B, "", "every audited setting was as asked or declared not settable"),
    Column("drifted", _B, "", "calibration was more than 10 % off the run's median"),
    *FIGURES,
    Column("null_reasons", _S, "json", "for each null figure, why it was not measured"),
    Column("settings", _S, "json", "the scenario as run"),
    Column("warnings", _S, "json", "list of sentences"),
    Column("build_s", _F, "s", "time to build the environment (null: it was cached)"),
    Column("environment_mb", _F, "MB", "apparent size of the library's environment"),
    Column("calibration_ms", _F, "ms", "fixed workload timed just before the trial"),
    Column("started_at", _S, "ISO 8601", "start, UTC"),
    Column("machine", _S, "json", "processor, cores, memory, GPU, operating system"),
    Column("packages", _S, "json", "versions installed in the library's environment"),
    Column("python", _S, "", "guest interpreter version"),
    Column("rlbench_version", _S, "", "version of the harness"),
    Column("git_commit", _S, "", "commit of the harness when run from a checkout"),
]

EPISODES = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("phase", _S, "", "train or greedy"),
    Column("env", _I, "", "environment index"),
    Column("end_step", _I, "steps", "env steps over all environments when the episode ended (greedy: null)"),
    Column("end_s", _F, "s", "seconds after the first env step when the episode ended (greedy: null)"),
    Column("length", _I, "steps", "length"),
    Column("return", _F, "return", "undiscounted sum of rewards"),
    Column("truncated", _B, "", "ended by a time limit"),
]

WINDOWS = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("second", _I, "s", "window number; 0 starts at the first env step"),
    Column("duration_s", _F, "s", "length of the window (the last one is shorter)"),
    Column("env_steps", _I, "steps", "env steps in the window"),
    Column("updates", _I, "updates", "policy optimizer steps in the window"),
    Column("samples_learned", _I, "samples", "consumed samples in the window"),
    Column("lag_mean", _F, "updates", "mean lag of the samples consumed in the window"),
    Column("lag_max", _F, "updates", "maximum lag of the samples consumed in the window"),
    Column("memory_mb", _F, "MB", "proportional set size of the process tree at the end of the window"),
    Column("cpu_share", _F, "cores", "CPU seconds per wall second of the process tree"),
]

LAGS = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("kind", _S, "", "lag, sync_lag, queue_lag, first_use_lag or reuse"),
    Column("value", _I, "updates", "lag in policy versions (reuse: times)"),
    Column("count", _I, "", "consumed samples with that value (reuse: samples)"),
]

LATENCIES = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("kind", _S, "", "action, update, age or sync"),
    Column("value_us", _I, "us", "latency, whole microseconds"),
    Column("count", _I, "", "events with that latency"),
]

UPDATES = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("version", _I, "updates", "policy version that this optimizer step made"),
    Column("time_s", _F, "s", "seconds after the first env step"),
    Column("learning_rate", _F, "", "learning rate in the optimizer"),
    Column("batch_rows", _I, "samples", "rows consumed by this step (null: none seen)"),
    Column("latency_ms", _F, "ms", "from the batch's forward pass to the end of the step"),
    Column("lag_mean", _F, "updates", "mean lag of the batch"),
    Column("lag_max", _F, "updates", "maximum lag of the batch"),
]

TIMELINE = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("process", _I, "", "process, numbered from 0"),
    Column("kind", _S, "", "env, act or learn"),
    Column("start_s", _F, "s", "seconds after the steady state began; its first 3 s are kept"),
    Column("end_s", _F, "s", "end of the span"),
]

AUDIT = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column("setting", _S, "", "what was asked for"),
    Column("asked", _S, "", "value in the scenario"),
    Column("seen", _S, "", "value that the taps saw (null: not seen)"),
    Column("verdict", _S, "", "ok, differs, not settable or not seen"),
    Column("note", _S, "", "reason for any verdict but ok"),
]

REPORTED = [
    *IDENTITY,
    Column("library", _S, "", "adapter name"),
    Column("seed", _I, "", "seed"),
    Column(
        "name", _S, "", "what the library's own log reports: env_steps, env_steps_per_s, updates, lag_mean, lag_max"
    ),
    Column("reported", _F, "", "the library's own number, over the whole trial or its last report"),
    Column("measured", _F, "", "ours (null: not measured)"),
    Column("ratio", _F, "", "reported / measured"),
    Column("agrees", _B, "", "within 5 % (counts: 0.1 %)"),
    Column("note", _S, "", "what the library's number covers, as far as known"),
]

TABLES: dict[str, list[Column]] = {
    "trials": TRIALS,
    "episodes": EPISODES,
    "windows": WINDOWS,
    "lags": LAGS,
    "latencies": LATENCIES,
    "updates": UPDATES,
    "timeline": TIMELINE,
    "audit": AUDIT,
    "reported": REPORTED,
}


def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of ``table`` with unit and meaning as field metadata."""
    fields = [pa.field(c.name, c.type, metadata={"unit": c.unit, "meaning": c.meaning}) for c in TABLES[table]]
    return pa.schema(fields, metadata={"rlbench_schema": SCHEMA_VERSION, "rlbench_table": table})
