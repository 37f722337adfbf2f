"""Runs one trial inside the library's interpreter: ``python -m rlbench.probe.main TRIAL_FOLDER``.

Reads ``job.json``, measures the ceiling, imports the adapter, trains under the taps, evaluates greedily and writes
``outcome.json`` (atomically, last). A failure is an outcome too; the host treats a guest without one as dead.
"""

import importlib
import importlib.util
import json
import os
import platform
import random
import sys
import traceback

import numpy as np

from rlbench.probe import BARE, MEASURE, children, clock
from rlbench.probe.ceiling import measure_ceiling
from rlbench.probe.evaluate import greedy_episodes
from rlbench.probe.sampler import OwnerSampler
from rlbench.probe.taps import Taps
from rlbench.probe.trial import Probe, Trial


def main(folder):
    """Run the trial in ``folder`` and return the exit code."""
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)
    outcome = {"status": "ok", "reason": None, "python": platform.python_version()}
    try:
        _run(job, outcome)
    except Exception as error:
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "%s:%d" % (os.path.basename(last.filename), last.lineno)
        outcome.update(status="failed", reason="%s: %s (%s)" % (type(error).__name__, _told(error), where))
    path = os.path.join(folder, "outcome.json")
    with open(path + ".tmp", "w") as file:
        json.dump(outcome, file)
    os.replace(path + ".tmp", path)
    sys.stdout.flush()
    sys.stderr.flush()
    return 0 if outcome["status"] in ("ok", "skipped") else 1


def _run(job, outcome):
    # The adapter's folder may hold modules of its own: shims, or the scenario's environment.
    sys.path.insert(0, os.path.dirname(job["adapter"]))
    trial = Trial(job)
    layout, dim, _, action_space = trial.spaces()
    action_dim = 0 if hasattr(action_space, "n") else int(np.prod(action_space.shape))
    actions = {"dim": action_dim} if action_dim else {"n": int(action_space.n)}
    outcome["spaces"] = {"observation_dim": dim, **actions}
    outcome["tokens_per_step"] = trial.metadata().get("tokens_per_step")
    if trial.arm == MEASURE:
        ceiling, cost = measure_ceiling(trial.env_id, trial.env_kwargs)
        outcome.update(ceiling_steps_per_s=ceiling, probe_us_per_step=cost)
    started = clock.now_ns()
    taps = None if trial.arm == BARE else Taps(trial.folder, layout, dim)
    if taps:
        children.announce(trial.folder, layout, dim, action_dim, job["backend"])
    if taps and job["backend"] == "torch":
        from rlbench.probe import torchtap

        torchtap.install(taps, action_dim, alone=trial.mode == "sync")
    adapter = load_adapter(job["adapter"])
    outcome["import_s"] = (clock.now_ns() - started) / 1e9
    reason = adapter.skip(trial)
    if reason:
        outcome.update(status="skipped", reason=reason)
        return
    _seed(trial.seed)
    sampler = OwnerSampler(job["adapter"], job["import_name"]) if taps else None
    if sampler:
        sampler.start()
    outcome["train_start_ns"] = clock.now_ns()
    probe = Probe(trial, taps)
    policy = adapter.train(trial, probe)
    outcome["train_end_ns"] = clock.now_ns()
    if sampler:
        outcome["owners"] = sampler.stop()
    outcome.update(marks=trial.marks, reported=probe.reported)
    if taps:
        taps.paused = True
        if taps.modules:
            taps.describe()
    if trial.arm == MEASURE:
        if not callable(policy):
            raise TypeError("the adapter's train returned %r, not a policy to call" % (policy,))
        outcome["greedy"] = greedy_episodes(policy, trial.env_id, trial.env_kwargs)


def load_adapter(path):
    """Return an instance of the class ``Adapter`` of the module at ``path``.

    Raises ImportError naming the file and what it lacks.
    """
    spec = importlib.util.spec_from_file_location("rlbench_adapter", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["rlbench_adapter"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ImportError("adapter %s does not import: %s: %s" % (path, type(error).__name__, error)) from error
    for name in ("skip", "train"):
        if not callable(getattr(getattr(module, "Adapter", None), name, None)):
            raise ImportError("adapter %s has no class Adapter with a method %s" % (path, name))
    return module.Adapter()


def _told(error):
    """Return what an exception says in one line: its first and last one, cut where they are long."""
    lines = [line.strip()[:300] for line in str(error).splitlines() if line.strip()]
    return " ... ".join(lines if len(lines) < 3 else [lines[0], lines[-1]])


def _seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
