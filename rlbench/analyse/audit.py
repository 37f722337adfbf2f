"""The fairness audit: what the scenario asks for against what the taps saw."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlbench.analyse.join import Joined
from rlbench.analyse.ledgers import Ledgers
from rlbench.catalog.scenario import A2C, DQN, PPO, SAC, Scenario

OK, DIFFERS, NOT_SETTABLE, NOT_SEEN = "ok", "differs", "not settable", "not seen"


class Seen(NamedTuple):
    """One audited setting: asked, seen (None: the taps cannot tell), whether they agree."""

    setting: str
    asked: str
    seen: str | None
    same: bool
    note: str = ""


def audit(
    scenario: Scenario,
    ledgers: Ledgers,
    joined: Joined,
    action_space: dict[str, Any],
    not_settable: dict[str, str],
) -> list[dict[str, str | None]]:
    """Return the audit's rows: setting, asked, seen, verdict, note.

    ``action_space``: ``{"observation_dim": elements}`` with ``{"n": actions}`` or ``{"dim": elements}``.
    ``not_settable``: what the library cannot be told,
    with the reason; a difference there is declared, not a fault.
    """
    rows = [
        *_topology(scenario, ledgers),
        *_schedule(scenario, ledgers, joined),
        *_optimizer(scenario, ledgers, joined, action_space),
    ]
    return [_row(seen, not_settable) for seen in rows]


def _row(seen: Seen, not_settable: dict[str, str]) -> dict[str, str | None]:
    verdict, note = OK, ""
    if seen.seen is None:
        verdict, note = NOT_SEEN, seen.note or "the taps did not see it"
    elif not seen.same and seen.setting in not_settable:
        verdict, note = NOT_SETTABLE, not_settable[seen.setting]
    elif not seen.same:
        verdict, note = DIFFERS, seen.note
    return {"setting": seen.setting, "asked": seen.asked, "seen": seen.seen, "verdict": verdict, "note": note}


def _number(value: float) -> str:
    return f"{value:.6g}"


def _compare(setting: str, asked: float, seen: float | None, tolerance: float = 0.0, note: str = "") -> Seen:
    if seen is None or math.isnan(seen):
        return Seen(setting, _number(asked), None, False, note)
    return Seen(setting, _number(asked), _number(seen), abs(seen - asked) <= tolerance * abs(asked), note)


def _topology(scenario: Scenario, ledgers: Ledgers) -> list[Seen]:
    samples, topology = ledgers.samples, scenario.topology
    steps = len(samples.step)
    budget = scenario.budget.env_steps
    algorithm = scenario.algorithm
    round_of = algorithm.n_steps * topology.n_envs if isinstance(algorithm, PPO | A2C) else topology.n_envs
    stepped = len(np.unique(samples.env[samples.step]))
    rows = [
        _compare("n_envs", topology.n_envs, stepped),
        Seen(
            "env_steps",
            str(budget),
            str(steps),
            abs(steps - budget) <= round_of,
            "within one rollout counts as ok",
        ),
    ]
    if topology.mode != "sync":
        stepping = {pid for env, pid in samples.pid.items() if samples.length[env] > 1}
        rows.append(_compare("workers", topology.workers, len(stepping), note="processes that step environments"))
    threads = [fact["compute_threads"] for fact in ledgers.facts if "compute_threads" in fact]
    rows.append(_compare("threads", topology.threads, max(threads) if threads else None))
    return rows


def _schedule(scenario: Scenario, ledgers: Ledgers, joined: Joined) -> list[Seen]:
    algorithm = scenario.algorithm
    n_envs = scenario.topology.n_envs
    in_turn = scenario.topology.mode != "async"
    length, per_round = rounds(ledgers, joined) if in_turn else (None, None)
    why = "" if in_turn else "actors and learner run at the same time: there are no rounds"
    filled = joined.batch_rows[joined.batch_rows > 0]
    batch = float(np.median(filled)) if len(filled) else None
    replay = None
    if len(joined.version_ns) and (length or not in_turn):
        consumed = float(joined.batch_rows.sum())
        replay = consumed / max(1, int((np.bincount(joined.consumed[joined.consumed >= 0]) > 0).sum()))
    if isinstance(algorithm, PPO):
        rollout = algorithm.n_steps * n_envs
        return [
            _compare("rollout_length", rollout, length, note=why),
            _compare("batch_size", algorithm.batch_size, batch),
            _compare(
                "gradient_steps_per_rollout", algorithm.n_epochs * rollout // algorithm.batch_size, per_round, note=why
            ),
            _compare("n_epochs", algorithm.n_epochs, replay, 0.01, "consumptions per consumed sample"),
        ]
    if isinstance(algorithm, A2C):
        rollout = algorithm.n_steps * n_envs
        return [
            _compare("rollout_length", rollout, length, note=why),
            _compare("batch_size", rollout, batch),
            _compare("gradient_steps_per_rollout", 1, per_round, note=why),
        ]
    assert isinstance(algorithm, DQN | SAC)
    return [
        _compare("batch_size", algorithm.batch_size, batch),
        _compare("train_freq", algorithm.train_freq, length, note=why),
        _compare("gradient_steps", algorithm.gradient_steps, per_round, note=why),
    ]


def rounds(ledgers: Ledgers, joined: Joined) -> tuple[float | None, float | None]:
    """Return the median environment steps between two rounds of updates and the median updates in a round.

    A round is a run of updates with no environment step in between. Both None when there were fewer than two.
    """
    samples = ledgers.samples
    times = np.sort(samples.action_ns[samples.step])
    before = np.searchsorted(times, joined.version_ns)
    marks, counts = np.unique(before, return_counts=True)
    if len(marks) < 2:
        return None, None
    return float(np.median(np.diff(marks))), float(np.median(counts))


def _optimizer(scenario: Scenario, ledgers: Ledgers, joined: Joined, action_space: dict[str, Any]) -> list[Seen]:
    rate = scenario.algorithm.learning_rate
    seen = joined.learning_rate[~np.isnan(joined.learning_rate)] if len(joined.learning_rate) else np.empty(0)
    rows = []
    if len(seen) and seen.max() - seen.min() > 1e-3 * rate:
        moved = f"{_number(seen[0])} .. {_number(seen[-1])}"
        rows.append(Seen("learning_rate", _number(rate), moved, False, "it changed during training"))
    else:
        rows.append(_compare("learning_rate", rate, float(seen[0]) if len(seen) else None, 1e-6))
    module = ledgers.modules[joined.module] if joined.module >= 0 else {}
    index = module.get("optimizer")
    optimizer = _owner(ledgers, module, index)
    kind = optimizer.get("type")
    rows.append(Seen("optimizer", "Adam", kind, kind is not None and kind.lower().startswith("adam")))
    asked = expected_parameters(scenario, action_space)
    rows.append(_compare("parameters", asked, optimizer.get("parameters"), note="elements in the policy's optimizer"))
    device = module.get("device")
    rows.append(Seen("device", scenario.topology.device, device, str(device).startswith(scenario.topology.device)))
    return rows


def _owner(ledgers: Ledgers, module: dict[str, Any], index: int | None) -> dict[str, Any]:
    """The optimizer that owns the policy's module; indices count from 0 in each process."""
    if index is None:
        return {}
    mine = [each for each in ledgers.optimizers if each["pid"] == module["pid"]]
    return mine[index] if index < len(mine) else {}


def expected_parameters(scenario: Scenario, action_space: dict[str, Any]) -> int:
    """Number of parameters in the policy's optimizer that the scenario's network amounts to.

    Actor and critic are separate networks with the scenario's hidden layers (PPO, A2C: both, and a log standard
    deviation per element of a continuous action); DQN: one Q network; SAC: the actor with mean and deviation heads.
    """
    inputs = action_space["observation_dim"]
    hidden = scenario.network.net_arch
    outputs = action_space.get("n") or action_space["dim"]
    continuous = "n" not in action_space

    def layers(last: int) -> int:
        widths = [inputs, *hidden, last]
        return sum((a + 1) * b for a, b in pairwise(widths))

    algorithm = scenario.algorithm
    if isinstance(algorithm, DQN):
        return layers(outputs)
    if isinstance(algorithm, SAC):
        return layers(2 * outputs)
    return layers(outputs) + layers(1) + (outputs if continuous else 0)
