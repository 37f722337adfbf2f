"""Charts and report: every file valid, untrusted text escaped, runs without any good trial still shown."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rlbench.catalog.library import Axes, Library
from rlbench.errors import UserError
from rlbench.present import charts
from rlbench.present.charts import KINDS, Chart, chart_list, draw_charts
from rlbench.present.report import write_report
from tests.unit.synthetic import build_run, default_rows, failed_row, trial_row


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def drawn(run: Path) -> list[Chart]:
    return chart_list(run)


@pytest.fixture(scope="module")
def html(run: Path, drawn: list[Chart]) -> str:
    return write_report(run, {"cleanrl": library()}, drawn).read_text()


@pytest.fixture
def throughput_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of these tests, and one chart is enough for some."""
    monkeypatch.setattr(charts, "KINDS", KINDS[:1])


def library() -> Library:
    return Library.model_validate({
        "name": "cleanrl", "title": "CleanRL", "package": "cleanrl", "import_name": "cleanrl",
        "licence": "MIT", "alive": True, "python": "3.10", "backend": "torch", "folder": Path("x"),
        "capabilities": {"algorithms": ["ppo"], "action_spaces": ["discrete"]},
        "axes": {name: f"its {name}" for name in Axes.model_fields},
        "variants": {"fixed": "leaves out terminal rows"},
        "not_settable": {"max_grad_norm": "clips by <value>"},
        "known_issues": [{"title": "Learns from terminal rows", "evidence": "138 of 4096"}],
    })  # fmt: skip


def test_every_chart_is_a_valid_png_and_svg(run: Path, drawn: list[Chart]) -> None:
    written = [path for chart in drawn for path in (chart.png, chart.svg) if path]
    assert [chart.name for chart in drawn if chart.skipped] == ["scaling"]
    assert len(written) == 2 * (len(KINDS) - 1)
    for path in written:
        if path.suffix == ".png":
            content = path.read_bytes()
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
            assert content[-8:-4] == b"IEND"
            assert int.from_bytes(content[16:20], "big") >= 900
        else:
            assert ET.parse(path).getroot().tag.endswith("svg")
    assert sorted(written) == sorted((run / "charts").iterdir())


def test_captions_carry_scenario_machine_seeds_and_marks(run: Path, drawn: list[Chart]) -> None:
    said = " ".join(next(chart.caption for chart in drawn if chart.name == "throughput"))
    for part in ("PPO on CartPole-v1", "Example CPU 9000, 2 of 8 cores, 16 GB", "1 to 2 seeds",
                 "cleanrl: ≠ audit differs: learning_rate", "tianshou: ✗ does not learn",
                 "Not shown: rllib (unavailable)"):  # fmt: skip
        assert part in said
    svg = re.sub(r"\s+", " ", (run / "charts" / "lag-histogram.svg").read_text())
    assert "tianshou ✗" in svg
    assert "does not learn" in svg


def test_charts_without_data_say_why(tmp_path: Path) -> None:
    run = build_run(tmp_path, "bare", [trial_row("sb3", 0)])
    for table in ("windows", "lags", "updates", "episodes", "latencies", "timeline"):
        for path in (run / table).iterdir():
            path.unlink()
    found = chart_list(run)
    skipped = {chart.name: chart.skipped for chart in found if chart.skipped}
    assert skipped["lag-histogram"] == "no trial measured its lag"
    assert skipped["learning-steps"] == "no trial finished 5 training episodes"
    assert skipped["timeline"] == "no trial recorded what its processes do"
    assert skipped["scaling"] == "no library ran with worker processes"
    assert {"throughput", "time-breakdown"}.isdisjoint(skipped)
    assert "not drawn, no trial measured its lag" in write_report(run, charts=found).read_text()


@pytest.mark.usefixtures("throughput_only")
def test_several_scenarios_have_charts_of_their_own(tmp_path: Path) -> None:
    rows = [trial_row("sb3", 0), trial_row("sb3", 0, scenario="other", trial_id="other-sb3-s0")]
    run = build_run(tmp_path, rows=rows)
    names = {path.stem for path in draw_charts(run)}
    assert names == {"throughput-quickstart", "throughput-other"}


def test_a_run_without_any_ok_trial_still_has_a_report(tmp_path: Path) -> None:
    rows = [
        failed_row("sb3", 0, "failed", "it $broke$ <here>"),
        failed_row("rllib", 0, "unavailable", "no Python"),
    ]
    run = build_run(tmp_path, rows=rows)
    assert draw_charts(run) == []
    html = write_report(run).read_text()
    assert "no trial of this scenario was ok" in html
    assert "it $broke$ &lt;here&gt;" in html


@pytest.mark.usefixtures("throughput_only")
def test_a_reason_with_dollars_does_not_break_a_caption(tmp_path: Path) -> None:
    rows = [trial_row("sb3", 0), failed_row("sb3", 1, "failed", r"$\frac$ \x1b & <b>" + "\x1b[1m")]
    assert len(draw_charts(build_run(tmp_path, rows=rows))) == 2


def test_an_empty_run_still_has_a_report(tmp_path: Path) -> None:
    html = write_report(build_run(tmp_path, rows=[])).read_text()
    assert "No trials are stored" in html


def test_output_of_a_guest_is_escaped(html: str) -> None:
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(&#39;tail&#39;)&lt;/script&gt;" in html
    assert html.count("<script>") == 1
    assert "clips by &lt;value&gt;" in html


def test_nothing_is_loaded_from_elsewhere(html: str) -> None:
    assert not re.search(r'(?:src|href)="(?!#)|url\((?!#)|@import', html)


def test_the_report_says_everything(html: str) -> None:
    for part in (
        "run-1", "2025-01-02 03:04 UTC", "Example CPU 9000", "sb3 1.2.3",
        "Fastest of those that learned in every seed with the settings as asked: sb3",
        "≠ audit differs: learning_rate", "✗ does not learn", '<tr class="differs">', "0.0003",
        "the library clips by value", "no GPU in this machine (2 trials)", "no Python 3.9 here",
        "Learns from terminal rows", "its weight_sync", "cleanrl:fixed", "rlbench schema",
        "rlbench run quickstart --library cleanrl --library rllib", "&#34;batch_size&#34;: 64",
        "prefers-color-scheme: dark",
    ):  # fmt: skip
        assert part in html, part
    assert html.count("<svg ") == len(KINDS) - 1


def test_the_command_repeats_what_run_json_says(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=default_rows()[:1])
    info = {
        "run_id": "r",
        "scenarios": [{"name": "quickstart"}],
        "libraries": ["sb3", "acme"],
        "seeds": [0, 1],
    }
    (run / "run.json").write_text(json.dumps(info | {"adapters": ["my adapters"]}))
    said = "rlbench run quickstart --library sb3 --library acme --seeds 2 --adapters &#39;my adapters&#39;"
    assert said in write_report(run, charts=[]).read_text()


def test_the_headline_names_those_that_cannot_be_told_apart(tmp_path: Path) -> None:
    rows = [trial_row("sb3", seed, env_steps_per_s=1000.0) for seed in (0, 1)]
    rows += [trial_row("cleanrl", seed, env_steps_per_s=900.0 + 180 * seed) for seed in (0, 1)]
    rows += [trial_row("acme", seed, env_steps_per_s=500.0, learned=True) for seed in (0, 1)]
    html = write_report(build_run(tmp_path, rows=rows), charts=[]).read_text()
    assert "sb3, 1\u202f000\u202fsteps/s; no difference that can be called to cleanrl." in html


def test_the_report_says_what_holds_each_back(tmp_path: Path) -> None:
    rows = [trial_row("sb3", seed, stall_share=(0.6, 0.7, 0.2)[seed]) for seed in (0, 1, 2)]
    rows += [trial_row("cleanrl", 0), failed_row("rllib", 0, "failed", "it <broke>")]
    html = write_report(build_run(tmp_path, rows=rows), charts=[]).read_text()
    part = re.sub(r"<.*?>", " ", html[html.index('id="diagnosis"') : html.index('id="charts"')])
    said = " ".join(part.split())
    assert "sb3 learner-bound in 2 of 3 seeds seed 0: environments stand still 60 % of the time" in said
    assert "cleanrl nothing stands out" in said
    assert "rllib ! did not run the trial is &#39;failed&#39;: it &lt;broke&gt;" in said


def test_a_broken_run_json_is_one_clear_sentence(tmp_path: Path) -> None:
    run = build_run(tmp_path, rows=[])
    (run / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json: cannot be read"):
        write_report(run)
