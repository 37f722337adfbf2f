"""Runs a plan: environments, trials in order, analysis, storage. Stops cleanly at Ctrl-C and can be resumed."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rlbench import __version__
from rlbench.analyse.figures import analyse_trial
from rlbench.catalog.library import Library
from rlbench.errors import Unavailable, UserError
from rlbench.execute.calibrate import calibrate, drifted
from rlbench.execute.guest import guest_code, write_job
from rlbench.execute.machine import git_commit, machine
from rlbench.execute.preflight import Fault, adapter_fault, environment_fault
from rlbench.execute.progress import RunProgress
from rlbench.execute.spec import RunSpec
from rlbench.execute.supervisor import supervise
from rlbench.plan import Trial, cannot, plan
from rlbench.provision.build import GuestEnv, environments
from rlbench.provision.layer import Layer, with_layers
from rlbench.provision.package import Package
from rlbench.store.reader import read_table, stored_trials
from rlbench.store.writer import replace_table, write_trial

WORK = ".work"


def execute_run(run: Path, spec: RunSpec, libraries: list[Library], jobs: int, keep_ledgers: bool) -> dict[str, int]:
    """Run what is missing of ``spec`` into ``run`` and return the number of trials per status.

    Raises UserError when nothing could run because of the user's input, and KeyboardInterrupt at Ctrl-C; what is
    finished stays stored in both cases.
    """
    trials = plan(libraries, spec.scenarios, spec.seeds)
    stored = stored_trials(run)
    missing = [trial for trial in trials if trial.id not in stored]
    work = run / WORK
    shutil.rmtree(work, ignore_errors=True)
    with RunProgress(len(trials), len(trials) - len(missing)) as progress:
        if missing:
            try:
                _trials(run, work, missing, spec.package, libraries, jobs, keep_ledgers, progress)
            finally:
                if not keep_ledgers:
                    shutil.rmtree(work, ignore_errors=True)
                _mark_drift(run)
    statuses = read_table(run, "trials")["status"]
    return {str(status): int(count) for status, count in statuses.value_counts().items()}


def _trials(
    run: Path,
    work: Path,
    missing: list[Trial],
    package: Package | None,
    compared: list[Library],
    jobs: int,
    keep_ledgers: bool,
    progress: RunProgress,
) -> None:
    libraries = {each.label: each for each in compared}
    needed = [library for name, library in libraries.items() if any(trial.library == name for trial in missing)]
    progress.say(f"environments: {', '.join(library.name for library in needed)}")
    # Variants of a library share its environment.
    by_name, layers = with_layers(
        environments({each.name: each for each in needed}.values(), jobs=jobs, report=progress.say),
        package,
        progress.say,
    )
    built = {each.label: by_name[each.name] for each in needed}
    work.mkdir(parents=True)
    code = guest_code(work / "guest")
    faults = _preflight(missing, libraries, built, layers, code)
    facts = {"machine": json.dumps(machine()), "rlbench_version": __version__, "git_commit": git_commit()}
    for trial in missing:
        library, guest = libraries[trial.library], built[trial.library]
        number = trial.order + 1
        progress.begin(
            number,
            f"{trial.library} {trial.scenario.name} seed {trial.seed}",
            trial.scenario.budget.env_steps,
        )
        row = _identity(run, trial, library) | facts
        reason = cannot(library, trial.scenario)
        if isinstance(guest, Unavailable):
            _store_empty(run, trial, row, "unavailable", str(guest))
        elif reason:
            _store_empty(run, trial, row, "skipped", reason)
        elif fault := faults.get((trial.library, trial.scenario.name)):
            _store_empty(run, trial, row, fault.status, fault.reason)
        else:
            layer = layers.get(library.name)
            _one(run, work / trial.id, trial, library, guest, layer, code, row, progress.steps)
        if not keep_ledgers:
            shutil.rmtree(work / trial.id, ignore_errors=True)
        progress.end(number, _sentence(row))


def _preflight(
    missing: list[Trial],
    libraries: dict[str, Library],
    built: dict[str, GuestEnv | Unavailable],
    layers: dict[str, Layer],
    code: Path,
) -> dict[tuple[str, str], Fault]:
    """Return what keeps a (library, scenario) from running; raises UserError when it keeps every one."""
    faults: dict[tuple[str, str], Fault] = {}
    able = 0
    for name, scenario in {(trial.library, trial.scenario.name): trial.scenario for trial in missing}.items():
        library, guest = libraries[name[0]], built[name[0]]
        if isinstance(guest, Unavailable) or cannot(library, scenario):
            continue
        fault = adapter_fault(guest.python, code, library) or environment_fault(
            guest.python, code, scenario, library, layers.get(library.name)
        )
        if fault:
            faults[name] = fault
        else:
            able += 1
    if faults and not able:
        raise UserError(next(iter(faults.values())).reason)
    return faults


def _identity(run: Path, trial: Trial, library: Library) -> dict[str, Any]:
    scenario, topology = trial.scenario, trial.scenario.topology
    return {
        "run_id": run.name,
        "trial_id": trial.id,
        "library": trial.library,
        "library_version": None,
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "env_id": scenario.environment.id,
        "mode": topology.mode,
        "n_envs": topology.n_envs,
        "workers": topology.workers,
        "device": topology.device,
        "cpu_threads": topology.threads,
        "seed": trial.seed,
        "order": trial.order,
        "settings": json.dumps(scenario.model_dump(mode="json")),
        "warnings": "[]",
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _one(
    run: Path,
    folder: Path,
    trial: Trial,
    library: Library,
    guest: GuestEnv,
    layer: Layer | None,
    code: Path,
    row: dict[str, Any],
    heard: Callable[[int], None],
) -> None:
    """Run, analyse and store one trial."""
    folder.mkdir(parents=True)
    write_job(folder, library, trial.scenario, trial.seed)
    row["calibration_ms"] = calibrate()
    limits, threads = trial.scenario.limits, trial.scenario.topology.threads
    ended = supervise(guest.python, folder, code, limits, threads, heard, layer.folder if layer else None)
    row |= {
        "status": ended.status,
        "reason": ended.reason,
        "output_tail": ended.output_tail or None,
        "build_s": guest.build_s,
        "environment_mb": guest.size_mb,
        "packages": json.dumps(guest.packages),
        # Every guest has rlbench itself on its path, and its reference pipeline is of that version.
        "library_version": ({"rlbench": __version__} | guest.packages).get(canonicalize_name(library.package)),
        "python": guest.python_version,
    }
    if ended.status == "skipped":
        write_trial(run, trial.id, {"trials": row})
        return
    try:
        figures, tables = analyse_trial(
            folder, trial.scenario, ended.outcome, ended.usage, ended.wall_s, library.not_settable
        )
    except Exception as error:
        # Ledgers that nobody foresaw cost this trial, not the run.
        row |= {"status": "failed", "reason": f"the analysis failed: {type(error).__name__}: {error}"}
        write_trial(run, trial.id, {"trials": row | {"output_tail": traceback.format_exc()}})
        return
    if ended.status != "ok":
        figures |= {"learned": None, "audit_ok": None}
    row |= figures
    names = {"run_id": run.name, "trial_id": trial.id, "library": trial.library, "seed": trial.seed}
    named = {name: _named(table, names) for name, table in tables.items()}
    write_trial(run, trial.id, {**named, "trials": row})


def _named(table: Any, names: dict[str, Any]) -> Any:
    return [names | each for each in table] if isinstance(table, list) else table.assign(**names)


def _store_empty(run: Path, trial: Trial, row: dict[str, Any], status: str, reason: str) -> None:
    row |= {"status": status, "reason": reason}
    write_trial(run, trial.id, {"trials": row})


def _sentence(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}"
    rate, lag = row["env_steps_per_s"], row["lag_mean"]
    parts = [f"{rate:,.0f} steps/s" if rate is not None else "no steady state"]
    if lag is not None:
        parts.append(f"lag {lag:.1f}")
    if row["return_greedy"] is not None:
        parts.append(f"greedy return {row['return_greedy']:.3g}")
    return ", ".join(parts)


def _mark_drift(run: Path) -> None:
    """Set ``drifted`` of every stored trial, now that the run's median calibration is known."""
    trials = read_table(run, "trials")
    timed = trials[trials["calibration_ms"].notna()]
    for row, moved in zip(timed.to_dict("records"), drifted(timed["calibration_ms"].tolist()), strict=True):
        if row["drifted"] is not moved:
            one = trials[trials["trial_id"] == row["trial_id"]].assign(drifted=moved)
            replace_table(run, "trials", str(row["trial_id"]), one)
