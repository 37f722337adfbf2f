"""What holds a trial back, in sentences, each with the figure that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from rlbench.catalog.scenario import PPO, Scenario


class Evidence(NamedTuple):
    """A stored trial: its row of ``trials`` and its other tables."""

    row: dict[str, Any]
    tables: dict[str, pd.DataFrame]

    def figure(self, name: str) -> float | None:
        """The figure, or None where it was not measured."""
        value = self.row.get(name)
        return None if value is None or pd.isna(value) else float(value)


class Finding(NamedTuple):
    """One diagnosis: its name, what is wrong with the figure as evidence, and what usually helps."""

    name: str
    sentence: str
    remedy: str


def did_not_run(trial: Evidence) -> str | None:
    """The trial did not end well."""
    row = trial.row
    return None if row["status"] == "ok" else f"the trial is '{row['status']}': {row['reason']}"


def silent_workers(trial: Evidence) -> str | None:
    """Processes that stopped stepping while others went on."""
    silent = trial.figure("silent_workers")
    if not silent:
        return None
    return f"{silent:.0f} environment-stepping process(es) made no step in the last quarter of the steady state"


def stragglers(trial: Evidence) -> str | None:
    """One worker is far slower than the others."""
    ratio = trial.figure("straggler_ratio")
    if ratio is None or ratio >= 0.5 or trial.figure("silent_workers"):
        return None
    return f"the slowest environment-stepping process made {100 * ratio:.0f} % of the steps of the median one"


def learner_bound(trial: Evidence) -> str | None:
    """Environments stand still for learning, or asynchronous actors produce more than the learner takes."""
    stall, idle = trial.figure("stall_share"), trial.figure("learner_idle")
    if trial.row["mode"] == "async":
        lost = trial.figure("never_learned")
        if idle is not None and idle < 0.1 and lost is not None and lost > 0.05:
            return f"the learner is idle {100 * idle:.0f} % of the time and still {100 * lost:.0f} % is never learned"
        return None
    if stall is None or stall <= 0.5:
        return None
    return f"environments stand still {100 * stall:.0f} % of the time while the learner learns"


def env_bound(trial: Evidence) -> str | None:
    """Most of the time goes into the environment itself."""
    share = trial.figure("time_env")
    if share is None or share <= 0.5:
        return None
    return f"{100 * share:.0f} % of the time of a stepping process is the environment's own"


def act_bound(trial: Evidence) -> str | None:
    """Most of the time environments wait for actions although nobody learns."""
    share, wait = trial.figure("time_act"), trial.figure("action_latency_ms_p50")
    if share is None or wait is None or share <= 0.5:
        return None
    return f"{100 * share:.0f} % of the time environments wait for actions (median {wait:.3g} ms)"


def stale_weights(trial: Evidence) -> str | None:
    """Lag over the threshold beyond what epochs and minibatches make by themselves."""
    over, most = trial.figure("lag_over_threshold"), trial.figure("lag_max")
    scenario = Scenario.model_validate(json.loads(trial.row["settings"]))
    if over is None or most is None or over <= 0.05:
        return None
    algorithm, topology = scenario.algorithm, scenario.topology
    # A replay buffer is old by intention; only on-policy algorithms are meant to be fresh.
    if not hasattr(algorithm, "n_steps"):
        return None
    by_design = 0
    if isinstance(algorithm, PPO):
        by_design = algorithm.n_epochs * algorithm.n_steps * topology.n_envs // algorithm.batch_size - 1
    if most <= by_design or never_synced(trial):
        return None
    return (
        f"{100 * over:.0f} % of the consumed samples are more than {scenario.staleness.threshold} versions old, "
        f"at most {most:.0f}; epochs and minibatches alone make {by_design}"
    )


def never_synced(trial: Evidence) -> str | None:
    """Actors act with the first weights to the end."""
    lags = trial.tables["lags"]
    waits = lags[lags["kind"] == "sync_lag"]["value"]
    updates = trial.figure("updates") or 0
    if not len(waits) or updates < 10 or waits.max() < 0.9 * updates:
        return None
    return f"after {updates:.0f} updates actors still act with weights {waits.max():.0f} versions old"


def overflow(trial: Evidence) -> str | None:
    """Samples are acted on and thrown away."""
    lost = trial.figure("never_learned")
    if lost is None or lost <= 0.05:
        return None
    return f"{100 * lost:.0f} % of the samples that were acted on are never learned from"


def foreign_samples(trial: Evidence) -> str | None:
    """The learner consumes what the environment did not produce or nobody acted on."""
    genuine = trial.figure("provenance_genuine")
    if genuine is None or genuine >= 0.95:
        return None
    never, foreign = trial.figure("provenance_never_acted") or 0, trial.figure("provenance_foreign") or 0
    return (
        f"only {100 * genuine:.1f} % of the consumed samples are genuine: {100 * never:.1f} % were never acted on, "
        f"{100 * foreign:.1f} % no environment produced"
    )


def adapter_overhead(trial: Evidence) -> str | None:
    """The adapter itself takes time that would be booked on the library."""
    share = trial.figure("adapter_share")
    return None if share is None or share <= 0.05 else f"{100 * share:.0f} % of the time is in the adapter's own code"


def oversubscribed(trial: Evidence) -> str | None:
    """More compute threads than cores."""
    audit = trial.tables["audit"]
    seen = audit[audit["setting"] == "threads"]["seen"].dropna()
    cores = json.loads(trial.row["machine"]).get("cores")
    processes = trial.figure("processes")
    if not len(seen) or not cores or processes is None or float(seen.iloc[0]) <= 1:
        return None
    threads = float(seen.iloc[0]) * processes
    if threads <= cores:
        return None
    return f"{processes:.0f} processes with {float(seen.iloc[0]):.0f} compute threads each share {cores} cores"


def memory_growth(trial: Evidence) -> str | None:
    """Memory that goes on growing in the second half of training."""
    memory = trial.tables["windows"]["memory_mb"].dropna()
    if len(memory) < 12:
        return None
    third = len(memory) // 3
    middle, end = float(memory.iloc[third : 2 * third].mean()), float(memory.iloc[-third:].mean())
    if end < 1.1 * middle or end - middle < 50:
        return None
    return f"memory grew from {middle:.0f} MB in the middle third to {end:.0f} MB in the last third"


def no_learning(trial: Evidence) -> str | None:
    """Fast or slow, it did not reach the threshold."""
    if trial.row["learned"] is not False and trial.row["learned"] != 0:
        return None
    last, greedy = trial.figure("return_last"), trial.figure("return_greedy")
    told = [f"{value:.1f} {where}" for value, where in ((last, "in training"), (greedy, "greedy")) if value is not None]
    return f"the return is {' and '.join(told)}"


Rule = tuple[str, Callable[[Evidence], str | None], str]

RULES: list[Rule] = [
    ("did not run", did_not_run, "see the last lines of its output in the report"),
    ("silent workers", silent_workers, "look into the workers' output; the library did not notice that they stopped"),
    ("stragglers", stragglers, "fewer workers than cores, or environments of more even cost"),
    ("learner-bound", learner_bound, "larger minibatches, fewer epochs, a faster device for learning, or asynchrony"),
    ("env-bound", env_bound, "more environment processes; the choice of library matters little here"),
    ("act-bound", act_bound, "more environments per batch of actions, so that the library's cost per call is shared"),
    ("stale weights", stale_weights, "a shorter queue, fewer epochs, more frequent weight synchronisation"),
    ("weights never synced", never_synced, "check that weights reach the actors at all"),
    ("buffer overflow", overflow, "a slower collection, a larger buffer, or a faster learner"),
    ("foreign samples", foreign_samples, "look for a buffer that is overwritten, or for observations that are changed"),
    ("adapter overhead", adapter_overhead, "mend the adapter before the library is judged"),
    ("thread oversubscription", oversubscribed, "set topology.threads to cores / processes"),
    ("memory growth", memory_growth, "look for a buffer without a bound"),
    ("does not learn", no_learning, "check the settings that the audit shows as different"),
]


def diagnose(trial: Evidence) -> list[Finding]:
    """Return what is wrong with a trial, by the rules in order; a trial that did not run has only that finding."""
    failed = did_not_run(trial)
    if failed:
        return [Finding(RULES[0][0], failed, RULES[0][2])]
    return [Finding(name, found, remedy) for name, rule, remedy in RULES if (found := rule(trial))]
