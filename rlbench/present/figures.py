"""The figures that are shown: label, number format, which direction is better, and how to read each.

One list serves table, comparison, charts and report. Name and unit are the schema's; a test holds the two together.
"""

# One figure is one line of the list below, however long its sentence.
# ruff: noqa: E501

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from rlbench.errors import UserError, nearest
from rlbench.store import schema

Better = Literal["higher", "lower", "neither"]
Style = Literal["number", "share", "count"]

MISSING = "–"
THIN = "\u202f"  # narrow no-break space between thousands: the numbers must not break apart in HTML


class Figure(NamedTuple):
    """A figure: schema column, section it is shown in, short label, format, better direction, how to read it."""

    name: str
    section: str
    label: str
    style: Style
    better: Better
    reading: str

    @property
    def unit(self) -> str:
        """Unit as shown: the schema's, with shares in per cent."""
        return "%" if self.style == "share" else UNITS[self.name]


UNITS = {column.name: column.unit for column in schema.FIGURES}

SPEED, LATENCY, FRESHNESS = "Speed", "Latency", "Freshness"
LEARNING, RESOURCES, START, INSTRUMENT = "Learning", "Resources", "Start-up", "Instrument"

# fmt: off
FIGURES: list[Figure] = [
    Figure("env_steps_per_s", SPEED, "steps/s", "number", "higher", "Environment steps per second once training runs; start-up is not in it."),
    Figure("share_of_ceiling", SPEED, "of ceiling", "share", "higher", "Steps/s as a share of what the bare environment reaches in one process with random actions; in one process the rest is the library's cost, several can pass 100 %."),
    Figure("ceiling_steps_per_s", SPEED, "ceiling", "number", "neither", "What the environment alone reaches in the library's interpreter; no library can exceed it per process."),
    Figure("updates_per_s", SPEED, "updates/s", "number", "neither", "Optimizer steps per second; comparable only at equal batch size and epochs."),
    Figure("samples_learned_per_s", SPEED, "samples/s", "number", "higher", "Rows that went through the loss per second, each reuse counted."),
    Figure("tokens_per_s", SPEED, "tokens/s", "number", "higher", "Generated tokens per second; token scenarios only."),
    Figure("action_latency_ms_p50", LATENCY, "action p50", "number", "lower", "Half of the actions arrive within this time after the observation was handed over."),
    Figure("action_latency_ms_p95", LATENCY, "action p95", "number", "lower", "One action in 20 takes longer than this."),
    Figure("action_latency_ms_p99", LATENCY, "action p99", "number", "lower", "One action in 100 takes longer than this; far above p50 means hiccups."),
    Figure("action_latency_ms_max", LATENCY, "action max", "number", "lower", "The slowest single action without an update in between."),
    Figure("stall_share", LATENCY, "stalled", "share", "lower", "Share of an environment's time in which it stands still while the learner learns."),
    Figure("update_latency_ms_p50", LATENCY, "update p50", "number", "lower", "One optimizer step from its batch's forward pass to its end, median."),
    Figure("update_latency_ms_p99", LATENCY, "update p99", "number", "lower", "One optimizer step in 100 takes longer than this."),
    Figure("sample_age_ms_p50", FRESHNESS, "sample age p50", "number", "lower", "Time from seeing an observation to first learning from it, median; long rollouts raise it."),
    Figure("sample_age_ms_p95", FRESHNESS, "sample age p95", "number", "lower", "One sample in 20 waits longer than this before it is first learned from."),
    Figure("sample_age_ms_max", FRESHNESS, "sample age max", "number", "lower", "The longest wait of any sample."),
    Figure("sync_latency_ms_p50", FRESHNESS, "sync p50", "number", "lower", "Time from making new weights to the first action that uses them, median."),
    Figure("sync_latency_ms_p99", FRESHNESS, "sync p99", "number", "lower", "One weight update in 100 takes longer than this to reach the actors."),
    Figure("lag_mean", FRESHNESS, "lag mean", "number", "lower", "Optimizer steps between the weights that acted and those that learn from it; epochs and minibatches alone make it more than 0."),
    Figure("lag_p50", FRESHNESS, "lag p50", "number", "lower", "Half of the consumed samples lag no more than this."),
    Figure("lag_p95", FRESHNESS, "lag p95", "number", "lower", "One consumed sample in 20 lags more than this."),
    Figure("lag_p99", FRESHNESS, "lag p99", "number", "lower", "One consumed sample in 100 lags more than this."),
    Figure("lag_min", FRESHNESS, "lag min", "number", "lower", "The freshest consumed sample."),
    Figure("lag_max", FRESHNESS, "lag max", "number", "lower", "The stalest consumed sample."),
    Figure("sync_lag_mean", FRESHNESS, "sync lag", "number", "lower", "Part of the lag that comes from new weights not having reached the actor."),
    Figure("queue_lag_mean", FRESHNESS, "queue lag", "number", "lower", "Part of the lag that comes from the sample waiting while updates go on."),
    Figure("first_use_lag_mean", FRESHNESS, "first-use lag", "number", "lower", "Lag when a sample is first used; what exceeds (minibatches - 1) / 2 in PPO is asynchrony."),
    Figure("first_use_lag_max", FRESHNESS, "first-use lag max", "number", "lower", "Largest lag at a first use; what exceeds minibatches - 1 in PPO is asynchrony."),
    Figure("lag_over_threshold", FRESHNESS, "stale", "share", "lower", "Share of consumptions whose lag exceeds the scenario's staleness threshold."),
    Figure("reuse_mean", FRESHNESS, "reuse mean", "number", "neither", "How often a consumed sample is learned from; on-policy algorithms should show exactly their epochs."),
    Figure("reuse_max", FRESHNESS, "reuse max", "number", "neither", "Most times that one sample was learned from."),
    Figure("never_learned", FRESHNESS, "never learned", "share", "lower", "Share of acted samples that the library paid for and then dropped."),
    Figure("provenance_genuine", FRESHNESS, "genuine", "share", "higher", "Share of consumed rows that an environment produced and that were acted on; below 100 % the library learns from something else too."),
    Figure("provenance_never_acted", FRESHNESS, "never acted", "share", "lower", "Share of consumed rows without an action of their own, such as terminal observations."),
    Figure("provenance_foreign", FRESHNESS, "foreign", "share", "lower", "Share of consumed rows that no environment produced: corrupted or overwritten."),
    Figure("return_last", LEARNING, "return last", "number", "higher", "Mean return of the last training episodes, exploration included."),
    Figure("return_greedy", LEARNING, "return greedy", "number", "higher", "Mean return of 20 episodes that the harness runs with the trained policy, without exploration."),
    Figure("steps_to_threshold", LEARNING, "steps to threshold", "number", "lower", "Environment steps until the running mean return reached the scenario's threshold."),
    Figure("seconds_to_threshold", LEARNING, "time to threshold", "number", "lower", "Seconds from the first step until the same moment: speed and learning in one figure."),
    Figure("time_env", RESOURCES, "time in env", "share", "neither", "Share of wall time inside the environment."),
    Figure("time_act", RESOURCES, "time acting", "share", "lower", "Share of wall time waiting for actions."),
    Figure("time_learn", RESOURCES, "time learning", "share", "lower", "Share of wall time waiting for updates."),
    Figure("time_other", RESOURCES, "other time", "share", "lower", "The rest: resets, and waiting for the other environments of a vector."),
    Figure("peak_memory_mb", RESOURCES, "peak memory", "number", "lower", "Peak memory of all processes together, shared pages counted once."),
    Figure("cpu_s_per_1k_steps", RESOURCES, "CPU per 1k steps", "number", "lower", "CPU seconds of all processes per 1000 environment steps: what a step costs, however many cores did it."),
    Figure("processes", RESOURCES, "processes", "count", "neither", "Most processes alive at once."),
    Figure("threads", RESOURCES, "threads", "count", "neither", "Most threads alive at once."),
    Figure("gpu_memory_mb", RESOURCES, "GPU memory", "number", "lower", "Peak GPU memory of the process tree."),
    Figure("gpu_utilisation", RESOURCES, "GPU use", "share", "neither", "Mean GPU utilisation."),
    Figure("import_s", START, "import", "number", "lower", "Seconds until the library's modules are imported."),
    Figure("first_step_s", START, "first step", "number", "lower", "Seconds from the start of training to the first environment step."),
    Figure("first_update_s", START, "first update", "number", "lower", "Seconds from the start of training to the first optimizer step; compilation shows here."),
    Figure("wall_s", START, "wall time", "number", "lower", "The whole trial, from starting the interpreter to the end of the evaluation."),
    Figure("env_steps", INSTRUMENT, "env steps", "count", "neither", "Environment steps of the whole trial, as the environment counted them."),
    Figure("updates", INSTRUMENT, "updates", "count", "neither", "Optimizer steps of the whole trial."),
    Figure("episodes", INSTRUMENT, "episodes", "count", "neither", "Finished training episodes."),
    Figure("steady_s", INSTRUMENT, "steady state", "number", "neither", "Length of the window that all rates are taken over; a few seconds give coarse rates."),
    Figure("stamps_decoded", INSTRUMENT, "stamps decoded", "share", "higher", "Share of rows whose sample id could be read back; below 99.9 % staleness is not reported."),
    Figure("acting_version_known", INSTRUMENT, "version known", "share", "higher", "Share of consumed samples whose acting weights were identified."),
    Figure("overlap", SPEED, "overlap", "share", "neither", "Wall time in which acting or stepping and learning go on at once; 0 in a synchronous library, the gain of an asynchronous one."),
    Figure("actor_idle", SPEED, "actors idle", "share", "lower", "Wall time in which a process that steps environments neither steps, acts nor learns: it waits, or does the library's bookkeeping."),
    Figure("learner_idle", SPEED, "learner idle", "share", "neither", "Wall time in which the learner does not learn: it collects, or waits for samples."),
    Figure("straggler_ratio", SPEED, "slowest worker", "share", "higher", "Steps of the slowest environment-stepping process as a share of the median one's."),
    Figure("silent_workers", SPEED, "silent workers", "count", "lower", "Environment-stepping processes that made no step in the last quarter of the steady state."),
    Figure("adapter_share", INSTRUMENT, "adapter time", "share", "lower", "Sampled processor time in the adapter's own code; it should be close to 0."),
    Figure("probe_share", INSTRUMENT, "probe time", "share", "lower", "Sampled processor time in the instrument's own code."),
    Figure("probe_us_per_step", INSTRUMENT, "probe per step", "number", "lower", "What the instrument adds to each environment step."),
]
# fmt: on

BY_NAME = {figure.name: figure for figure in FIGURES}

# What a comparison shows unless figures are named: one or two of each kind.
COMPARED = [
    "env_steps_per_s", "action_latency_ms_p50", "action_latency_ms_p99", "update_latency_ms_p50",
    "sample_age_ms_p50", "lag_mean", "return_greedy", "seconds_to_threshold", "cpu_s_per_1k_steps", "peak_memory_mb",
]  # fmt: skip


def find_figures(names: list[str]) -> list[Figure]:
    """Return the figures called ``names``; a name without its suffix finds the whole family (``lag``: all lags).

    Raises UserError for a name that matches none.
    """
    found: list[Figure] = []
    for name in names:
        family = [each for each in FIGURES if each.name == name] or [
            each for each in FIGURES if each.name.startswith(f"{name}_")
        ]
        if not family:
            raise UserError(f"unknown figure '{name}'{nearest(name, BY_NAME)} (all figures: `rlbench schema`)")
        found += [each for each in family if each not in found]
    return found


def format_value(figure: Figure, value: float | None) -> str:
    """Return ``value`` as shown, without its unit: 3 significant digits, shares in %, "–" when not measured."""
    if value is None or not math.isfinite(value):
        return MISSING
    if figure.style == "share":
        percent = 100 * value
        # 99.96 % must not read as 100 %: that difference is what provenance and stamps are about.
        if 99.9 < percent < 100:
            return f"{math.floor(percent * 1000) / 1000:.3f}"
        return f"{percent:.0f}" if percent in (0, 100) else f"{percent:.3g}" if percent < 10 else f"{percent:.1f}"
    if figure.style == "count" or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", THIN)
    return f"{value:.3g}"


def with_unit(figure: Figure, value: float | None) -> str:
    """Return the formatted value followed by its unit; "–" alone when not measured."""
    shown = format_value(figure, value)
    return shown if shown == MISSING or not figure.unit else f"{shown}{THIN}{figure.unit}"
