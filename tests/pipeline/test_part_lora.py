"""Low-rank adapters in the trainer: what learns, what is sent, and that actors and learners end up with the same."""

import gymnasium
import pytest
import torch

from rlbench.pipeline import lora
from rlbench.pipeline.learner import Learner
from rlbench.pipeline.policy import ActorCritic, Categorical, Gaussian
from rlbench.pipeline.settings import Settings
from rlbench.pipeline.sync import FlatBuffer, WeightPublisher, WeightReader
from rlbench.pipeline.trainer import train

B, FROZEN = 32, 4
RANKS = [8, 8, 8, 4]
# Of 4 inputs, two hidden layers of 64 and heads of 2 and 1, by hand: rank * (in + out), no rank above a layer's width.
ADAPTERS = 4 * (4 + 64) + 8 * (64 + 64) + 2 * (64 + 2) + 4 * (4 + 64) + 8 * (64 + 64) + 1 * (64 + 1)
BASE = 2 * (4 * 64 + 64 + 64 * 64 + 64) + (64 * 2 + 2) + (64 + 1)
SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "learning_rate": 1e-3, "n_envs": 4, "seed": 3}


def policy(distribution=None, seed=0):
    torch.manual_seed(seed)
    return ActorCritic(4, distribution or Categorical(2), [64, 64], lora_ranks=RANKS)


def learner_of(net, publish=None, **settings):
    settings = {"weight_sync_every": 1, "freeze_updates": FROZEN, "learning_rate": 1e-2, **settings}
    return Learner(net, Settings(env_steps=1, n_envs=1, n_steps=B, batch_size=B, **settings), {}, publish)


def minibatch(seed):
    g = torch.Generator().manual_seed(seed)
    actions = torch.randint(0, 2, (B,), generator=g)
    return torch.randn(B, 4, generator=g), actions, *(torch.randn(B, generator=g) for _ in range(3))


def cartpole(index):
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def run(**settings):
    return train(cartpole, 4, Categorical(2), Settings(**{"lora_ranks": RANKS, **SMALL, **settings}))


def bases(net):
    return torch.cat([p.detach().reshape(-1).clone() for p in lora.base_parameters(net)])


@pytest.mark.parametrize("every", [1, 3])
def test_actors_hold_the_learners_policy_bit_by_bit(every):
    """Frozen and thawed, also where a reader misses versions; what is sent is counted by hand."""
    net, copy = policy(), policy()
    publisher, sent = WeightPublisher(ADAPTERS + BASE), []

    def publish(flat, version):
        sent.append(flat.numel())
        publisher.publish(flat, version)

    learner = learner_of(net, publish)
    publisher.publish(learner.buffer.flat, 0)
    held, reader = FlatBuffer(lora.base_last(copy)[0]), WeightReader(publisher)
    base = bases(net)
    for update in range(1, 3 * FROZEN + 1):
        learner._step(*minibatch(update))
        assert torch.equal(bases(net), base) == (update <= FROZEN)
        if update % every == 0:
            assert reader.changed()
            assert reader.read(held.flat) == update
            for (name, mine), theirs in zip(net.named_parameters(), copy.parameters()):
                assert torch.equal(mine, theirs), name
    assert sent == [ADAPTERS] * FROZEN + [ADAPTERS + BASE] * 2 * FROZEN


def test_frozen_updates_are_those_of_adam_on_the_adapters_and_thawed_ones_of_adam_on_all():
    """A plain optimizer for each of the two groups, the second one made when the base is thawed."""
    net, other = policy(), policy()
    learner = learner_of(net, max_grad_norm=1e9)
    groups = lora.adapter_parameters(other), lora.base_parameters(other)
    optimizers = [torch.optim.Adam(groups[0], lr=1e-2, eps=1e-5)]
    twin = learner_of(other, freeze_updates=0)
    for update in range(3 * FROZEN):
        learner._step(*minibatch(update))
        if update == FROZEN:
            optimizers.append(torch.optim.Adam(groups[1], lr=1e-2, eps=1e-5))
        twin.by_autograd(*minibatch(update))
        for optimizer in optimizers:
            optimizer.step()
        for mine, theirs in zip(net.parameters(), other.parameters()):
            assert torch.allclose(mine, theirs, atol=1e-5)


def test_never_frozen_moves_all_from_the_first_update():
    net, sent = policy(), []
    base = bases(net)
    learner_of(net, lambda flat, version: sent.append(flat.numel()), freeze_updates=0)._step(*minibatch(0))
    assert not torch.equal(bases(net), base)
    assert sent == [ADAPTERS + BASE]


def test_what_is_under_no_adapter_is_sent_with_the_adapters():
    parameters, first = lora.base_last(policy(Gaussian([-1.0], [1.0])))
    plain, everything = lora.base_last(ActorCritic(4, Categorical(2), [8]))
    # One action instead of two logits: the actor's head is as the critic's, and a deviation comes first.
    assert first == ADAPTERS - 2 * (64 + 2) + (64 + 1) + 1
    assert parameters[0].shape == (1,)
    assert everything == sum(p.numel() for p in plain)


def test_every_update_changes_what_the_probe_reads():
    """The first parameter of the module that is fed, at the positions of its fingerprint; and no other is fed."""
    from rlbench.probe.taps import fingerprint

    net, fed = policy(), []
    for module in net.modules():
        module.register_forward_pre_hook(lambda module, args: fed.append(module))
    net.actor(torch.ones(1, 4))
    first = next(each for each in fed if list(each.parameters(recurse=False)))
    assert first is net.actor[0]
    assert not any(isinstance(each, torch.nn.Linear) for each in fed)
    learner, seen = learner_of(net), set()
    for update in range(2 * FROZEN):
        seen.add(fingerprint(next(first.parameters(recurse=False)).detach().numpy()))
        learner._step(*minibatch(update))
    assert len(seen) == 2 * FROZEN


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_actor_process_trains_bitwise_as_one_process_for_all(method):
    """64 updates of 8 a round: the base thaws within a round, between two publications."""
    alone = run(env_steps=1024, freeze_updates=20)
    apart = run(env_steps=1024, freeze_updates=20, mode="workers", actors=1, start_method=method)
    for one, other in zip(alone.policy.parameters(), apart.policy.parameters()):
        assert torch.equal(one, other)
    # Versions 8 and 16 are sent frozen, six more thawed, the last one again at the end.
    assert apart.sent_bytes == 4 * (2 * ADAPTERS + 7 * (ADAPTERS + BASE))
    assert alone.sent_bytes == 0


@pytest.mark.parametrize("freeze_updates", [10, 10**6])
@pytest.mark.parametrize("gradient_sync_every", [1, 4])
def test_learners_apart_end_with_equal_weights(freeze_updates, gradient_sync_every):
    """The trainer compares what they end with, base included."""
    result = run(
        env_steps=4096,
        mode="async",
        actors=2,
        learners=2,
        gradient_sync_every=gradient_sync_every,
        weight_sync_every=6,
        batch_size=16,
        freeze_updates=freeze_updates,
    )
    torch.manual_seed(SMALL["seed"])
    initial = bases(ActorCritic(4, Categorical(2), [64, 64], lora_ranks=RANKS))
    assert torch.equal(bases(result.policy), initial) == (freeze_updates >= result.updates)
    sent = result.updates // 6 + 1
    frozen = min(sent, freeze_updates // 6)
    assert result.sent_bytes == 4 * (sent * ADAPTERS + (sent - frozen) * BASE)


@pytest.mark.parametrize("freeze_updates", [500, 10**6])
def test_it_learns(freeze_updates):
    """Greedy episodes of CartPole after a short run; a random policy's return is about 22, an untrained one's 10."""
    result = run(env_steps=24_576, n_steps=128, batch_size=128, n_epochs=8, freeze_updates=freeze_updates)
    env, returns = cartpole(0), []
    for seed in range(10):
        observation, ended, total = env.reset(seed=seed)[0], False, 0
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(result.policy.greedy(observation))
            total += reward
            ended = terminated or truncated
        returns.append(total)
    assert sum(returns) / len(returns) > 100


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"lora_ranks": []}, "at least one rank"),
        ({"lora_ranks": [8, 0]}, r"lora_ranks \[8, 0\]: give at least one rank, each of at least 1"),
        ({"freeze_updates": -1}, "freeze_updates is -1: use 0 or more"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(env_steps=1, **{**SMALL, **wrong})
