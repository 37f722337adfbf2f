"""Weights travel whole: between processes through shared memory, between ranks through gloo."""

import multiprocessing

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from rlbench.pipeline import sync
from rlbench.pipeline.adam import AdamFlat

WORLD = 3


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


@pytest.mark.parametrize("attach", [True, False])
def test_flat_buffer_round_trip(attach):
    source, target = net(0), net(1)
    x = torch.randn(3, 4)
    expected = source(x)
    buffer = sync.FlatBuffer(source.parameters(), attach=attach)
    assert torch.equal(source(x), expected)
    other = sync.FlatBuffer(target.parameters(), attach=attach)
    other.unpack(buffer.pack())
    assert torch.equal(target(x), expected)
    assert buffer.flat.numel() == sum(p.numel() for p in source.parameters())
    with torch.no_grad():
        source[0].weight.add_(1)
    assert torch.equal(buffer.pack()[:64], source[0].weight.detach().reshape(-1))


def test_flat_buffer_refuses_what_is_not_flat():
    with pytest.raises(ValueError, match="one dtype"):
        sync.FlatBuffer([])
    with pytest.raises(ValueError, match="one dtype"):
        sync.FlatBuffer([torch.zeros(1), torch.zeros(1, dtype=torch.float64)])


def test_flat_adam_equals_adam():
    one, two = net(), net()
    buffer = sync.FlatBuffer(two.parameters())
    plain = torch.optim.Adam(one.parameters(), lr=0.01, eps=1e-5)
    flat = AdamFlat(buffer, lr=0.01, eps=1e-5)
    for seed in range(20):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
        plain.zero_grad()
        one(x).square().sum().backward()
        plain.step()
        buffer.zero_gradient()
        two(x).square().sum().backward()
        flat.step()
    for a, b in zip(one.parameters(), two.parameters()):
        assert torch.allclose(a, b, atol=1e-6)
    assert all(p.grad.data_ptr() == v.data_ptr() for p, v in zip(two.parameters(), buffer._views(buffer.gradient)))


def publish(publisher, versions):
    for version in range(1, versions + 1):
        publisher.publish(torch.full((publisher.elements,), float(version)), version)


def test_readers_never_see_mixed_versions():
    publisher = sync.WeightPublisher(20_000)
    with pytest.raises(LookupError, match="no weights"):
        sync.WeightReader(publisher).read(torch.empty(20_000))
    versions = 20_000
    writer = multiprocessing.get_context("fork").Process(target=publish, args=(publisher, versions))
    writer.start()
    reader, out, seen = sync.WeightReader(publisher), torch.empty(20_000), []
    while not seen or seen[-1] < versions:
        if reader.changed():
            version = reader.read(out)
            assert (out == version).all()
            seen.append(version)
    writer.join()
    assert len(seen) > 50
    assert seen == sorted(set(seen))
    assert not reader.changed()


def in_group(rank, folder, function, results):
    dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank, world_size=WORLD)
    results.put((rank, function(rank)))
    dist.barrier()
    dist.destroy_process_group()


def run_group(tmp_path, function):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=in_group, args=(r, str(tmp_path), function, results)) for r in range(WORLD)]
    for each in ranks:
        each.start()
    found = dict(results.get(timeout=120) for _ in ranks)
    for each in ranks:
        each.join()
        assert each.exitcode == 0
    return [found[rank] for rank in range(WORLD)]


def all_ways(rank):
    """The bytes of the weights after each way of synchronising, and the plain mean of the initial weights."""
    found = {}
    for way in ("packed", "each", "average"):
        module = net(rank)
        buffer = sync.FlatBuffer(module.parameters())
        if way == "packed":
            sync.broadcast_packed(buffer)
        elif way == "each":
            sync.broadcast_each(buffer.parameters)
        else:
            sync.all_reduce_average(buffer)
        found[way] = buffer.pack().numpy().copy()
    gradient = torch.full((5,), float(rank))
    took = [sync.all_reduce_gradients(gradient, update, every=3) for update in range(3)]
    found["gradient"], found["took"] = gradient.numpy(), took
    # Each worker sends its rank as the gradient; the server subtracts it.
    flat = torch.zeros(4)
    if rank == 0:
        sync.serve_parameters(flat, lambda g: flat.sub_(g), requests=2 * (WORLD - 1))
    else:
        for _ in range(2):
            sync.exchange(torch.full((4,), float(rank)), flat)
    found["server"] = flat.numpy()
    return found


def test_ranks_are_bitwise_equal_after_every_way(tmp_path):
    found = run_group(tmp_path, all_ways)
    initial = [sync.FlatBuffer(net(rank).parameters()).flat.numpy() for rank in range(WORLD)]
    for way in ("packed", "each", "average"):
        assert len({each[way].tobytes() for each in found}) == 1, way
    assert np.array_equal(found[2]["packed"], initial[0])
    assert np.array_equal(found[1]["each"], initial[0])
    assert found[0]["average"] == pytest.approx(np.mean(initial, 0), abs=1e-6)
    assert [each["took"] for each in found] == [[False, False, True]] * WORLD
    assert [each["gradient"].tolist() for each in found] == [[1.0] * 5] * WORLD
    assert found[0]["server"].tolist() == [-2.0 * sum(range(WORLD))] * 4
    assert -2.0 * sum(range(WORLD)) in [found[1]["server"][0], found[2]["server"][0]]
