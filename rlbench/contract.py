"""The contract that every adapter keeps, checked on a finished trial by ``rlbench adapter check`` and by the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlbench.catalog.library import Library
from rlbench.catalog.scenario import A2C, PPO, Scenario
from rlbench.store.schema import FIGURES

# What a random policy returns; three times that cannot be had by luck over 20 episodes.
RANDOM_RETURN = {"CartPole-v1": 22.0, "rlbench.probe.tokens:Tokens-v0": 0.03}
NO_LEARNING = "does not learn"


class Trial(NamedTuple):
    """A finished trial: its library and scenario, its row of ``trials`` and its other tables."""

    library: Library
    scenario: Scenario
    row: dict[str, Any]
    tables: dict[str, pd.DataFrame]


class Check(NamedTuple):
    """One clause: what must hold, the test (None: holds, else what is wrong), and what to do when it does not."""

    name: str
    holds: Callable[[Trial], str | None]
    advice: str


def ends_well(trial: Trial) -> str | None:
    """The guest trained, evaluated and ended by itself."""
    row = trial.row
    return None if row["status"] == "ok" else f"status {row['status']}: {row['reason']}\n{row['output_tail'] or ''}"


def stops_at_budget(trial: Trial) -> str | None:
    """Environment steps are within one rollout of the budget."""
    budget, steps = trial.scenario.budget.env_steps, trial.row["env_steps"]
    rollout = getattr(trial.scenario.algorithm, "n_steps", 1) * trial.scenario.topology.n_envs
    slack = max(rollout, 1024)
    return None if abs(steps - budget) <= slack else f"{steps:.0f} env steps, budget {budget}, allowed off by {slack}"


def figures_or_reasons(trial: Trial) -> str | None:
    """Every figure is present or null with a reason, and the basic ones are present."""
    reasons = json.loads(trial.row["null_reasons"])
    wrong = [c.name for c in FIGURES if bool(pd.isna(trial.row[c.name])) != (c.name in reasons)]
    if wrong:
        return f"null without a reason, or a reason without null: {', '.join(wrong)}"
    basic = ("env_steps_per_s", "ceiling_steps_per_s", "action_latency_ms_p50", "peak_memory_mb", "time_env")
    missing = [f"{name} ({reasons[name]})" for name in basic if name in reasons]
    return f"missing: {', '.join(missing)}" if missing else None


def stamps_survive(trial: Trial) -> str | None:
    """What the learner consumes is what the environment produced, and the weights that acted are known."""
    row, reasons = trial.row, json.loads(trial.row["null_reasons"])
    if pd.isna(row["stamps_decoded"]):
        return f"no stamp was seen: {reasons['stamps_decoded']}"
    if row["stamps_decoded"] < 0.999:
        return f"{100 * row['stamps_decoded']:.2f} % of the rows fed to the policy decode, 99.9 % must"
    # Off-policy learners also consume samples of random actions, on which no weights acted.
    on_policy = isinstance(trial.scenario.algorithm, PPO | A2C)
    if on_policy and (pd.isna(row["acting_version_known"]) or row["acting_version_known"] < 0.9):
        return f"the acting weights are known of {row['acting_version_known']} of the consumed samples, 0.9 must be"
    return None


def parts_add_up(trial: Trial) -> str | None:
    """Shares sum to one, lag to its parts, tables to the row."""
    row = trial.row
    lags = trial.tables["lags"]
    lag = lags[lags["kind"] == "lag"]
    sums = {
        "time shares": (sum(row[f"time_{part}"] for part in ("env", "act", "learn", "other")), 1.0),
        "env steps of the windows": (trial.tables["windows"]["env_steps"].sum(), row["env_steps"]),
        "rows of updates": (len(trial.tables["updates"]), row["updates"]),
    }
    if not pd.isna(row["lag_mean"]):
        sums["sync lag + queue lag"] = (row["sync_lag_mean"] + row["queue_lag_mean"], row["lag_mean"])
        sums["mean of the lag histogram"] = (np.average(lag["value"], weights=lag["count"]), row["lag_mean"])
    wrong = [f"{what}: {a} is not {b}" for what, (a, b) in sums.items() if abs(a - b) > 1e-6 * max(1, abs(b))]
    return "; ".join(wrong) or None


def settings_as_asked(trial: Trial) -> str | None:
    """Every audited setting is as asked, or declared not settable."""
    audit = trial.tables["audit"]
    wrong = audit[audit["verdict"] == "differs"]
    return "; ".join(f"{r.setting}: asked {r.asked}, seen {r.seen}" for r in wrong.itertuples()) or None


def synchronous_law(trial: Trial) -> str | None:
    """Synchronous PPO whose schedule is as asked: lag 0 .. epochs x minibatches - 1, reuse equal to the epochs."""
    algorithm, topology = trial.scenario.algorithm, trial.scenario.topology
    audit = trial.tables["audit"].set_index("setting")["verdict"]
    schedule = ["rollout_length", "batch_size", "gradient_steps_per_rollout", "n_epochs"]
    if not isinstance(algorithm, PPO) or topology.mode == "async" or not (audit.reindex(schedule) == "ok").all():
        return None
    last = algorithm.n_epochs * algorithm.n_steps * topology.n_envs // algorithm.batch_size - 1
    row = trial.row
    if (row["lag_min"], row["lag_max"]) != (0, last):
        return f"lag runs {row['lag_min']:.0f} .. {row['lag_max']:.0f}, by its schedule it must run 0 .. {last}"
    if abs(row["reuse_mean"] - algorithm.n_epochs) > 0.01 * algorithm.n_epochs:
        return f"samples are consumed {row['reuse_mean']:.3f} times, by its schedule {algorithm.n_epochs} times"
    return None


def learns(trial: Trial) -> str | None:
    """It is clearly better than a random policy, where that one's return is known.

    A known issue may say, with evidence, that it does not learn.
    """
    if any(NO_LEARNING in issue.title for issue in trial.library.known_issues) and trial.library.variant is None:
        return None
    luck = RANDOM_RETURN.get(trial.scenario.environment.id)
    if luck is None:
        return None
    best = np.nanmax([trial.row["return_greedy"], trial.row["return_last"]])
    return None if best > 3 * luck else f"return {best:.2f}, a random policy has about {luck}"


CHECKS = [
    Check(
        "ends well", ends_well, "see the last lines of its output above; `rlbench run --keep-ledgers` keeps all of it"
    ),
    Check(
        "stops at the budget",
        stops_at_budget,
        "give the library trial.env_steps, or ask probe.should_stop() per rollout",
    ),
    Check("figures or reasons", figures_or_reasons, "make every environment with trial.make_env(index)"),
    Check(
        "stamps survive",
        stamps_survive,
        "switch off observation normalisation; where the back end is not torch, call probe.acted, learned and updated "
        "(weights: a numeric array of one fixed parameter, never a module)",
    ),
    Check("parts add up", parts_add_up, "this is a fault of rlbench: please report it"),
    Check(
        "settings as asked",
        settings_as_asked,
        "pass the setting on, or declare it in [not_settable] of adapter.toml with the reason",
    ),
    Check("synchronous law", synchronous_law, "look for a batch that is fed twice, or a tap in the wrong place"),
    Check(
        "learns",
        learns,
        "check the settings, or give it more with --steps; a defect of the library belongs into [[known_issues]]",
    ),
]


def breaches(trial: Trial) -> list[tuple[Check, str]]:
    """Return the clauses that do not hold, each with what is wrong; a trial that failed breaks only the first."""
    wrong = ends_well(trial)
    if wrong:
        return [(CHECKS[0], wrong)]
    return [(check, found) for check in CHECKS if (found := check.holds(trial))]
