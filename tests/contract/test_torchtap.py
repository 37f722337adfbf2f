"""The PyTorch tap in a real interpreter: a tapped network computes, copies and pickles as it did, and is still seen."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from rlbench.analyse.ledgers import read_ledgers
from rlbench.catalog.library import load_libraries
from rlbench.execute.guest import guest_code, guest_variables
from rlbench.probe.ledger import GRADIENT
from rlbench.provision.build import environment

pytestmark = pytest.mark.contract

PROGRAM = """
import copy, io, json, pickle, sys
import numpy as np, torch
from rlbench.probe import stamp, torchtap
from rlbench.probe.env import TapEnv, make_plain
from rlbench.probe.taps import Taps

folder = sys.argv[1]
env = TapEnv(make_plain("CartPole-v1", {}), folder, 0)
rows = [env.reset(seed=1)[0]] + [env.step(0)[0] for _ in range(3)]
batch = torch.as_tensor(np.stack(rows))
layout, dim = "float4", 4
torchtap.install(Taps(folder, layout, dim), 0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
plain = copy.deepcopy(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
# As much acting as makes the tap take the network for one that acts; then discovery ends.
for _ in range(torchtap.DISCOVERY_STEPS):
    for _ in range(5):
        with torch.no_grad():
            net(batch)
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
found = {"class": type(net[0]).__name__, "tapped": isinstance(net[0], torchtap._Tapped)}
found["is linear"] = isinstance(net[0], torch.nn.Linear)
found["same"] = bool(torch.equal(net(batch), plain(batch)))
calls = sum(1 for _ in range(7) if net(batch) is not None)
copied = copy.deepcopy(net)
loaded = pickle.loads(pickle.dumps(net))
buffer = io.BytesIO()
torch.save(net, buffer)
buffer.seek(0)
saved = torch.load(buffer, weights_only=False)
for other in (copied, loaded, saved):
    with torch.no_grad():
        assert torch.equal(other(batch), plain(batch))
    assert other[0].weight is not net[0].weight
    assert isinstance(other[0], torchtap._Tapped) and other[0].__dict__.keys() == plain[0].__dict__.keys()
net.load_state_dict(plain.state_dict())
# Not float32, not contiguous, wanting a gradient, not an observation.
wide = net.double()(batch.double())
net.float()(batch.t().contiguous().t())
net(batch.clone().requires_grad_()).sum().backward()
assert net[0](torch.zeros(0, 4)).shape == (0, 8)
print(json.dumps(found))
"""


def test_a_tapped_network_is_the_same_and_its_copies_are_seen() -> None:
    guest = environment(load_libraries()["sb3"])
    folder = Path(tempfile.mkdtemp(prefix="rlbench-torchtap-"))
    code = guest_code(folder / "guest")
    done = subprocess.run(
        [str(guest.python), "-c", PROGRAM, str(folder)],
        env=guest_variables(code, 1, "torchtap"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"class": "Linear", "tapped": True, "is linear": True, "same": True}
    passes = read_ledgers(folder).passes
    # 64 x 6 to discover, 1 + 7 afterwards, three copies, then four odd ones, of which one has no row.
    learned, acted = 64 + 8 + 4, 64 * 5 + 3
    assert len(passes.time_ns) == learned + acted
    assert (passes.flags & GRADIENT > 0).sum() == learned
    assert (passes.sample >= 0).all()
    assert set(passes.rows) == {0, 4}
