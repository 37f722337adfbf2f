"""Tables and their JSON: the numbers, the marks beside them, and what is said when nothing was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from rlbench.errors import UserError
from rlbench.present.compare import NO_CALL, compare_json, compare_table
from rlbench.present.figures import find_figures
from rlbench.present.machine_readable import run_json
from rlbench.present.table import figure_table, run_table
from rlbench.store.reader import read_table
from rlbench.store.schema import FIGURES
from tests.unit.synthetic import NO_GPU, build_run, default_rows, failed_row, topology_rows, trial_row


def text(table: RenderableType, width: int = 120) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def line(shown: str, start: str) -> str:
    return next(each for each in shown.splitlines() if each.strip().startswith(start))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("results"))


def test_rows_show_mean_interval_and_marks(run: Path) -> None:
    shown = text(run_table(read_table(run, "trials"), read_table(run, "audit")))
    assert "3\u202f200 [3\u202f168, 3\u202f232]" in line(shown, "sb3 ")
    assert "79.5 (0..159)" in shown
    assert "✗ 0/2" in shown
    assert line(shown, "cleanrl ≠~")
    assert "≠ audit differs: learning_rate" in shown
    assert "~ drifted (1 of 2 seeds)" in shown
    assert "✗ does not learn" in shown
    assert "! unavailable: no Python 3.9 here" in shown
    assert "! failed: ModuleNotFoundError: no module 'x' (1 of 2 seeds)" in shown


def test_a_library_that_did_not_run_has_no_zero(run: Path) -> None:
    shown = line(text(run_table(read_table(run, "trials"))), "rllib")
    assert "–" in shown
    assert "0" not in shown


def test_names_are_never_cut_at_120_columns(tmp_path: Path) -> None:
    rows = [
        trial_row("sample_factory", 0, mode=mode, workers=workers, n_envs=n_envs, device=device)
        for mode, workers, n_envs, device in [
            ("sync", 0, 4, "cpu"),
            ("workers", 2, 128, "cpu"),
            ("async", 16, 8, "cuda"),
        ]
    ]
    rows.append(trial_row("sample_factory", 0, scenario="a_scenario_with_a_long_name", trial_id="long"))
    run = build_run(tmp_path, rows=rows)
    shown = text(run_table(read_table(run, "trials")))
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 120
    for part in ("scenario a_scenario_with_a_long_name", "async,", "128 envs", "cuda"):
        assert part in shown


def test_topologies_are_rows_of_one_table_in_order(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=topology_rows(), detail=False)
    shown = text(run_table(read_table(run, "trials")), width=80)
    rows = shown[shown.index("Asynchrony") :].splitlines()[5:]
    topologies = ["sync", *(f"{mode}{n} worker{'s' * (n > 1)}" for mode in ("", "async, ") for n in (1, 2, 4))]
    assert [row.strip() for row in rows[1:28:2]] == topologies * 2
    assert [row.split()[0] for row in rows[0:28:2]] == ["sample_factory"] * 7 + ["sb3"] * 7
    assert rows[8].split() == ["sample_factory", "60.0", "20.0", "10.0", "2.5", "8", "12.0"]
    assert shown.count("Speed") == shown.count("Freshness") == 1


def test_a_synchronous_run_has_no_table_of_asynchrony(run: Path) -> None:
    assert "Asynchrony" not in text(run_table(read_table(run, "trials")))


@pytest.mark.parametrize("width", [80, 100])
def test_names_and_numbers_are_whole_on_a_narrow_terminal(tmp_path: Path, width: int) -> None:
    rows = [*default_rows(), *topology_rows(), trial_row("garage:vecworker", 0, env_steps_per_s=123456.0)]
    rows = [row for row in rows if row["library"] != "rllib"]
    trials = read_table(build_run(tmp_path, rows=rows, detail=False), "trials")
    shown = text(run_table(trials), width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for start in ("cleanrl ≠~", "sample_factory !", "tianshou ✗", "garage:vecworker"):
        assert line(shown, start)
    assert "123\u202f456" in line(shown, "garage:vecworker")
    assert "79.5 (0..159)" in shown


def test_intervals_and_learning_come_back_where_there_is_room(run: Path) -> None:
    trials = read_table(run, "trials")
    narrow, wide = text(run_table(trials), 80), text(run_table(trials), 120)
    for only_wide in ("[3\u202f168, 3\u202f232]", "Freshness and learning"):
        assert only_wide in wide
        assert only_wide not in narrow
    assert "✗ 0/2" in narrow


def test_topology_is_not_shown_when_it_does_not_vary(run: Path) -> None:
    shown = text(run_table(read_table(run, "trials")))
    assert "workers" not in shown
    assert "scenario quickstart" not in shown


def test_json_has_every_figure_with_interval_and_reasons(run: Path) -> None:
    data = run_json(read_table(run, "trials"), read_table(run, "audit"))
    json.dumps(data, allow_nan=False)
    groups = {group["library"]: group for group in data["groups"]}
    assert set(groups["sb3"]["figures"]) == {column.name for column in FIGURES}
    speed = groups["sb3"]["figures"]["env_steps_per_s"]
    assert (speed["mean"], speed["low"], speed["high"], speed["n"]) == (3200.0, 3168.0, 3232.0, 2)
    assert groups["sb3"]["figures"]["gpu_memory_mb"]["mean"] is None
    assert groups["sb3"]["figures"]["gpu_memory_mb"]["reasons"] == [{"reason": NO_GPU, "trials": 2}]
    assert groups["rllib"]["figures"]["lag_mean"]["reasons"] == [
        {"reason": "unavailable: no Python 3.9 here", "trials": 2}
    ]
    assert groups["sample_factory"]["statuses"] == {"ok": 1, "failed": 1}
    assert groups["sample_factory"]["figures"]["lag_mean"]["low"] is None
    assert groups["tianshou"]["learned"] == {"judged": 2, "learned": 0}
    assert groups["cleanrl"]["audit_ok"] is False
    assert groups["rllib"]["audit_ok"] is None


def test_nan_becomes_null(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=[trial_row("sb3", 0, lag_mean=float("nan"))])
    data = run_json(read_table(run, "trials"))
    assert data["groups"][0]["figures"]["lag_mean"]["mean"] is None
    json.dumps(data, allow_nan=False)


def test_an_empty_run_says_so(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=[])
    assert "No trials" in text(run_table(read_table(run, "trials")))
    assert run_json(read_table(run, "trials"))["groups"] == []


def test_chosen_figures_say_why_they_are_missing(run: Path) -> None:
    shown = text(figure_table(read_table(run, "trials"), find_figures(["gpu_memory_mb"])))
    assert f"{NO_GPU} (2 trials)" in shown
    assert "✗ does not learn" in shown


def test_terminal_escapes_of_a_guest_are_not_printed(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=[failed_row("sb3", 0, "failed", "\x1b[31mred [bold]\x07 $x$")])
    shown = text(run_table(read_table(run, "trials")))
    assert "failed: red [bold] $x$" in shown.replace("  ", " ")


def test_compare_gives_paired_ratios(run: Path) -> None:
    data = compare_json(read_table(run, "trials"), "sb3", read_table(run, "audit"))
    json.dumps(data, allow_nan=False)
    found = {each["library"]: each for each in data["comparisons"]}
    assert set(found) == {"cleanrl", "tianshou", "sample_factory", "rllib"}
    speed = found["cleanrl"]["figures"]["env_steps_per_s"]
    assert [speed["ratio"], speed["low"], speed["high"]] == pytest.approx([2500 / 3200] * 3)
    assert (speed["paired"], speed["n"]) == (True, 2)
    assert speed["verdict"] == "lower (worse); only 2 seeds, tentative"
    assert found["cleanrl"]["figures"]["peak_memory_mb"]["verdict"] == NO_CALL
    assert found["cleanrl"]["markers"][0] == "audit differs: learning_rate"
    assert found["sample_factory"]["figures"]["env_steps_per_s"]["verdict"] == "one seed only: no call"
    assert found["rllib"]["figures"]["lag_mean"]["reason"] == "rllib: unavailable: no Python 3.9 here"


def test_compare_table_marks_what_it_compares(run: Path) -> None:
    shown = text(compare_table(read_table(run, "trials"), "tianshou", read_table(run, "audit")))
    assert "tianshou: does not learn" in shown
    assert "cleanrl: audit differs: learning_rate" in shown
    assert "tianshou !" in shown


def test_an_interval_around_one_is_no_difference(tmp_path: Path) -> None:
    rows = [trial_row("sb3", seed, env_steps_per_s=1000.0) for seed in (0, 1)]
    rows += [trial_row("cleanrl", seed, env_steps_per_s=900.0 + 200 * seed) for seed in (0, 1)]
    run = build_run(tmp_path, rows=rows)
    data = compare_json(read_table(run, "trials"), "sb3")
    assert data["comparisons"][0]["figures"]["env_steps_per_s"]["verdict"] == NO_CALL


def test_a_ratio_of_zero_is_null_with_a_reason(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=[trial_row("sb3", 0), trial_row("cleanrl", 0, lag_mean=0.0)])
    found = compare_json(read_table(run, "trials"), "sb3")["comparisons"][0]["figures"]["lag_mean"]
    assert (found["ratio"], found["reason"]) == (None, "no ratio: a value is not above 0")


def test_runs_are_kept_apart_and_a_foreign_baseline_is_said(tmp_path: Path) -> None:
    first = build_run(tmp_path, "run-1", [trial_row("sb3", 0)])
    second = build_run(tmp_path, "run-2", [trial_row("cleanrl", 0, "run-2")])
    data = compare_json(read_table([first, second], "trials"), "sb3")
    assert [each["run_id"] for each in data["comparisons"]] == ["run-2"]
    assert "baseline is from run run-1" in data["comparisons"][0]["note"]


def test_an_unknown_baseline_names_the_nearest(run: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cleanrl'"):
        compare_json(read_table(run, "trials"), "cleanlr")


def test_our_own_pipeline_is_marked_and_below_the_libraries(tmp_path: Path) -> None:
    rows = [trial_row(library, 0, order=order) for order, library in enumerate(["reference", "sb3", "reference:x"])]
    trials = read_table(build_run(tmp_path, rows=rows), "trials")
    shown = text(run_table(trials))
    names = [each["library"] for each in run_json(trials)["groups"]]
    assert names == ["sb3", "reference", "reference:x"]
    assert line(shown, "reference ◆")
    assert "◆ rlbench's own pipeline, not a library under test" in shown
    assert "◆" not in line(shown, "sb3")
    assert "reference: rlbench's own pipeline" in text(compare_table(trials, "sb3"))
