"""The lab's batched trainers against the same thing done one at a time."""

import multiprocessing

import gymnasium
import numpy as np
import pytest
import torch

from rlbench.lab import actor_critic, batched, rings
from rlbench.lab.actor_critic import Run
from rlbench.lab.experiments import buffer_races
from rlbench.lab.together import together
from rlbench.lab.world import bytes_sent, run_world


def test_cart_pole_moves_as_gymnasiums() -> None:
    mine = batched.CartPole([1, 2], envs=1, limit=10**6)
    theirs = gymnasium.make("CartPole-v1").unwrapped
    theirs.reset()
    theirs.state = tuple(mine.state[1, 0])
    random = np.random.default_rng(0)
    steps = 0
    while steps < 500:
        action = random.integers(2)
        seen, reward, end = mine.step(np.full((2, 1), action))
        expected, _, terminated, _, _ = theirs.step(int(action))
        assert (reward[1, 0], end[1, 0]) == (1.0, terminated)
        if terminated:
            theirs.reset()
            theirs.state = tuple(mine.state[1, 0])
        else:
            np.testing.assert_allclose(seen[1, 0], expected, rtol=1e-4, atol=1e-6)
        steps += 1


def test_the_room_rewards_the_goal_only_and_ends_there() -> None:
    room = batched.Grid([0], envs=1, side=3, limit=30)
    told = [room.step(np.array([[move]])) for move in (1, 1, 3, 3)]
    assert [float(reward[0, 0]) for _, reward, _ in told] == [0, 0, 0, 1]
    assert [bool(end[0, 0]) for _, _, end in told] == [False, False, False, True]
    assert told[-1][0][0, 0].tolist() == [1, 0, 0, 1, 0, 0]
    for _ in range(29):
        assert not room.step(np.array([[0]]))[2].any()
    _, reward, end = room.step(np.array([[0]]))
    assert (reward[0, 0], end[0, 0]) == (0, True)


def test_batched_networks_equal_modules() -> None:
    net = batched.Mlp((3, 8, 2), ranks=(2, 1))
    flat = batched.initialise(net, [5, 6, 5])
    assert torch.equal(flat[0], flat[2])
    assert not torch.equal(flat[0], flat[1])
    x = torch.randn(3, 4, 3)
    shapes = net.shapes
    for changed in (False, True):
        # Adapters change nothing until their B is not zero any more.
        if changed:
            flat = flat + 0.1
        for run in range(3):
            w1, b1, w2, b2, a1, z1, a2, z2 = (
                part.view(shape)
                for part, shape in zip(flat[run].split([a * b for a, b in shapes]), shapes, strict=True)
            )
            expected = torch.tanh(x[run] @ (w1 + a1 @ z1) + b1) @ (w2 + a2 @ z2) + b2
            torch.testing.assert_close(batched.forward(net, flat, x)[run], expected)
    assert net.base_size == 3 * 8 + 8 + 8 * 2 + 2
    assert net.size == net.base_size + 2 * (3 + 8) + 1 * (8 + 2)


def test_adam_is_torchs_and_a_run_can_sit_out() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(2, 5), 0.01 * torch.randn(6, 2, 5)
    flat = start.clone()
    mine = batched.Adam(flat, 0.1)
    theirs = [torch.nn.Parameter(start[run].clone()) for run in range(2)]
    optimizers = [torch.optim.Adam([each], lr=0.1, eps=1e-5) for each in theirs]
    for number, gradient in enumerate(gradients):
        on = torch.tensor([True, number % 2 == 0])
        mine.step(gradient, on)
        for run in range(2):
            if on[run]:
                theirs[run].grad = gradient[run].clone()
                optimizers[run].step()
    torch.testing.assert_close(flat, torch.stack([each.detach() for each in theirs]), rtol=1e-4, atol=1e-5)


def test_adam_leaves_frozen_parameters_and_clips() -> None:
    flat = torch.zeros(1, 3)
    optimizer = batched.Adam(flat, 0.1, max_norm=1.0)
    optimizer.step(torch.tensor([[3.0, 4.0, 100.0]]), mask=torch.tensor([[1.0, 1.0, 0.0]]))
    assert flat[0, 2] == 0
    torch.testing.assert_close(optimizer.mean, torch.tensor([[0.06, 0.08, 0.0]]))


def _train(runs: list[Run], threshold: int = 8, updates: int = 12) -> actor_critic.Learned:
    return actor_critic.train(lambda seeds: batched.CartPole(seeds, 8), runs, updates, 2, threshold, 2e-3)


def test_a_run_does_not_depend_on_those_beside_it() -> None:
    runs = [Run("none", 3, 0), Run("V-trace", 0, 1), Run("reciprocal", 2, 2)]
    together_ = _train(runs)
    for index, run in enumerate(runs):
        torch.testing.assert_close(_train([run]).flat[0], together_.flat[index], rtol=1e-3, atol=1e-4)


def test_controls_change_nothing_without_staleness_but_do_with_it() -> None:
    fresh = _train([Run(control, 0, 0) for control in ("none", "reciprocal", "scaled", "threshold drop")])
    for other in fresh.flat[1:]:
        torch.testing.assert_close(fresh.flat[0], other, rtol=1e-4, atol=1e-5)
    stale = _train([Run(control, 4, 0) for control in actor_critic.CONTROLS], threshold=4)
    for other in stale.flat[1:]:
        assert (stale.flat[0] - other).abs().max() > 1e-4
    assert stale.dropped[0] == 0 < stale.dropped[3] < 1
    assert stale.effective[0] == pytest.approx(1) and 0 < stale.effective[1] < 1  # noqa: PT018


def test_it_learns() -> None:
    learned = actor_critic.train(
        lambda seeds: batched.CartPole(seeds, 8), [Run("none", 0, seed) for seed in range(4)], 150, 5, 8, 2e-3
    )
    assert learned.curve[-1].mean() > 3 * learned.curve[0].mean()


def test_functions_run_at_the_same_time_and_a_fault_is_told() -> None:
    assert together([lambda: 1, lambda: "two"]) == [1, "two"]
    with pytest.raises(RuntimeError, match="no such thing"):
        together([lambda: 1, lambda: {}["no such thing"]])


def _send(rank: int, ranks: int, numbers: int) -> int | None:
    tensor = torch.zeros(numbers)
    before = bytes_sent()
    torch.distributed.broadcast(tensor, 0)
    torch.distributed.barrier()
    after = bytes_sent()
    return None if before is None or after is None else after - before


def test_bytes_on_the_wire_are_those_of_the_tensor() -> None:
    sent = run_world(2, _send, (250_000,))
    if sent is None:
        pytest.skip("the kernel does not count bytes per connection")
    assert 1_000_000 <= sent < 1_010_000


def _fail(rank: int, ranks: int) -> None:
    if rank == 1:
        raise ValueError("rank one fails")
    torch.distributed.barrier()


def test_a_rank_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 of 2 failed.*rank one fails"):
        run_world(2, _fail, ())


@pytest.mark.parametrize("way", [rings.OneLock, rings.LockPerShard, rings.LockFreeShards, rings.ProcessQueue])
def test_every_way_hands_all_records_over(way: type) -> None:
    buffer = way(2)
    context = multiprocessing.get_context("fork")

    def write(index: int) -> None:
        put = buffer.producer(index)
        for number in range(500):
            record = np.zeros(1, rings.RECORD)
            record["version"] = number
            while not put(record):
                pass
        if way is rings.ProcessQueue:
            # The way gives up what is not sent when a producer ends; here all of it counts.
            buffer.queue.close()
            buffer.queue._thread.join(10)

    workers = [context.Process(target=write, args=(index,)) for index in range(2)]
    for worker in workers:
        worker.start()
    taken = 0
    while taken < 1000:
        taken += buffer.take(64)
    for worker in workers:
        worker.join(10)
        assert worker.exitcode == 0
    assert taken == 1000
    assert buffer.take(64) == 0


def test_races_are_counted_exactly() -> None:
    # One writer cannot collide with itself; nothing may be lost, torn or found twice.
    assert buffer_races.guide(1, 2000) == (0, 0)
    assert buffer_races.ours(3, 1500) == (0, 0)
