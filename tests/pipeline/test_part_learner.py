"""Losses and their gradients: the written-out gradient is autograd's, PPO's clipping is that of its definition."""

import numpy as np
import pytest
import torch

from rlbench.pipeline import lora
from rlbench.pipeline.algorithm import normalised, ppo_loss
from rlbench.pipeline.gradient import Gradient, applies
from rlbench.pipeline.learner import Learner
from rlbench.pipeline.policy import ActorCritic, Categorical, Gaussian
from rlbench.pipeline.settings import Settings

B = 32
NO_ROW = {}


def minibatch(distribution, weighted):
    g = torch.Generator().manual_seed(1)
    if isinstance(distribution, Categorical):
        actions = torch.randint(0, distribution.n, (B,), generator=g)
    else:
        actions = torch.randn(B, distribution.outputs, generator=g)
    weights = (torch.rand(B, generator=g) * (torch.rand(B, generator=g) < 0.8),) if weighted else ()
    log_prob = -1 + 0.5 * torch.randn(B, generator=g)
    return (
        torch.randn(B, 4, generator=g),
        actions,
        log_prob,
        *(torch.randn(B, generator=g) for _ in range(2)),
        *weights,
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("distribution", [Categorical(3), Gaussian([-1.0, -2.0], [1.0, 2.0])])
def test_written_out_gradient_is_that_of_autograd(distribution, activation, algorithm, ent_coef, weighted):
    torch.manual_seed(0)
    policy = ActorCritic(4, distribution, [16, 8], activation)
    for p in policy.parameters():
        # Larger heads than at initialisation: probabilities that differ, ratios on both sides of the clip.
        p.data.mul_(1.5).add_(0.1)
    settings = Settings(env_steps=1, n_envs=1, n_steps=B, batch_size=B, algorithm=algorithm, ent_coef=ent_coef)
    learner = Learner(policy, settings, NO_ROW)
    assert isinstance(learner._differentiate, Gradient)
    batch = minibatch(distribution, weighted)
    learner.by_autograd(*batch)
    expected = learner.buffer.gradient.clone()
    learner.buffer.gradient.fill_(float("nan"))
    learner._differentiate(*batch)
    assert expected.abs().max() > 0.01
    assert torch.allclose(learner.buffer.gradient, expected, rtol=1e-4, atol=1e-6)


def test_other_networks_are_left_to_autograd():
    policy = ActorCritic(4, Categorical(2), [8])
    assert applies(policy)
    lora.apply_lora(policy, 2)
    assert not applies(policy)
    learner = Learner(policy, Settings(env_steps=1, n_envs=1, n_steps=B, batch_size=B), NO_ROW)
    before = learner.buffer.flat.clone()
    learner._step(*minibatch(Categorical(2), False))
    assert not torch.equal(before, learner.buffer.flat)


def test_clipping_is_that_of_the_definition():
    ratio, advantages = np.array([0.5, 0.5, 1.0, 1.5, 1.5]), np.array([1.0, -1.0, 2.0, 1.0, -1.0])
    expected = [min(r * a, np.clip(r, 0.8, 1.2) * a) for r, a in zip(ratio, advantages)]
    got = ppo_loss(torch.tensor(np.log(ratio)), torch.zeros(5), torch.tensor(advantages), 0.2)
    assert got.item() == pytest.approx(-np.mean(expected))


def test_samples_of_no_weight_change_nothing():
    advantages, weights = torch.tensor([1.0, 3.0, 1e6]), torch.tensor([1.0, 1.0, 0.0])
    assert torch.allclose(normalised(advantages, weights)[:2], normalised(advantages[:2]))
    log_prob, zero = torch.tensor([0.1, -0.1, 5.0]), torch.zeros(3)
    with_it = ppo_loss(log_prob, zero, advantages, 0.2, weights)
    assert with_it.item() == pytest.approx(ppo_loss(log_prob[:2], zero[:2], advantages[:2], 0.2).item())


def test_gradient_is_clipped_by_its_norm():
    policy = ActorCritic(4, Categorical(2), [8])
    settings = Settings(env_steps=1, n_envs=1, n_steps=B, batch_size=B, max_grad_norm=1e-3)
    learner = Learner(policy, settings, NO_ROW)
    learner._step(*minibatch(Categorical(2), False))
    assert learner.buffer.gradient.norm().item() == pytest.approx(1e-3, rel=1e-2)
