"""Keys, verification, left-overs and failures of environments, without building any."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rlbench.catalog.library import Install, Library
from rlbench.errors import Unavailable, UserError
from rlbench.provision import build, cache, uv
from rlbench.provision.check import check, faults
from rlbench.provision.index import PipSettings
from rlbench.provision.interpreter import Interpreter
from rlbench.provision.lock import locked_text
from rlbench.provision.pins import Pin, public_version, read_pins, torch_requirement
from tests.unit.provision_samples import PYTHON_FULL, sample_environment, sample_library

PACKAGES = {"six": "1.16.0"}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("RLBENCH_CACHE", str(tmp_path / "cache"))
    return sample_library(tmp_path / "sample")


def test_key_changes_with_all_that_the_build_depends_on(library: Library, tmp_path: Path) -> None:
    keys = {
        cache.environment_key(library, "3.11.7", "cpu"),
        cache.environment_key(library, "3.11.8", "cpu"),
        cache.environment_key(library, "3.11.7", "cuda"),
        cache.environment_key(sample_library(tmp_path / "options", install=Install(no_deps=True)), "3.11.7", "cpu"),
        cache.environment_key(sample_library(tmp_path / "lock", lock="six==1.17.0\n"), "3.11.7", "cpu"),
    }
    assert len(keys) == 5
    assert cache.environment_key(library, "3.11.7", "cpu") in keys
    assert all(len(key) == 12 for key in keys)


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("six==1.16.0\n", [Pin("six", "1.16.0")]),
        ("Foo_Bar.baz==1.0\n", [Pin("foo-bar-baz", "1.0")]),
        ("# note\nsix==1.16.0  # why\n\n", [Pin("six", "1.16.0")]),
        ("torch==2.13.0+cpu\n", [Pin("torch", "2.13.0")]),
        ("six==1.16.0 \\\n    --hash=sha256:00\n", [Pin("six", "1.16.0")]),
        ("six==1.16.0 ; python_version < '3'\n", []),
        ("six==1.16.0 ; python_version >= '3.9'\n", [Pin("six", "1.16.0")]),
        ("six @ https://host.example/six.whl\n", [Pin("six", None)]),
    ],
)
def test_pins_of_a_lock(text: str, pins: list[Pin], tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(text)
    assert read_pins(lock, "3.11.7") == pins


@pytest.mark.parametrize("text", ["six>=1.16\n", "six\n", "six==1.*\n", "-r other.txt\n", "what is this\n"])
def test_a_lock_that_pins_nothing_is_refused(text: str, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(text)
    with pytest.raises(UserError, match=r"requirements\.lock: '"):
        read_pins(lock, "3.11.7")


def test_versions_are_compared_without_their_local_part() -> None:
    assert public_version("2.13.0+cpu") == public_version("2.13.0") == "2.13.0"
    assert public_version("1.0.RC1") == "1.0rc1"
    assert torch_requirement([Pin("six", "1.16.0"), Pin("torch", "2.13.0")]) == "torch==2.13.0"


def test_cached_environment_is_taken(library: Library) -> None:
    folder = sample_environment(library, PACKAGES)
    found = build.environment(library)
    assert (found.folder, found.build_s, found.packages) == (folder, None, PACKAGES)
    assert found.python == folder / "bin" / "python"


@pytest.mark.parametrize(
    ("installed", "fault"),
    [
        ({}, "six==1.16.0 is missing"),
        ({"six": "1.17.0"}, "six is 1.17.0 but the lock has 1.16.0"),
    ],
)
def test_other_packages_than_the_lock_are_noticed(library: Library, installed: dict[str, str], fault: str) -> None:
    folder = sample_environment(library, installed)
    assert faults(library, folder) == [fault]
    assert check(library) == [fault]
    assert build.cached(library) is None


def test_lost_interpreter_and_marker_are_noticed(library: Library) -> None:
    folder = sample_environment(library, PACKAGES)
    (folder / "bin" / "python").unlink()
    assert faults(library, folder) == ["its Python is gone"]
    (folder / cache.MARKER).write_text("{")
    assert faults(library, folder) == [f"{cache.MARKER} is missing or unreadable"]


def test_changed_lock_makes_the_environment_an_old_one(library: Library) -> None:
    folder = sample_environment(library, PACKAGES)
    library.lock.write_text("six==1.17.0\n")
    assert build.cached(library) is None
    assert "built from another requirements.lock" in faults(library, folder)
    assert cache.environment_folders(library.name) == [folder]
    assert check(library) == ["no environment for its present lock (run `rlbench env build sample`)"]


class FakeUv:
    """Stands in for uv: `venv` makes the folders, `pip install` puts a distribution there or fails."""

    def __init__(self, installed: str = "six-1.16.0", error: BaseException | None = None) -> None:
        self.installed, self.error = installed, error
        self.calls: list[list[str]] = []

    def __call__(self, arguments: list[str], **_: object) -> str:
        self.calls.append(arguments)
        if arguments[0] == "venv":
            folder = Path(arguments[-1])
            (folder / "bin").mkdir()
            (folder / "bin" / "python").symlink_to("/bin/sh")
            (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
            return ""
        if self.error is not None:
            raise self.error
        target = Path(arguments[arguments.index("--python") + 1]).parents[1]
        (target / "lib" / "python3.11" / "site-packages" / f"{self.installed}.dist-info").mkdir()
        return ""


def with_uv(monkeypatch: pytest.MonkeyPatch, fake: FakeUv) -> FakeUv:
    monkeypatch.setattr(build, "run_uv", fake)
    monkeypatch.setattr(build, "find_interpreter", lambda version, report: Interpreter(Path("/bin/sh"), PYTHON_FULL))
    return fake


def left_over() -> list[str]:
    """What lies in the cache besides lock files."""
    return sorted(path.name for path in cache.environments_root().iterdir() if ".lock-" not in path.name)


def test_left_over_of_a_killed_build_is_removed(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with_uv(monkeypatch, FakeUv())
    for name in (".partial-sample-0123456789ab-1", ".partial-other-0123456789ab-1"):
        (cache.environments_root() / name / "bin").mkdir(parents=True)
    built = build.environment(library, source=PipSettings())
    assert built.build_s is not None
    assert left_over() == [".partial-other-0123456789ab-1", built.folder.name]


def test_faulty_environment_of_the_same_key_is_replaced(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with_uv(monkeypatch, FakeUv())
    folder = sample_environment(library, {})
    assert build.environment(library, source=PipSettings()).folder == folder
    assert faults(library, folder) == []
    assert left_over() == [folder.name]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (uv.UvFailed("error: x\n  cause: No space left on device (os error 28)"), "no space left for"),
        (
            uv.UvFailed("error: fetch\n  cause: dns error"),
            "cannot be built: fetch; dns error; check the network",
        ),
        (
            uv.UvFailed("error: https://me:pw@host.example/ refused"),
            r"https://\*\*\*\*@host\.example/ refused",
        ),
        (OSError(28, "No space left on device"), "no space left for"),
        (OSError(30, "Read-only file system"), "cannot be written .*set RLBENCH_CACHE"),
    ],
)
def test_failed_build_is_one_sentence_and_leaves_nothing(
    library: Library, monkeypatch: pytest.MonkeyPatch, error: BaseException, sentence: str
) -> None:
    with_uv(monkeypatch, FakeUv(error=error))
    with pytest.raises(Unavailable, match=sentence) as raised:
        build.environment(library, source=PipSettings())
    assert "\n" not in str(raised.value)
    assert left_over() == []


def test_interrupted_build_leaves_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with_uv(monkeypatch, FakeUv(error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        build.environment(library, source=PipSettings())
    assert left_over() == []


def test_install_that_differs_from_the_lock_is_not_used(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with_uv(monkeypatch, FakeUv(installed="six-1.15.0"))
    with pytest.raises(Unavailable, match=r"not as its lock says: six is 1\.15\.0"):
        build.environment(library, source=PipSettings())
    assert left_over() == []


def test_options_of_the_adapter_reach_uv(tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = with_uv(monkeypatch, FakeUv())
    install = Install(no_deps=True, build_constraints=["setuptools<66"])
    build.environment(sample_library(tmp_path / "sample", install=install), source=PipSettings())
    arguments = fake.calls[-1]
    assert "--no-deps" in arguments
    assert "--compile-bytecode" in arguments
    assert "--build-constraints" in arguments


def test_what_uv_refuses_is_installed_by_pip(tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = with_uv(monkeypatch, FakeUv())
    given: list[str] = []

    def uv_sees(arguments: list[str], **options: object) -> str:
        if "-r" in arguments:
            given.append(Path(arguments[arguments.index("-r") + 1]).read_text())
        return fake(arguments, **options)

    def pip(command: list[str], **_: object) -> str:
        given.append(" ".join(command[1:]))
        packages = Path(command[0]).parents[1] / "lib" / "python3.11" / "site-packages"
        (packages / "odd-1.0.dist-info").mkdir()
        return ""

    monkeypatch.setattr(build, "run_uv", uv_sees)
    monkeypatch.setattr(build, "run_tool", pip)
    lock = "Odd==1.0\nsix==1.16.0\n"
    odd = sample_library(tmp_path / "odd", lock=lock, install=Install(pip_only=["odd"]))
    assert build.environment(odd, source=PipSettings()).packages == {"odd": "1.0", "six": "1.16.0"}
    assert given == ["six==1.16.0\n", "-m pip install --no-deps --quiet odd==1.0"]


def test_one_failure_does_not_stop_the_others(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with_uv(monkeypatch, FakeUv())
    broken = library.model_copy(update={"name": "broken", "folder": library.folder.parent / "broken"})
    broken.folder.mkdir()
    broken.lock.write_text("six\n")
    monkeypatch.setattr(build, "pip_settings", PipSettings)
    messages: list[str] = []
    results = build.environments([broken, library], jobs=2, report=messages.append)
    assert list(results) == ["broken", "sample"]
    assert isinstance(results["broken"], Unavailable)
    assert isinstance(results["sample"], build.GuestEnv)
    assert {message.partition(":")[0] for message in messages} == {"broken", "sample"}


def test_cache_that_cannot_be_made_is_one_sentence(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_uv(monkeypatch, FakeUv())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLBENCH_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(Unavailable, match=r"cannot be written .*set RLBENCH_CACHE"):
        build.environment(library, source=PipSettings())


def test_waiting_for_another_build_is_told_and_can_be_given_up(library: Library) -> None:
    messages: list[str] = []
    cancelled = threading.Event()
    cancelled.set()
    with cache.guard("sample", messages.append):
        assert messages == []
        with pytest.raises(uv.Cancelled), cache.guard("sample", messages.append, cancelled):
            pass
    assert messages == ["sample: another rlbench is at work on this environment; waiting for it"]


def test_remove_takes_old_ones_and_left_overs(library: Library) -> None:
    sample_environment(library, PACKAGES)
    library.lock.write_text("six==1.17.0\n")
    sample_environment(library, {"six": "1.17.0"})
    (cache.environments_root() / ".partial-sample-0123456789ab-1").mkdir()
    assert cache.remove("sample", lambda message: None) == 2
    assert left_over() == []


def test_locked_text_is_free_of_what_differs_by_machine() -> None:
    compiled = (
        "# comment\n--find-links x\nnumpy==2.4.6\nnvidia-cublas==13.1\nnvidia-ml-py==12.0\n"
        "torch==2.13.0+cpu ; sys_platform == 'linux'\ntriton==3.7.1\n"
    )
    assert locked_text(compiled, keep=set()) == (
        "numpy==2.4.6\nnvidia-ml-py==12.0\ntorch==2.13.0 ; sys_platform == 'linux'\n"
    )
    assert "triton==3.7.1" in locked_text(compiled, keep={"triton"})
