"""Draws every chart of a run as PNG and SVG; a chart without data is left out and says why."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from rlbench.errors import UserError
from rlbench.present import chart_learning, chart_processes, chart_scaling, chart_speed, chart_staleness
from rlbench.present.chart_data import NoData, Scene, caption, scenes
from rlbench.present.chart_parts import add_caption
from rlbench.present.style import RC

PNG_DPI = 160


class Chart(NamedTuple):
    """One chart of one scenario; ``png`` and ``svg`` are None when it was ``skipped``, for that reason."""

    name: str
    scenario: str
    title: str
    reading: str
    caption: list[str]
    png: Path | None
    svg: Path | None
    skipped: str | None


class _Kind(NamedTuple):
    name: str
    title: str
    draw: Callable[[Scene], Figure]
    reading: str


KINDS = [
    _Kind("throughput", "Throughput", chart_speed.throughput,
          "Longer is faster. Points are seeds, the dark line is the 95 % interval of the mean. The right "
          "side compares it with what the bare environment reaches in one process."),
    _Kind("throughput-time", "Throughput over time", chart_speed.throughput_over_time,
          "A flat line is steady. The band runs from the slowest to the fastest seed."),
    _Kind("learning-steps", "Learning curve over environment steps", chart_learning.learning_by_steps,
          "Interquartile mean over seeds with its 95 % bootstrap interval. Libraries with the same algorithm "
          "and settings should lie close together; one that stays flat is fast at nothing."),
    _Kind("learning-seconds", "Learning curve over time", chart_learning.learning_by_seconds,
          "The same returns against the clock: what a user waits for. Start-up is not in it."),
    _Kind("lag-histogram", "Lag of the samples learned from", chart_staleness.lag_histogram,
          "How many policy versions lie between acting and learning. Epochs and minibatches alone spread it "
          "from 0 to epochs x minibatches - 1; what lies beyond is asynchrony."),
    _Kind("lag-time", "Lag over time", chart_staleness.lag_over_time,
          "Each rise is the epochs over one rollout. Peaks that climb mean that the learner outruns its "
          "actors or that a queue fills up."),
    _Kind("lag-split", "What the lag is made of", chart_processes.lag_split,
          "Bar: mean. Sync lag: newer weights existed but had not reached the actor; more frequent synchronisation "
          "cures it. Queue lag: updates made while the sample waited, for its epochs or in a queue. A library that "
          "acts with the learner's own weights has queue lag alone."),
    _Kind("sample-age", "Age of samples at first use", chart_staleness.sample_age,
          "Point: median. Thick: middle half. Thin: 5th to 95th percentile. Further left is fresher."),
    _Kind("action-latency", "Time from observation to action", chart_speed.action_latency,
          "Further left is faster; a long way from p50 to p99 means hiccups. Gaps with an update in them are "
          "left out."),
    _Kind("time-breakdown", "Where the time goes", chart_speed.time_breakdown,
          "Shares of an environment process's wall time. Acting and learning are the library's; other is "
          "resets and waiting for the other environments of a vector."),
    _Kind("timeline", "Who waits for whom", chart_processes.timeline,
          "Time runs to the right; grey is waiting or the library's own work. A colour is as high as its share of "
          "that moment (a tenth at least). Colours above each other in two rows: both work at once. One row grey "
          "while another is coloured: it waits. First seed only."),
    _Kind("overlap", "Waiting and overlap", chart_processes.overlap,
          "Overlap is what asynchrony gains, 0 in a synchronous library. Idle actors wait for actions or weights, an "
          "idle learner for samples; both high without overlap means that they take turns. Thick: range of seeds."),
    _Kind("scaling", "Scaling over worker processes", chart_scaling.scaling,
          "On the dotted line, twice the workers bring twice the steps. Falling away before the cores are used up "
          "means that something else is the bottleneck: the learner, the policy, or moving data. Thick: range of "
          "seeds."),
    _Kind("memory", "Memory over time", chart_speed.memory,
          "Proportional set size of all processes together. A steady climb is a leak or a filling buffer."),
]  # fmt: skip


def draw_charts(run: Path) -> list[Path]:
    """Draw every chart of the run into ``run/charts`` and return the files written (PNG and SVG of each).

    Charts without data are left out; `chart_list` says why.
    """
    return [path for chart in chart_list(run) for path in (chart.png, chart.svg) if path is not None]


def chart_list(run: Path) -> list[Chart]:
    """Draw every chart of the run and return what became of each, the skipped ones with their reason.

    Files are put in place by atomic renames. Raises UserError when the folder cannot be written.
    """
    found = []
    all_scenes = scenes(run)
    for scene in all_scenes:
        suffix = f"-{scene.scenario}" if len(all_scenes) > 1 else ""
        found += [_chart(scene, kind, f"{kind.name}{suffix}") for kind in KINDS]
    return found


def _chart(scene: Scene, kind: _Kind, name: str) -> Chart:
    lines = caption(scene)
    paths: list[Path | None] = [None, None]
    skipped = None
    # The salt keeps ids of different charts apart when several SVGs are put into one page.
    settings: dict[Any, Any] = {**RC, "svg.hashsalt": name}
    with mpl.rc_context(settings):
        try:
            if not scene.series:
                raise NoData("no trial of this scenario was ok")
            figure = kind.draw(scene)
            add_caption(figure, kind.title, lines)
            paths = [save_figure(figure, scene.run / "charts" / f"{name}.{form}") for form in ("png", "svg")]
        except NoData as reason:
            skipped = str(reason)
    return Chart(name, scene.scenario, kind.title, kind.reading, lines, paths[0], paths[1], skipped)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG or SVG, by the path's suffix, atomically, and return the path."""
    content = io.BytesIO()
    if path.suffix == ".png":
        FigureCanvasAgg(figure)
        figure.savefig(content, format="png", dpi=PNG_DPI)
    else:
        FigureCanvasSVG(figure)
        nothing = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        figure.savefig(content, format="svg", metadata=nothing)
    write_atomically(path, content.getvalue())
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old or the new one whole; raises UserError when it cannot."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        temporary.unlink(missing_ok=True)
