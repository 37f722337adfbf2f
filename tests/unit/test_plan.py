"""The plan's order, the catalogue's answers, the guest's border."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.catalog.library import find_library, load_libraries
from rlbench.catalog.paths import PACKAGE, shipped
from rlbench.catalog.scenario import load_scenario, overridden, scenario_names
from rlbench.errors import UserError
from rlbench.execute.calibrate import calibrate, drifted
from rlbench.plan import cannot, plan
from tests.conftest import ORACLE


def test_trials_are_interleaved_and_the_first_library_changes() -> None:
    libraries = [find_library(name, load_libraries()) for name in ("sb3", "cleanrl", "tianshou")]
    trials = plan(libraries, [load_scenario("quickstart")], [1, 2, 3])
    assert [trial.library for trial in trials[:3]] == ["sb3", "cleanrl", "tianshou"]
    assert [trial.library for trial in trials[3:6]] == ["cleanrl", "tianshou", "sb3"]
    assert [trial.seed for trial in trials] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len({trial.id for trial in trials}) == 9


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_is_valid_and_named_as_its_file(name: str) -> None:
    assert load_scenario(name).name == name


@pytest.mark.parametrize("name", sorted(load_libraries()))
def test_every_shipped_adapter_is_complete(name: str) -> None:
    library = load_libraries()[name]
    assert library.folder.name == name
    assert all(getattr(library.axes, axis) for axis in type(library.axes).model_fields)
    tree = ast.parse(library.adapter.read_text(), feature_version=(3, 10))
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert "Adapter" in classes
    pinned = [line for line in library.lock.read_text().splitlines() if line and not line.startswith(("#", " "))]
    assert all("==" in line or "@" in line for line in pinned)
    assert any(line.startswith("gymnasium==") for line in pinned)


def test_declared_capabilities_rule_scenarios_out_with_a_sentence() -> None:
    library = load_libraries()["cleanrl"]
    assert cannot(library, load_scenario("quickstart")) is None
    assert "has no SAC" in str(cannot(library, load_scenario("pendulum-sac")))
    elsewhere = overridden(load_scenario("quickstart"), {"topology.mode": "async", "topology.workers": 2}, "test")
    assert "no mode 'async'" in str(cannot(library, elsewhere))


def test_variants_are_libraries_of_their_own() -> None:
    known = load_libraries([ORACLE])
    assert find_library("oracle:sync", known).label == "oracle:sync"
    with pytest.raises(UserError, match="did you mean 'sync'"):
        find_library("oracle:synk", known)


def test_guest_code_imports_the_standard_library_and_numpy_only() -> None:
    """The border: what runs in a library's interpreter may not import the harness' dependencies or the host side."""
    allowed = set(sys.stdlib_module_names) | {"numpy", "gymnasium", "gym", "dm_env"}
    frameworks = {
        "torchtap.py": {"torch"},
        "tftap.py": {"tensorflow"},
        "tf1.py": {"tensorflow"},
        "jaxtap.py": {"jax"},
        "chainertap.py": {"chainer"},
    }
    for path in [PACKAGE / "__init__.py", *(PACKAGE / "probe").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 10))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                inside = name == "rlbench" or name.startswith("rlbench.probe")
                known = allowed | frameworks.get(path.name, set())
                assert inside or name.split(".")[0] in known, f"{path.name} imports {name}"


def test_nothing_downstream_is_imported_upstream() -> None:
    order = [
        "errors",
        "catalog",
        "store",
        "provision",
        "plan",
        "analyse",
        "execute",
        "present",
        "contract",
        "lab",
        "cli",
    ]
    # The lab's experiments are guest code and try the parts of the pipeline.
    may = {"analyse": {"probe"}, "execute": {"probe"}, "lab": {"pipeline"}}
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part not in order:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlbench."):
                other = (node.module or "").split(".")[1]
                fine = other in may.get(part, set()) or order.index(other) <= order.index(part)
                assert fine, f"{path.relative_to(PACKAGE)} imports rlbench.{other}"


def test_the_host_imports_only_the_part_of_the_probe_that_needs_no_library() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import rlbench.cli; rlbench.cli._register()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_drift_is_more_than_a_tenth_off_the_median() -> None:
    assert drifted([100, 104, 96, 111, 89]) == [False, False, False, True, True]
    assert drifted([]) == []
    assert calibrate() > 0


def test_shipped_folders_exist() -> None:
    assert (shipped("adapters") / "sb3" / "adapter.toml").is_file()
    assert Path(shipped("scenarios") / "quickstart.toml").is_file()
