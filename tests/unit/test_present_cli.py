"""The verbs that show results, called as the command line calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rlbench.cli.show import compare, report, schema, show
from rlbench.errors import UserError
from rlbench.present import charts
from rlbench.store.schema import TABLES
from tests.unit.synthetic import build_run

APP = typer.Typer()
for verb in (show, compare, report, schema):
    APP.command()(verb)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("results")).parent


def call(*words: str) -> str:
    result = CliRunner().invoke(APP, list(words), catch_exceptions=False, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return result.stdout


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_show(results: Path) -> None:
    assert "does not learn" in call("show", "--results", str(results))
    data = strict_json(call("show", "run-1", "--json", "-f", "lag_mean", "--results", str(results)))
    assert set(data["groups"][0]["figures"]) == {"lag_mean"}
    assert "Optimizer steps between" in call("show", "--figure", "lag", "--results", str(results))


def test_compare(results: Path) -> None:
    assert "cleanrl against sb3" in call("compare", "--results", str(results))
    data = strict_json(call("compare", "latest", "run-1", "-b", "cleanrl", "--json", "--results", str(results)))
    assert data["baseline"] == "cleanrl"
    assert [each["library"] for each in data["comparisons"]].count("sb3") == 1


def test_report_prints_its_path(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "KINDS", charts.KINDS[:1])
    assert Path(call("report", "--results", str(results)).strip()).is_file()


def test_schema() -> None:
    data = strict_json(call("schema", "--json"))
    assert set(data["tables"]) == set(TABLES)
    assert data["tables"]["lags"][-1]["type"] == "int64"
    shown = call("schema", "--table", "trials")
    assert "env_steps_per_s" in shown
    assert "end_step" not in shown


def test_mistakes_are_user_errors(results: Path) -> None:
    for words in (["show", "run-2"], ["compare", "-b", "sb4"], ["show", "-f", "speed"]):
        with pytest.raises(UserError):
            CliRunner().invoke(APP, [*words, "--results", str(results)], catch_exceptions=False)
    with pytest.raises(UserError):
        CliRunner().invoke(APP, ["schema", "--table", "x"], catch_exceptions=False)
