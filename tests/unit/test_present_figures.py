"""The list of shown figures: complete, and formatted as a reader expects."""

from __future__ import annotations

import pytest

from rlbench.errors import UserError
from rlbench.present.figures import (
    BY_NAME,
    COMPARED,
    FIGURES,
    MISSING,
    find_figures,
    format_value,
    with_unit,
)
from rlbench.present.report_data import MAIN
from rlbench.present.style import PALETTE, PLACES, looks
from rlbench.store import schema


def test_every_figure_of_the_schema_is_listed_once() -> None:
    assert sorted(figure.name for figure in FIGURES) == sorted(column.name for column in schema.FIGURES)


def test_shares_are_those_of_the_schema() -> None:
    shares = {column.name for column in schema.FIGURES if column.unit == "share"}
    assert {figure.name for figure in FIGURES if figure.style == "share"} == shares


def test_labels_tell_figures_apart() -> None:
    assert len({figure.label for figure in FIGURES}) == len(FIGURES)
    assert all(figure.reading.endswith(".") for figure in FIGURES)
    assert set(COMPARED) | set(MAIN) <= set(BY_NAME)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("action_latency_ms_p50", 0.0123456, "0.0123"),
        ("action_latency_ms_p50", 1.2345, "1.23"),
        ("action_latency_ms_p50", 123.456, "123"),
        ("env_steps_per_s", 12345.6, "12\u202f346"),
        ("env_steps", 20480, "20\u202f480"),
        ("return_last", -250.4, "-250"),
        ("lag_mean", 0.0, "0"),
        ("stall_share", 0.5, "50.0"),
        ("stall_share", 0.0123, "1.23"),
        ("stall_share", 0.0, "0"),
        ("provenance_genuine", 1.0, "100"),
        ("provenance_genuine", 0.99999, "99.999"),
        ("provenance_genuine", 0.9999999, "99.999"),
        ("lag_mean", None, MISSING),
        ("lag_mean", float("nan"), MISSING),
        ("lag_mean", float("inf"), MISSING),
    ],
)
def test_format(name: str, value: float | None, shown: str) -> None:
    assert format_value(BY_NAME[name], value) == shown


def test_unit() -> None:
    assert with_unit(BY_NAME["stall_share"], 0.25) == "25.0\u202f%"
    assert with_unit(BY_NAME["stall_share"], None) == MISSING


def test_find_figures() -> None:
    assert [figure.name for figure in find_figures(["lag_mean", "lag_mean"])] == ["lag_mean"]
    assert {figure.name for figure in find_figures(["time"])} == {
        "time_env",
        "time_act",
        "time_learn",
        "time_other",
    }
    with pytest.raises(UserError, match="did you mean 'lag_mean'"):
        find_figures(["lag_maen"])


def test_a_library_keeps_its_colour_whatever_else_is_in_the_run() -> None:
    alone, among = looks(["tianshou"]), looks(["acme", "sb3", "tianshou", "zzz"])
    assert alone[0] == among[2]
    assert alone[0].colour == PALETTE[2]


def test_series_of_one_library_differ_by_dash() -> None:
    many = looks(["sb3"] * 4)
    assert len({look.colour for look in many}) == 1
    assert len({str(look.dash) for look in many}) == 4


def test_a_variant_has_its_librarys_colour_and_a_dash_of_its_own() -> None:
    plain, fixed = looks(["garage", "garage:fixed"])
    assert plain.colour == fixed.colour
    assert plain.dash != fixed.dash


def test_all_known_libraries_have_colours_of_their_own() -> None:
    assert len({look.colour for look in looks([*PLACES, "another"])}) == len(PLACES) + 1
