"""Templates and packages of `rlbench run --env`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.catalog.scenario import scenario_names
from rlbench.catalog.template import environment_kwargs, scenario_from_template, scenario_slug
from rlbench.errors import UserError
from rlbench.provision.package import check_unchanged, copy_package, read_package


@pytest.mark.parametrize(
    ("actions", "algorithm"),
    [
        ("discrete", None),
        ("discrete", "a2c"),
        ("discrete", "dqn"),
        ("box", None),
        ("box", "a2c"),
        ("box", "sac"),
    ],
)
def test_templates_give_scenarios_without_a_threshold(actions: str, algorithm: str | None) -> None:
    scenario = scenario_from_template("my_envs:Maze-v0", actions, algorithm, {"budget.env_steps": 20_480})
    assert scenario.name == f"maze-v0-{algorithm or 'ppo'}"
    assert scenario.algorithm.name == (algorithm or "ppo")
    assert scenario.environment.id == "my_envs:Maze-v0"
    assert scenario.learning.return_threshold is None
    assert scenario.budget.env_steps == 20_480


@pytest.mark.parametrize(("actions", "algorithm"), [("discrete", "sac"), ("box", "dqn")])
def test_an_algorithm_for_other_actions_is_refused(actions: str, algorithm: str) -> None:
    with pytest.raises(UserError, match=f"{actions} actions"):
        scenario_from_template("Maze-v0", actions, algorithm)


def test_templates_are_no_scenarios() -> None:
    assert not {"discrete", "box"} & set(scenario_names())


@pytest.mark.parametrize(
    ("env_id", "slug"),
    [
        ("CartPole-v1", "cartpole-v1"),
        ("ale_py:ALE/Pong-v5", "ale-pong-v5"),
        ("a.b:_X_-v0", "x-v0"),
        ("é", "environment"),
    ],
)
def test_slugs(env_id: str, slug: str) -> None:
    assert scenario_slug(env_id) == slug


def test_keyword_arguments_are_read_off_the_settings() -> None:
    changes = {"environment.kwargs": {"a": 1}, "environment.kwargs.b": 2, "budget.env_steps": 3}
    assert environment_kwargs(changes) == {"a": 1, "b": 2}
    with pytest.raises(UserError, match="must be a table"):
        environment_kwargs({"environment.kwargs": 3})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "maze"
    (folder / "maze").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[project]\n")
    (folder / "maze" / "__init__.py").write_text("x = 1\n")
    return folder


def test_a_folder_is_known_by_its_content_and_not_by_what_tools_leave(project: Path) -> None:
    before = read_package("maze")
    assert before.path == project
    for name in ("results/r/run.json", "maze/__pycache__/x.pyc", "maze.egg-info/PKG-INFO", ".git/HEAD", "build/x"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    assert read_package("./maze") == before
    (project / "maze" / "__init__.py").write_text("x = 2\n")
    with pytest.raises(UserError, match="has changed"):
        check_unchanged(before)


def test_the_copy_that_is_built_from_has_what_counts(project: Path, tmp_path: Path) -> None:
    (project / "build").mkdir()
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("x")
    copy = copy_package(project, tmp_path / "copy")
    assert sorted(path.name for path in copy.iterdir()) == [".git", "maze", "pyproject.toml"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("./nowhere", "no such folder or file"),
        ("nowhere.whl", "no such folder or file"),
        ("./empty", "neither pyproject.toml nor setup.py"),
        ("notes.txt", "must be a package archive"),
        ("a b c", "neither a path nor the name"),
    ],
)
def test_what_is_no_package_is_told(project: Path, given: str, says: str) -> None:
    (project.parent / "empty").mkdir()
    (project.parent / "notes.txt").write_text("")
    with pytest.raises(UserError, match=says):
        read_package(given)


@pytest.mark.parametrize("given", ["minigrid", "gymnasium[box2d]>=1", "x @ https://example.org/x-1.tar.gz"])
def test_requirements_are_for_an_index(given: str) -> None:
    package = read_package(given)
    assert package.path is None
    assert package.distribution in ("minigrid", "gymnasium", "x")
