"""Charts of processes at work together: what is drawn is what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from rlbench.present import chart_processes, chart_scaling
from rlbench.present.chart_data import NoData, Scene, scenes
from tests.unit.synthetic import build_run, topology_rows, trial_row


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scenes(build_run(tmp_path_factory.mktemp("results"), rows=topology_rows()))[0]


def spans(*rows: tuple[int, str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["process", "kind", "start_s", "end_s"])


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in [*axes.texts, *axes.get_yticklabels(), axes.title]}


def test_shares_of_each_moment_are_exact() -> None:
    shares = chart_processes.busy_shares(spans((0, "env", 0.5, 1.25), (0, "env", 2.0, 3.0)), np.arange(5.0))
    assert shares == pytest.approx([0.5, 0.25, 1, 0])
    assert chart_processes.busy_shares(spans(), np.arange(3.0)).tolist() == [0, 0]


def test_processes_are_named_by_what_they_do() -> None:
    rows = spans((0, "env", 0, 1), (1, "act", 0, 1), (2, "env", 0, 1), (3, "learn", 0, 1))
    assert [name for name, _ in chart_processes.name_processes(rows)] == ["learner", "policy", "worker 1", "worker 2"]
    alone = chart_processes.name_processes(spans((0, "env", 0, 1), (0, "act", 1, 2), (0, "learn", 2, 3)))
    assert [(name, len(part)) for name, part in alone] == [("one process", 3)]
    two = chart_processes.name_processes(spans((0, "learn", 0, 1), (0, "env", 1, 2), (1, "env", 1, 2)))
    assert [name for name, _ in two] == ["learner", "worker"]


def test_a_window_holds_two_rounds_and_at_most_what_there_is() -> None:
    rounds = [(0, kind, at + start, at + start + 0.1) for at in np.arange(0, 3, 0.4)
              for kind, start in (("env", 0.0), ("learn", 0.1), ("learn", 0.21))]  # fmt: skip
    assert chart_processes.window(spans(*rounds)) == pytest.approx(1.0)
    assert chart_processes.window(spans(*rounds[:3])) == pytest.approx(0.31)
    every_step = [(0, kind, at, at + 0.001) for at in np.arange(0, 1, 0.002) for kind in ("env", "learn")]
    assert chart_processes.window(spans(*every_step)) == pytest.approx(chart_processes.SHORTEST)


def test_the_timeline_has_a_panel_for_each_topology(scene: Scene) -> None:
    figure = chart_processes.timeline(scene._replace(series=[scene.series[7], scene.series[13]]))
    assert len(figure.axes) == 2
    assert {"sb3 · sync", "one process", "learner", "worker 4", "sb3 · async · 4 workers"} <= texts(figure)


def test_processes_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    row = trial_row("sb3", 0, mode="workers", workers=12)
    figure = chart_processes.timeline(scenes(build_run(tmp_path, rows=[row]))[0])
    assert "4 more processes are not shown" in texts(figure)


def test_the_lag_is_the_sum_of_its_parts(scene: Scene) -> None:
    assert {"10.5 = 2.5 + 8", "79.5 = 0 + 79.5"} <= texts(chart_processes.lag_split(scene))


def test_idle_shares_are_shown_in_per_cent(scene: Scene) -> None:
    assert {"0", "10", "20", "45", "60"} <= texts(chart_processes.overlap(scene))


def test_charts_without_data_say_why(tmp_path: Path) -> None:
    nothing: dict[str, Any] = dict.fromkeys(["sync_lag_mean", "overlap", "actor_idle", "learner_idle"])
    scene = scenes(build_run(tmp_path, rows=[trial_row("sb3", 0, **nothing)], detail=False))[0]
    with pytest.raises(NoData, match="parts of its lag"):
        chart_processes.lag_split(scene)
    with pytest.raises(NoData, match="idle"):
        chart_processes.overlap(scene)


def test_scaling_has_a_line_for_each_library_and_mode(scene: Scene) -> None:
    lines = {line.label: line for line in chart_scaling.scaling_lines(scene)[0]}
    assert list(lines) == ["sample_factory · workers", "sample_factory · async", "sb3 · workers", "sb3 · async"]
    line = lines["sb3 · workers"]
    assert list(line.rates) == [1, 2, 4]
    assert line.ideal(4) == pytest.approx(4 * line.mean(1))
    assert line.mean(4) / line.ideal(4) == pytest.approx(0.5)
    figure = chart_scaling.scaling(scene)
    assert "2 cores" in texts(figure)
    ceilings = [
        line for line in figure.axes[1].get_lines() if line.get_linestyle() == "--" and len(line.get_xdata()) == 2
    ]
    wanted = {line.ceiling for line in lines.values()}
    assert None not in wanted
    assert {line.get_ydata()[0] for line in ceilings} >= wanted


def test_scaling_needs_several_worker_counts(tmp_path: Path) -> None:
    scene = scenes(build_run(tmp_path, rows=[trial_row("sb3", 0, mode="workers", workers=2)], detail=False))[0]
    with pytest.raises(NoData, match="only one number of worker processes"):
        chart_scaling.scaling_lines(scene)


def test_a_library_that_ignores_the_number_of_workers_has_no_scaling(scene: Scene) -> None:
    """Asked for 1 and 2 workers, it stepped in 4 processes: its speeds are one topology's."""

    def table(name: str) -> pd.DataFrame:
        rows = scene.table(name)
        one = rows[rows["trial_id"] == "quickstart-sb3-workers4-s0"]
        fewer = [one.assign(trial_id=f"quickstart-sb3-workers{workers}-s0") for workers in (1, 2)]
        rest = rows[~rows["trial_id"].isin([part["trial_id"].iloc[0] for part in fewer])]
        return pd.concat([rest, *fewer])

    lines, notes = chart_scaling.scaling_lines(scene._replace(table=table))
    assert "sb3 · workers" not in [line.label for line in lines]
    assert notes == ["sb3 · workers steps in 4 processes although fewer were asked for"]
    alone = [series for series in scene.series if series.label in ("sb3 · 1 worker", "sb3 · 2 workers")]
    with pytest.raises(NoData, match="sb3 steps in 4 processes"):
        chart_scaling.scaling_lines(scene._replace(table=table, series=alone))
