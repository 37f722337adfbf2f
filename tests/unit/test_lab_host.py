"""The lab's host side with experiments made for the test, run by this interpreter in place of the environment's."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from rlbench.catalog.paths import PACKAGE
from rlbench.cli import lab as cli
from rlbench.cli.lab import lab_app
from rlbench.errors import UserError
from rlbench.lab import catalog, page, run, store
from rlbench.lab.catalog import find_experiments
from rlbench.lab.rows import row

HEAD = '''"""The title of {name}

What <b>is</b> done. Source: a practitioners' guide to asynchronous RL.
"""

import os, sys, time, subprocess
from rlbench.lab.rows import row

CLAIM = "One & two are equal."
SIZES = {{"quick": {{"repeats": 2}}, "full": {{"repeats": 4}}}}
CHART = {{"x": "", "panels": [{{"metric": "speed", "title": "Speed"}}]}}


def verdict(rows):
    return "does not hold here", f"two is twice as fast, {{len(rows)}} rows."


def measure(quick, note):
    repeats = SIZES["quick" if quick else "full"]["repeats"]
    note(f"{{repeats}} repeats")
'''
BODIES = {
    "fine": "    both = (('one', 1), ('two', 2))\n"
    "    return [row(name, r, 'speed', v + r, 'm/s') for r in range(repeats) for name, v in both]",
    "broken": "    print('on the way')\n    raise ZeroDivisionError('nothing to divide by')",
    "hangs": "    note('now')\n    time.sleep(600)",
    "orphans": "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "    return [row('one', 0, 'speed', child.pid, '')]",
    "unseen": "    return [row('one', 0, 'speed', None, 'm/s', None, 'no <sensor> here')]",
}


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, catalog.Experiment]:
    """Experiments of the test's own, in a copy of the package's guest part."""
    package = tmp_path / "package"
    for part in ("lab", "pipeline"):
        shutil.copytree(PACKAGE / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
    folder = package / "lab" / "experiments"
    for path in folder.glob("[a-z]*.py"):
        path.unlink()
    for name, body in BODIES.items():
        (folder / f"{name}.py").write_text(HEAD.format(name=name) + body + "\n")
    monkeypatch.setattr(run, "PACKAGE", package)
    found = catalog.experiments(folder)
    monkeypatch.setattr(cli, "experiments", lambda: found)
    monkeypatch.setattr(cli, "interpreter", lambda say: Path(sys.executable))
    return found


def invoke(tmp_path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(lab_app, ["run", *arguments, "--results", str(tmp_path / "results")])


def folder_of(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "results").iterdir()
    return found


def test_an_experiment_leaves_rows_chart_verdict_and_page(known: Any, tmp_path: Path) -> None:
    done = invoke(tmp_path, "fine", "--quick")
    assert done.exit_code == 0, done.output
    assert "fine: does not hold here (quick sizes): two is twice as fast, 4 rows." in done.stdout
    assert "quick sizes: repeats 2" in " ".join(done.stdout.split())
    folder = folder_of(tmp_path)
    table = pq.read_table(folder / "measurements" / "fine.parquet")
    assert table.schema.metadata[b"rlbench_lab_schema"] == b"1"
    assert table.column_names == [column.name for column in store.MEASUREMENTS]
    assert table.column("value").to_pylist() == [1, 2, 2, 3]
    (verdict,) = store.read(folder, "verdicts")
    assert (verdict["verdict"], verdict["quick"], verdict["status"]) == ("does not hold here", True, "ok")
    assert json.loads(verdict["sizes"]) == {"repeats": 2}
    assert "python" in json.loads(verdict["versions"])
    assert (folder / "charts" / "fine.png").read_bytes().startswith(b"\x89PNG")
    html = (folder / "lab.html").read_text()
    assert "One &amp; two are equal." in html
    assert "What &lt;b&gt;is&lt;/b&gt; done" in html
    assert "<svg" in html
    assert "http" not in html.replace("http://www.w3.org", "")  # nothing is loaded from elsewhere


def test_one_that_fails_gets_a_row_and_the_next_one_runs(known: Any, tmp_path: Path) -> None:
    done = invoke(tmp_path, "broken,fine", "--json")
    assert done.exit_code == 1
    entries = {each["experiment"]: each for each in json.loads(done.stdout)["experiments"]}
    assert entries["broken"]["status"] == "failed"
    assert entries["broken"]["reason"] == "exit code 1: ZeroDivisionError: nothing to divide by"
    assert "on the way" in entries["broken"]["output"]
    assert entries["broken"]["verdict"] is None
    assert entries["fine"]["verdict"] == "does not hold here"
    assert entries["fine"]["sentence"].endswith("8 rows.")
    assert entries["fine"]["conditions"].endswith("full sizes: repeats 4")
    html = (folder_of(tmp_path) / "lab.html").read_text()
    assert "nothing to divide by" in html
    assert "twice as fast" in html


def test_one_that_hangs_is_ended_after_its_limit(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.LIMIT_S, "quick", 1.5)
    notes: list[str] = []
    begun = time.monotonic()
    found = run.run_experiment(known["hangs"], Path(sys.executable), True, notes.append)
    assert time.monotonic() - begun < 15
    assert (found.status, found.reason) == ("failed", "took longer than the limit of 1.5 s")
    assert notes == ["2 repeats", "now"]


def test_nothing_of_an_experiment_is_left(known: Any) -> None:
    found = run.run_experiment(known["orphans"], Path(sys.executable), True, lambda note: None)
    assert found.status == "ok"
    with pytest.raises(ProcessLookupError):
        os.kill(int(found.rows[0]["value"]), 0)


def test_ctrl_c_keeps_what_is_finished(known: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = run.run_experiment

    def interrupted(experiment: catalog.Experiment, *rest: Any) -> run.Found:
        if experiment.name == "hangs":
            raise KeyboardInterrupt
        return measured(experiment, *rest)

    monkeypatch.setattr(cli, "run_experiment", interrupted)
    done = invoke(tmp_path, "fine,hangs,broken", "--quick")
    assert done.exit_code == 130
    assert "1 finished experiments are kept" in done.output
    assert [each["experiment"] for each in store.read(folder_of(tmp_path), "verdicts")] == ["fine"]
    assert "two is twice as fast" in (folder_of(tmp_path) / "lab.html").read_text()


def test_ctrl_c_before_anything_is_finished_leaves_nothing(
    known: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> run.Found:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_experiment", interrupted)
    done = invoke(tmp_path, "fine", "--quick")
    assert done.exit_code == 130
    assert "stopped before the first experiment" in done.output
    assert list((tmp_path / "results").iterdir()) == []


def test_what_was_not_measured_says_why(known: Any, tmp_path: Path) -> None:
    done = invoke(tmp_path, "unseen", "--quick")
    assert done.exit_code == 0, done.output
    folder = folder_of(tmp_path)
    assert "no &lt;sensor&gt; here" in (folder / "lab.html").read_text()
    assert not (folder / "charts").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [("fien", "did you mean 'fine'?"), ("fine,brocken", "did you mean 'broken'?"), ("", "known: broken, fine")],
)
def test_unknown_names_tell_the_nearest(known: Any, name: str, says: str) -> None:
    with pytest.raises(UserError, match="unknown experiment") as told:
        find_experiments(name, known)
    assert says in str(told.value)


def test_names_with_either_dash_and_all(known: Any) -> None:
    shipped = catalog.experiments()
    assert [each.name for each in find_experiments("buffer_lock, sync", shipped)] == ["buffer-lock", "sync"]
    assert find_experiments("all", shipped) == list(shipped.values())


def test_results_that_cannot_be_written(known: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--results .*file: cannot be written"):
        store.begin(tmp_path / "file", quick=True)


def test_a_run_without_its_environment_leaves_nothing(
    known: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(say: Any) -> Path:
        raise UserError("the lab needs the environment 'reference': no interpreter")

    monkeypatch.setattr(cli, "interpreter", missing)
    assert isinstance(invoke(tmp_path, "fine").exception, UserError)
    assert list((tmp_path / "results").iterdir()) == []


def test_an_experiment_without_its_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text('"""Half"""\n\nCLAIM = "x"\n')
    with pytest.raises(ValueError, match=r"half\.py.*SIZES.*CHART"):
        catalog.experiments(tmp_path)


def test_tables_have_a_row_per_place_in_order() -> None:
    rows = [row("b", 0, "speed_ms", 20000.0, "ms", 10), row("a", 0, "speed_ms", 1.5, "ms", 2),
            row("b", 0, "speed_ms", 7.0, "ms", 2), row("b", 1, "speed_ms", 9.0, "ms", 2)]  # fmt: skip
    made = page.table(rows, "writers")
    assert made.heads == ["condition", "writers", "speed, ms"]
    assert made.rows == [["b", "2", "8.00 [7.00, 9.00]"], ["b", "10", "20,000"], ["a", "2", "1.50"]]
    many = [row("a", 0, "m", 1, "", at) for at in range(page.TABLE_ROWS + 5)]
    assert page.table(many, "x").omitted == 5


def test_the_list_shows_every_claim() -> None:
    done = CliRunner().invoke(lab_app, ["list", "--json"])
    listed = json.loads(done.stdout)
    assert [each["name"] for each in listed] == sorted(catalog.experiments())
    assert {"buffer-lock", "staleness", "sync-nccl"} <= {each["name"] for each in listed}
    assert all(each["claim"].endswith(".") for each in listed)
