"""`rlbench lab` as a user runs it: the quick sizes of the experiments that take two minutes together."""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlbench.lab.catalog import experiments
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED
from tests.conftest import Cli, command, heed_signals, wait_until, working_in

pytestmark = pytest.mark.e2e

CHOSEN = ["buffer-races", "false-sharing", "lora-freeze", "lora-traffic", "stragglers", "sync", "sync-nccl"]


def test_every_experiment_ends_with_rows_chart_and_verdict(cli: Cli, tmp_path: Path) -> None:
    done = cli("lab", "run", ",".join(CHOSEN), "--quick", "--results", "lab", "--json")
    told = json.loads(done.stdout)
    folder = tmp_path / told["results"]
    assert [each["experiment"] for each in told["experiments"]] == CHOSEN
    for each in told["experiments"]:
        name = each["experiment"]
        assert each["status"] == "ok", each["output"]
        assert each["verdict"] in (HOLDS, FAILS, UNTESTED)
        assert any(character.isdigit() for character in each["sentence"])
        assert each["sizes"] == experiments()[name].sizes["quick"]
        assert {"python", "numpy"} <= each["versions"].keys()
        rows = pq.read_table(folder / "measurements" / f"{name}.parquet").to_pylist()
        assert rows
        assert all(row["value"] is not None or row["reason"] for row in rows)
        # On a busy machine false-sharing may find no moment to measure in, and then has nothing to draw.
        for suffix in ("png", "svg") if any(row["value"] is not None for row in rows) else ():
            assert (folder / "charts" / f"{name}.{suffix}").stat().st_size > 1000
    page = html.unescape((folder / "lab.html").read_text())
    assert all(each["sentence"] in page for each in told["experiments"])

    # What does not depend on this machine's speed.
    by_name = {each["experiment"]: each for each in told["experiments"]}
    assert by_name["lora-traffic"]["sentence"].startswith("64 times holds (262,144 / 4,096 = 64)")
    assert "2.00 times the bytes" in by_name["sync"]["sentence"]
    assert "shards lost and tore none" in by_name["buffer-races"]["sentence"]
    assert "a dead one after" in by_name["stragglers"]["sentence"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_goes_on_without_the_lab(tmp_path: Path, ending: signal.Signals) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    harness = subprocess.Popen(
        command("lab", "run", "buffer-races", "--quick"),
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
        preexec_fn=heed_signals,
    )
    wait_until(lambda: len(working_in(temporary)) > 2)
    harness.send_signal(ending)
    assert harness.wait(30) == (130 if ending == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not working_in(temporary))
    assert ending == signal.SIGKILL or not any((tmp_path / "results").iterdir())


def test_a_wrong_name_is_told_before_anything_is_built(cli: Cli, tmp_path: Path) -> None:
    done = cli("lab", "run", "bufer-lock", code=2, RLBENCH_CACHE=str(tmp_path / "empty"))
    assert "unknown experiment 'bufer-lock'; did you mean 'buffer-lock'?" in done.stderr
    assert not (tmp_path / "empty").exists()
    assert not (tmp_path / "results").exists()


def test_the_list_and_its_help(cli: Cli) -> None:
    assert "buffer-lock" in cli("lab", "list").stdout
    assert "rlbench lab run all" in cli("lab", "run", "--help").stdout
