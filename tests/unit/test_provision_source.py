"""Libraries whose source no package index has, and packages that only pip installs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.catalog.library import Install, Library, Source, with_sources
from rlbench.errors import Unavailable, UserError
from rlbench.provision import cache
from rlbench.provision.check import faults
from rlbench.provision.pins import without
from rlbench.provision.source import install_source, source_folder, source_version, tree_hash
from rlbench.provision.uv import UvFailed, run_tool
from tests.unit.provision_samples import sample_environment, sample_library

FILES = {"__init__.py": "raise ImportError", "part/__init__.py": "", "part/code.py": "ANSWER = 42\n"}


def write_package(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def git(*arguments: str, cwd: Path) -> str:
    identity = ["-c", "user.name=me", "-c", "user.email=me@host.example"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository whose last commit is not the one that is wanted."""
    folder = tmp_path / "repository"
    write_package(folder / "sample_source")
    git("init", "--quiet", cwd=folder)
    git("add", ".", cwd=folder)
    git("commit", "--quiet", "-m", "wanted", cwd=folder)
    return folder


@pytest.fixture
def library(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("RLBENCH_CACHE", str(tmp_path / "cache"))
    source = Source(
        git=repository.as_uri(),
        commit=git("rev-parse", "HEAD", cwd=repository),
        folder="sample_source",
        without=["__init__.py"],
        sha256=tree_hash(repository / "sample_source"),
    )
    (repository / "sample_source" / "later.py").write_text("")
    git("add", ".", cwd=repository)
    git("commit", "--quiet", "-m", "later", cwd=repository)
    return sample_library(tmp_path / "adapter", install=Install(source=source))


def made(folder: Path) -> Path:
    """An environment's folder as far as it matters here."""
    (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return folder


def installed(environment: Path) -> list[str]:
    root = environment / "source"
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))


WANTED = ["sample_source/part/__init__.py", "sample_source/part/code.py"]


def test_source_is_cloned_at_its_commit(library: Library, tmp_path: Path) -> None:
    environment = made(tmp_path / "environment")
    install_source(library, environment, run_tool)
    assert installed(environment) == WANTED


def test_source_is_importable_also_after_the_environment_is_renamed(library: Library, tmp_path: Path) -> None:
    install_source(library, made(tmp_path / "partial"), run_tool)
    (tmp_path / "partial").rename(tmp_path / "final")
    packages = tmp_path / "final" / "lib" / "python3.11" / "site-packages"
    program = f"import site; site.addsitedir({str(packages)!r}); import sample_source.part.code as c; print(c.ANSWER)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"


@pytest.mark.parametrize("way", ["repository", "plain folder", "variable"])
def test_source_is_taken_from_a_copy(
    library: Library, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    copy = tmp_path / "copy"
    write_package(copy / "sample_source")
    if way == "variable":
        monkeypatch.setenv("RLBENCH_SOURCE_SAMPLE", str(copy))
    else:
        place = repository if way == "repository" else copy
        library = with_sources({"sample": library}, [f"sample={place}"])["sample"]
    environment = made(tmp_path / "environment")
    install_source(library, environment, run_tool)
    assert installed(environment) == WANTED


def test_another_version_of_the_source_is_refused(library: Library, tmp_path: Path) -> None:
    write_package(tmp_path / "copy" / "sample_source")
    (tmp_path / "copy" / "sample_source" / "part" / "code.py").write_text("ANSWER = 43\n")
    given = library.model_copy(update={"source_copy": tmp_path / "copy"})
    with pytest.raises(Unavailable, match=r"differs from what .* has in its folder sample_source at commit"):
        install_source(given, made(tmp_path / "environment"), run_tool)


def test_a_copy_without_the_source_is_refused(library: Library, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    given = library.model_copy(update={"source_copy": tmp_path / "empty"})
    with pytest.raises(Unavailable, match="has neither a folder sample_source nor commit"):
        install_source(given, made(tmp_path / "environment"), run_tool)


@pytest.mark.parametrize(
    "error", [UvFailed("fatal: could not resolve host"), FileNotFoundError(2, "No such file", "git")]
)
def test_without_network_or_git_the_way_out_is_told(library: Library, tmp_path: Path, error: Exception) -> None:
    def fail(command: list[str]) -> str:
        raise error

    with pytest.raises(Unavailable, match=r"--source sample=PATH` or in RLBENCH_SOURCE_SAMPLE") as raised:
        install_source(library, made(tmp_path / "environment"), fail)
    assert "\n" not in str(raised.value)


def test_bytecode_does_not_change_the_hash(tmp_path: Path) -> None:
    folder = write_package(tmp_path / "package")
    before = tree_hash(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "code.pyc").write_bytes(b"x")
    assert tree_hash(folder) == before
    (folder / "part" / "code.py").rename(folder / "part" / "other.py")
    assert tree_hash(folder) != before


def test_the_source_is_part_of_the_key_and_its_copy_is_not(library: Library, tmp_path: Path) -> None:
    key = cache.environment_key(library, "3.11.7", "cpu")
    moved = library.model_copy(update={"source_copy": tmp_path})
    assert cache.environment_key(moved, "3.11.7", "cpu") == key
    plain = library.model_copy(update={"install": Install()})
    assert cache.environment_key(plain, "3.11.7", "cpu") != key


def test_lost_source_is_noticed(library: Library) -> None:
    source = library.install.source
    assert source is not None
    folder = sample_environment(library, {"six": "1.16.0"})
    assert faults(library, folder) == ["its source folder is gone"]
    source_folder(folder, source).mkdir(parents=True)
    assert faults(library, folder) == []
    assert source_version(library) == {"six": source.commit[:7]}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("sample", "must be NAME=PATH"),
        ("sampel=/", "unknown library 'sampel'; did you mean 'sample'"),
        ("sample=/no/such/folder", "there is no folder /no/such/folder"),
        ("plain=/", "Sample comes from the package index"),
    ],
)
def test_wrong_sources_are_one_sentence(library: Library, tmp_path: Path, given: str, sentence: str) -> None:
    known = {"sample": library, "plain": sample_library(tmp_path / "plain")}
    with pytest.raises(UserError, match=sentence):
        with_sources(known, [given])


def test_requirements_without_some_of_them(tmp_path: Path) -> None:
    path = tmp_path / "requirements.lock"
    path.write_text("# note\nGa_rage==1.0\nsix==1.16.0 ; python_version > '3'\ngarage-tools==2.0\n")
    assert without(path, ["ga-rage"]) == "six==1.16.0 ; python_version > '3'\ngarage-tools==2.0\n"
