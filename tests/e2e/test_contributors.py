"""What a contributor does: start an adapter, hold it to the contract, read the catalogue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ORACLE, Cli

pytestmark = pytest.mark.e2e


def test_a_new_adapter_works_and_keeps_the_contract(cli: Cli, tmp_path: Path) -> None:
    cli("adapter", "new", "mine")
    done = cli("adapter", "check", "mine", "--adapters", "adapters", "--json")
    assert {clause["state"] for clause in json.loads(done.stdout)["clauses"]} == {"holds"}
    assert "is there already" in cli("adapter", "new", "mine", code=2).stderr
    assert "cannot be an adapter's name" in cli("adapter", "new", "My-Lib", code=2).stderr


def test_the_contract_fails_where_an_adapter_breaks_it(cli: Cli, tmp_path: Path) -> None:
    """One fault each: samples that do not come from the environment, a budget ignored, a setting not passed on."""
    cli("adapter", "new", "mine")
    path = tmp_path / "adapters" / "mine" / "adapter.py"
    good = path.read_text()
    faults = {
        "stamps survive": good.replace("probe.learned(batch,", "probe.learned(batch * 0.5 + 1,"),
        "stops at the budget": good.replace("probe.should_stop()", "probe.steps() >= 2 * trial.env_steps"),
        "settings as asked": good.replace("range(trial.n_envs)", "range(trial.n_envs - 1)"),
        "learns": good.replace("np.argmax(observation @", "np.argmin(observation @").replace(
            "self.weights = self.weights +", "self.weights = self.weights + 1e-9 *"
        ),
        "ends well": good.replace("def train(self, trial, probe):", "def train(self, trial, probe):\n        1 / 0"),
    }
    for clause, text in faults.items():
        path.write_text(text)
        done = cli("adapter", "check", "mine", "--adapters", "adapters", "--json", "--steps", "8192", code=1)
        states = {each["clause"]: each["state"] for each in json.loads(done.stdout)["clauses"]}
        assert states[clause] == "fails", (clause, states)


def test_the_catalogue_is_told(cli: Cli) -> None:
    facts = {each["name"]: each for each in json.loads(cli("libraries", "--json").stdout)}
    assert facts["sb3"]["version"] == "2.9.2"
    assert set(facts["sb3"]["axes"]) == {
        "orchestration",
        "rollout_buffer",
        "weight_sync",
        "staleness_management",
        "partial_rollouts",
        "lora",
        "distributed_backend",
    }
    assert "Stable-Baselines3" in cli("libraries", "SB3").stdout
    assert "variant late" in cli("libraries", "oracle", "--adapters", str(ORACLE)).stdout
