"""Every diagnosis on a scripted trial that has exactly that fault, through the command line; none on a sound one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.analyse.diagnose import RULES
from tests.conftest import Cli

pytestmark = pytest.mark.e2e

ALONE = {
    "sound": [],
    "exits": ["did not run"],
    "stale": ["stale weights"],
    "never_synced": ["weights never synced"],
    "env_bound": ["env-bound"],
    "act_bound": ["act-bound"],
    "learner_bound": ["learner-bound"],
    "overflow": ["buffer overflow"],
    "foreign": ["foreign samples"],
    "busy": ["adapter overhead"],
    "growing": ["memory growth"],
}
WORKERS = {"silent": ["silent workers"], "straggler": ["stragglers"], "crowded": ["thread oversubscription"]}
AIMS_TOO_HIGH = {"sound": ["does not learn"]}


def found(cli: Cli, run: Path) -> dict[str, list[str]]:
    told = json.loads(cli("diagnose", str(run), "--json").stdout)
    return {
        each["trial"].partition("+")[2].removesuffix("-s1"): [finding["name"] for finding in each["findings"]]
        for each in told
    }


def test_exactly_the_scripted_fault_is_found(cli: Cli, oracle: Callable[..., Path]) -> None:
    assert found(cli, oracle(*ALONE, code=1)) == ALONE


def test_exactly_the_scripted_fault_of_workers_is_found(cli: Cli, oracle: Callable[..., Path]) -> None:
    extra = ("--set", "topology.mode=workers", "--set", "topology.workers=2")
    assert found(cli, oracle(*WORKERS, extra=extra)) == WORKERS


def test_a_trial_below_the_threshold_does_not_learn(cli: Cli, oracle: Callable[..., Path]) -> None:
    assert found(cli, oracle("sound", extra=("--set", "learning.return_threshold=6"))) == AIMS_TOO_HIGH


def test_every_diagnosis_is_covered() -> None:
    covered = {name for each in (ALONE, WORKERS, AIMS_TOO_HIGH) for names in each.values() for name in names}
    assert covered == {name for name, _, _ in RULES}
