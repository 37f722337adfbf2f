"""An environment of the user's own runs in every library that can do it; what cannot says why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlbench.store.reader import read_table
from tests.conftest import ORACLE, ROOT, Cli

pytestmark = pytest.mark.e2e

CORRIDOR = ROOT / "tests" / "packages" / "corridor"
WITH_ORACLE = ("--adapters", str(ORACLE), "-l", "oracle:sync", "--seeds", "1", "--run-id", "r")


def rows(run: Path) -> dict[str, dict[str, Any]]:
    trials = read_table(run, "trials").set_index("library")
    return {str(name): row.to_dict() for name, row in trials.iterrows()}


@pytest.fixture
def corridor(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    shutil.copytree(CORRIDOR, tmp_path / "corridor", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "corridor"


def needs(package: Path, requirement: str) -> None:
    project = package / "pyproject.toml"
    project.write_text(project.read_text().replace('"toolz>=0.12"', f'"toolz>=0.12", "{requirement}"'))


def test_a_library_learns_it_and_keeps_its_environment_as_it_was(cli: Cli, tmp_path: Path) -> None:
    options = ("--env", "Corridor-v0", "--env-package", str(CORRIDOR), "-l", "sb3", "--seeds", "1", "--run-id", "r")
    changes = ("--set", "learning.return_threshold=-5", "--set", "environment.kwargs.length=6")
    cli("run", *options, "--steps", "1024", *changes)
    run = tmp_path / "results" / "r"
    row = rows(run)["sb3"]
    assert row["status"] == "ok", row["reason"]
    assert row["env_steps"] == 1024
    assert row["scenario"] == "corridor-v0-ppo"
    assert row["env_id"] == "corridor_env:Corridor-v0"
    assert row["return_greedy"] <= 1
    assert row["learned"] is True
    assert not read_table(run, "episodes").empty
    assert json.loads(row["settings"])["environment"]["kwargs"] == {"length": 6}
    packages = json.loads(row["packages"])
    assert packages["corridor-env"] == "0.1.0"
    assert "toolz" in packages
    listed = json.loads(cli("env", "list", "--json").stdout)
    ready = [Path(each["folder"]) for each in listed if each["library"] == "sb3" and each["state"] == "ready"]
    assert not list(ready[0].glob("lib/*/site-packages/toolz"))


def test_an_environment_that_raises_costs_rows_and_not_the_run(cli: Cli, tmp_path: Path) -> None:
    options = ("--adapters", str(ORACLE), "-l", "oracle:sync,oracle:late", "--seeds", "1", "--run-id", "r")
    cli("run", "--env", "corridor_env.variants:CorridorTrap-v0", "--env-package", str(CORRIDOR), *options, code=1)
    failed = rows(tmp_path / "results" / "r")
    assert set(failed) == {"oracle:sync", "oracle:late"}
    for row in failed.values():
        assert row["status"] == "failed"
        assert "RuntimeError: fell through the trapdoor" in row["reason"]
    assert (tmp_path / "results" / "r" / "report.html").is_file()


def test_resume_takes_the_package_from_the_run_and_notices_a_change(cli: Cli, corridor: Path, tmp_path: Path) -> None:
    cli("run", "--env", "Corridor-v0", "--env-package", "corridor", *WITH_ORACLE)
    run = tmp_path / "results" / "r"
    for stored in run.glob("*/*.parquet"):
        stored.unlink()
    cli("run", "--resume", "r")
    assert rows(run)["oracle:sync"]["status"] == "ok"
    (corridor / "src" / "corridor_env" / "more.py").write_text("")
    assert "has changed since the run began" in cli("run", "--resume", "r", code=2).stderr


def test_a_conflict_with_what_a_library_pins_makes_only_that_one_unavailable(
    cli: Cli, corridor: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(ORACLE, old, ignore=shutil.ignore_patterns("__pycache__"))
    for name, now, then in (
        ("adapter.toml", 'name = "oracle"', 'name = "oracle_old"'),
        ("requirements.lock", "numpy==2.4.6", "numpy==1.26.4"),
    ):
        assert now in (old / name).read_text()
        (old / name).write_text((old / name).read_text().replace(now, then))
    needs(corridor, "numpy<2")
    options = ("--adapters", str(ORACLE), "--adapters", str(old), "-l", "oracle:sync,oracle_old:sync", "--seeds", "1")
    cli("run", "--env", "Corridor-v0", "--env-package", "./corridor", *options, "--run-id", "r", code=1)
    found = rows(tmp_path / "results" / "r")
    assert found["oracle:sync"]["status"] == "unavailable"
    assert "corridor-env==0.1.0 depends on numpy<2" in found["oracle:sync"]["reason"]
    assert found["oracle_old:sync"]["status"] == "ok"


def test_a_conflict_with_every_library_is_the_users_to_mend(cli: Cli, corridor: Path, tmp_path: Path) -> None:
    needs(corridor, "numpy<1.20")
    told = cli("run", "--env", "Corridor-v0", "--env-package", "corridor", *WITH_ORACLE, code=2).stderr
    assert "does not go with the packages of oracle" in told
    assert "numpy<1.20" in told
    assert not (tmp_path / "results").exists()


def test_an_environment_registered_by_an_entry_point(cli: Cli, corridor: Path, tmp_path: Path) -> None:
    (corridor / "src" / "corridor_env" / "plugin.py").write_text(
        "from gymnasium import register as enter\n\n\ndef register():\n"
        "    enter('Plugged-v0', 'corridor_env:Corridor', max_episode_steps=9)\n"
    )
    with (corridor / "pyproject.toml").open("a") as project:
        project.write('\n[project.entry-points."gymnasium.envs"]\nHall = "corridor_env.plugin:register"\n')
    cli("run", "--env", "Hall/Plugged-v0", "--env-package", "corridor", *WITH_ORACLE)
    row = rows(tmp_path / "results" / "r")["oracle:sync"]
    assert row["status"] == "ok"
    assert row["scenario"] == "hall-plugged-v0-ppo"


VARIANTS = ("--env-package", str(CORRIDOR), "--env")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*VARIANTS, "corridor_env.variants:CorridorDescribed-v0"), ["Dict", "cannot be stamped"]),
        ((*VARIANTS, "corridor_env.variants:CorridorPhotographed-v0"), ["(8, 8, 3)", "cannot be stamped"]),
        ((*VARIANTS, "corridor_env.variants:CorridorCrowded-v0"), ["MultiDiscrete", "neither Discrete nor"]),
        ((*VARIANTS, "corridor_env.variants:CorridorPush-v0", "--algorithm", "dqn"), ["dqn", "box actions"]),
        ((*VARIANTS, "corridor_env.variants:CorridorPush-v0"), ["takes discrete actions", "has box actions"]),
        ((*VARIANTS, "Coridor-v0"), ["Coridor", "package corridor-env does not register it"]),
        ((*VARIANTS, "corridor_envs:Corridor-v0"), ["No module named 'corridor_envs'"]),
        (("--env", "Corridor-v0"), ["'Corridor-v0' cannot be made"]),
        (("--env", "Corridor-v0", "--env-package", "./nowhere"), ["./nowhere", "no such folder"]),
        (("--env", "Corridor-v0", "--env-package", "a b"), ["neither a path nor the name of a package"]),
        (("--env", "CartPole-v1", "quickstart"), ["takes the place of a scenario", "quickstart"]),
        (("--env", "CartPole-v1", "--scenario", "quickstart"), ["takes the place of a scenario"]),
        (("--env", "CartPole-v1", "--steps", "10"), ["less than one rollout"]),
        (("--env", "CartPole-v1", "--set", "environment.id=X-v0"), ["--env"]),
        (("quickstart", "--env-package", "toolz"), ["--env-package toolz", "goes with --env only"]),
        (("--scenario", "quickstrat"), ["unknown scenario 'quickstrat'"]),
        (("quickstart", "--algorithm", "sac"), ["--algorithm sac", "goes with --env only"]),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], says: list[str]) -> None:
    told = cli("run", *arguments, *WITH_ORACLE, code=2).stderr.strip().splitlines()[-1]
    assert told.startswith("rlbench: ")
    for part in says:
        assert part in told
    assert not (tmp_path / "results" / "r").exists()
