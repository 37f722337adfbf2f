"""A user's mistake is one clear sentence, exit code 2, no traceback, and nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ORACLE, Cli, command

pytestmark = pytest.mark.e2e

SCENARIO = str(ORACLE / "scenario.toml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "quickstrat"], ["unknown scenario 'quickstrat'", "did you mean 'quickstart'"]),
        (["run", "quickstart", "-l", "sb33"], ["unknown library 'sb33'", "did you mean 'sb3'"]),
        (["run", "quickstart", "-l", "sb3:turbo"], ["'sb3' has no variant 'turbo'"]),
        (["run"], ["name a scenario"]),
        (["run", "quickstart", "--seeds", "0"], ["--seeds", "greater than or equal to 1"]),
        (["run", "quickstart", "--set", "budget.env_steps=-5"], ["budget.env_steps", "greater than 0"]),
        (["run", "quickstart", "--set", "budget.env_step=5"], ["unknown key 'budget.env_step'", "env_steps"]),
        (["run", "quickstart", "--set", "algorithm.batch_size=100"], ["batch_size 100 does not divide"]),
        (["run", "quickstart", "--set", 'algorithm.gamma="high"'], ["algorithm.ppo.gamma", "high"]),
        (["run", "quickstart", "--set", "gamma"], ["KEY=VALUE"]),
        (["run", "quickstart", "--adapters", "nowhere"], ["nowhere"]),
        (["run", "quickstart", "--workers", "2"], ["scenario 'quickstart' has no workers"]),
        (["run", "cartpole-workers", "-l", "sb3", "--workers", "two"], ["--workers two: must be numbers"]),
        (["run", "--resume", "nothing"], ["unknown run 'nothing'"]),
        (["show", "nothing"], ["unknown run 'nothing'"]),
        (["scenarios", "nothing"], ["unknown scenario 'nothing'"]),
        (["env", "build", "sb33"], ["unknown library 'sb33'"]),
        (["overhead", "-l", "nothing"], ["unknown library 'nothing'"]),
    ],
)
def test_wrong_words_are_named_with_the_way_out(
    cli: Cli, tmp_path: Path, arguments: list[str], says: list[str]
) -> None:
    done = cli(*arguments, code=2)
    told = " ".join(done.stderr.replace("│", " ").split())
    for part in says:
        assert part in told
    assert not (tmp_path / "results").exists() or not any((tmp_path / "results").iterdir())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "not valid TOML"),
        ('name = "x"\n', "key 'environment' is missing"),
        (
            "WRONG_KEY",
            "unknown key 'topology.n_env'; did you mean 'n_envs'? (allowed here: device, mode, n_envs",
        ),
        ("WRONG_ALGORITHM", "must be one of 'ppo', 'a2c', 'dqn', 'sac'"),
        ("WRONG_MODE", "mode 'workers' needs workers >= 1"),
    ],
)
def test_a_wrong_scenario_file_is_told_by_file_key_and_allowed_values(
    cli: Cli, tmp_path: Path, text: str, says: str
) -> None:
    good = Path(SCENARIO).read_text()
    changed = {
        "WRONG_KEY": good.replace("n_envs = 2", "n_env = 2"),
        "WRONG_ALGORITHM": good.replace('name = "ppo"', 'name = "pposo"'),
        "WRONG_MODE": good.replace('mode = "sync"', 'mode = "workers"'),
    }
    (tmp_path / "mine.toml").write_text(changed.get(text, text))
    done = cli("run", "mine.toml", code=2)
    assert says in done.stderr
    assert "mine.toml" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_environment_that_does_not_exist(cli: Cli, tmp_path: Path) -> None:
    options = ("--adapters", str(ORACLE), "-l", "oracle:sync")
    done = cli("run", SCENARIO, *options, "--set", "environment.id=CartPoll-v1", code=2)
    assert "CartPoll" in done.stderr
    assert not any((tmp_path / "results").iterdir())


def test_an_adapter_that_does_not_import(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("adapter.toml", "requirements.lock", "oracle_env.py"):
        (folder / name).write_text((ORACLE / name).read_text())
    (folder / "adapter.py").write_text("import no_such_module\n")
    done = cli("run", SCENARIO, "--adapters", str(folder), "-l", "oracle:sync", code=2)
    assert "adapter.py does not import" in done.stderr
    assert "no_such_module" in done.stderr
    assert not any((tmp_path / "results").iterdir())


def test_corrupt_and_foreign_parquet(cli: Cli, oracle: Callable[..., Path]) -> None:
    import pandas as pd

    run = oracle("sync")
    stored = run / "trials" / "oracle-oracle+sync-s1.parquet"
    content = stored.read_bytes()
    stored.write_bytes(content[: len(content) // 2])
    assert str(stored.relative_to(run.parents[1])) in cli("show", "run", code=2).stderr
    pd.DataFrame({"x": [1]}).to_parquet(stored)
    assert "not written by rlbench" in cli("show", "run", code=2).stderr
    (run / "run.json").write_text("{")
    assert "run.json" in cli("run", "--resume", "run", code=2).stderr


def test_a_folder_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file, not a folder")
    done = cli("run", SCENARIO, "--adapters", str(ORACLE), "-l", "oracle:sync", code=2)
    assert "cannot be written" in done.stderr
    assert "--results" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_stops_the_run_with_a_sentence_and_can_be_resumed(cli: Cli, tmp_path: Path) -> None:
    """A results folder on a file system of 3 MB: ledgers alone need more."""
    small = tmp_path / "results"
    small.mkdir()
    script = f"""
        mount -t tmpfs -o size=3m tmpfs {small} && {subprocess.list2cmdline(command())} run {SCENARIO} \
        --adapters {ORACLE} -l oracle:sync --run-id r; code=$?; ls -A {small}/r/trials 2>/dev/null; exit $code
    """
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "unshare failed" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip("this machine does not allow a private mount")
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stdout + done.stderr
    assert ".tmp" not in done.stdout


def test_json_is_all_that_stdout_holds(cli: Cli, tmp_path: Path) -> None:
    options = ("--adapters", str(ORACLE), "-l", "oracle:sync", "--run-id", "r", "--json")
    shown = json.loads(cli("run", SCENARIO, *options).stdout)
    assert shown["run"].endswith("r")
    assert json.loads(cli("show", "r", "--json").stdout)
    assert json.loads(cli("scenarios", "--json").stdout)
    assert json.loads(cli("schema", "--json").stdout)
