"""The user's pip settings reach uv with the same meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.provision.index import (
    PipSettings,
    masked,
    parsed_configuration,
    pip_settings,
    uv_flags,
    uv_variables,
)


def test_settings_become_flags_and_variables(tmp_path: Path) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("six<2\n")
    environ = {
        "PIP_INDEX_URL": "https://one.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://two.example/simple https://three.example/simple",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONSTRAINT": str(constraints),
    }
    settings = pip_settings(environ, {})
    assert uv_flags(settings) == ["--find-links", str(tmp_path), "--constraints", str(constraints)]
    assert uv_variables(settings, {}) == {
        "UV_DEFAULT_INDEX": "https://one.example/simple",
        "UV_INDEX": "https://two.example/simple https://three.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_environment_wins_over_files_and_install_over_global() -> None:
    configured = {
        "global.index-url": "https://global.example/simple",
        "install.index-url": "https://install.example/simple",
        "global.extra-index-url": "https://more.example/simple",
    }
    environ = {"PIP_EXTRA_INDEX_URL": "https://mine.example/simple"}
    settings = pip_settings(environ, configured)
    assert settings.index_url == "https://install.example/simple"
    assert settings.extra_index_url == ("https://mine.example/simple",)


def test_missing_local_places_are_dropped(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    environ = {
        "PIP_EXTRA_INDEX_URL": f"{there.as_uri()} {(tmp_path / 'gone').as_uri()}",
        "PIP_FIND_LINKS": f"{tmp_path / 'gone'}\n{there}",
    }
    settings = pip_settings(environ, {})
    assert settings.extra_index_url == (there.as_uri(),)
    assert settings.find_links == (str(there),)


def test_relative_places_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    assert pip_settings({"PIP_FIND_LINKS": "wheels"}, {}).find_links == (str(tmp_path / "wheels"),)


def test_settings_for_uv_itself_are_left_alone() -> None:
    settings = PipSettings(index_url="https://pip.example/simple", extra_index_url=("https://x.example",))
    environ = {"UV_INDEX_URL": "https://uv.example/simple", "UV_INDEX_STRATEGY": "first-index"}
    assert uv_variables(settings, environ) == {"UV_INDEX": "https://x.example"}


def test_nothing_set_gives_nothing() -> None:
    settings = pip_settings({}, {})
    assert settings == PipSettings()
    assert uv_flags(settings) == []
    assert uv_variables(settings, {}) == {}


def test_listing_of_pip_is_read() -> None:
    listing = (
        ":env:.find-links='/not/this'\n"
        "global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n"
        "install.no-index='true'\n"
    )
    configured = parsed_configuration(listing)
    assert configured == {
        "global.extra-index-url": "\nhttps://a.example\nhttps://b.example",
        "install.no-index": "true",
    }
    settings = pip_settings({}, configured)
    assert settings.extra_index_url == ("https://a.example", "https://b.example")
    assert settings.no_index
    assert "--no-index" in uv_flags(settings)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:secret@host.example/simple", "https://****@host.example/simple"),
        ("https://token@host.example/simple", "https://****@host.example/simple"),
        ("https://host.example/simple", "https://host.example/simple"),
    ],
)
def test_credentials_are_masked(address: str, shown: str) -> None:
    assert masked(address) == shown
