"""What a user has to type next stands whole in every listing, on a terminal of 80 columns too."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rlbench.catalog.library import load_libraries
from rlbench.catalog.scenario import scenario_names
from rlbench.lab.catalog import experiments
from tests.conftest import Cli

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("libraries", load_libraries()),
        ("scenarios", scenario_names()),
        ("env list", load_libraries()),
        ("lab list", experiments()),
        ("doctor", load_libraries()),
    ],
)
def test_names_are_whole(cli: Cli, words: str, names: Iterable[str]) -> None:
    listing = cli(*words.split(), COLUMNS="80").stdout
    assert set(names) <= {line.strip("│ ").partition(" ")[0] for line in listing.splitlines()}
    assert "…" not in listing
