"""Returns, staleness weights and adapters against known answers and plain loops."""

import numpy as np
import pytest
import torch
from torch import nn

from rlbench.pipeline import lora, returns, staleness

T, N = 12, 3


@pytest.fixture
def rollout():
    rng = np.random.default_rng(0)
    ends = rng.random((T, N)) < 0.25
    return {
        "rewards": rng.normal(size=(T, N)).astype(np.float32),
        "values": rng.normal(size=(T, N)).astype(np.float32),
        "ends": ends,
        "bootstrap": rng.normal(size=N).astype(np.float32),
        "end_values": (rng.normal(size=(T, N)) * ends * (rng.random((T, N)) < 0.5)).astype(np.float32),
    }


def following(r, t, n):
    if r["ends"][t, n]:
        return r["end_values"][t, n]
    return r["bootstrap"][n] if t == T - 1 else r["values"][t + 1, n]


def test_discounted_is_the_sum_of_its_definition(rollout):
    got = returns.discounted(rollout["rewards"], rollout["ends"], rollout["bootstrap"], 0.9)
    for n in range(N):
        for t in range(T):
            total, factor = 0.0, 1.0
            for k in range(t, T):
                total += factor * rollout["rewards"][k, n]
                factor *= 0.9
                if rollout["ends"][k, n]:
                    break
            else:
                total += factor * rollout["bootstrap"][n]
            assert got[t, n] == pytest.approx(total, abs=1e-5)


def test_gae_is_the_sum_of_its_definition(rollout):
    r, gamma, decay = rollout, 0.97, 0.9
    advantages, targets = returns.gae(**r, gamma=gamma, gae_lambda=decay)
    for n in range(N):
        for t in range(T):
            total, factor = 0.0, 1.0
            for k in range(t, T):
                total += factor * (r["rewards"][k, n] + gamma * following(r, k, n) - r["values"][k, n])
                factor *= gamma * decay
                if r["ends"][k, n]:
                    break
            assert advantages[t, n] == pytest.approx(total, abs=1e-5)
    assert targets == pytest.approx(advantages + r["values"])


@pytest.mark.parametrize("clip_rho, clip_c, decay", [(1.0, 1.0, 1.0), (2.0, 0.5, 0.95)])
def test_vtrace_is_the_sum_of_its_definition(rollout, clip_rho, clip_c, decay):
    r, gamma = rollout, 0.97
    rng = np.random.default_rng(1)
    mu, pi = rng.normal(size=(2, T, N)) * 0.5
    targets, advantages = returns.vtrace(
        **r,
        behaviour_log_prob=mu,
        target_log_prob=pi,
        gamma=gamma,
        clip_rho=clip_rho,
        clip_c=clip_c,
        trace_lambda=decay,
    )
    ratio = np.exp(pi - mu)
    rho, c = np.minimum(clip_rho, ratio), decay * np.minimum(clip_c, ratio)
    for n in range(N):
        for s in range(T):
            total, factor = r["values"][s, n], 1.0
            for t in range(s, T):
                total += factor * rho[t, n] * (r["rewards"][t, n] + gamma * following(r, t, n) - r["values"][t, n])
                factor *= gamma * c[t, n]
                if r["ends"][t, n]:
                    break
            assert targets[s, n] == pytest.approx(total, abs=1e-5)
            last = s == T - 1 or r["ends"][s, n]
            after = following(r, s, n) if last else targets[s + 1, n]
            expected = rho[s, n] * (r["rewards"][s, n] + gamma * after - r["values"][s, n])
            assert advantages[s, n] == pytest.approx(expected, abs=1e-5)


def test_vtrace_on_policy_is_the_lambda_return(rollout):
    zero = np.zeros((T, N))
    targets, _ = returns.vtrace(**rollout, behaviour_log_prob=zero, target_log_prob=zero, gamma=0.99, trace_lambda=0.95)
    _, expected = returns.gae(**rollout, gamma=0.99, gae_lambda=0.95)
    assert targets == pytest.approx(expected, abs=1e-5)


def test_staleness_weights_are_those_of_the_formulas():
    s = np.arange(12)
    assert staleness.weights(s, "reciprocal", 8) == pytest.approx([1 / (1 + k) if k <= 8 else 0 for k in s])
    assert staleness.weights(s, "scaled", 4) == pytest.approx([1 / (1 + 0.1 * k) if k <= 4 else 0 for k in s])
    assert staleness.weights(s, "none").tolist() == [1.0] * 12
    assert staleness.drop_share(staleness.weights(s, "scaled", 5)) == 0.5
    assert staleness.effective_sample_size(staleness.weights(s, "none")) == 12
    assert staleness.effective_sample_size(np.zeros(3)) == 0
    with pytest.raises(ValueError, match="one of reciprocal"):
        staleness.weights(s, "exponential")
    with pytest.raises(ValueError, match="newer than its learner"):
        staleness.weights([-1])


def policy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def test_adapters_start_as_the_base_and_count_as_the_formula():
    net, x = policy(), torch.randn(5, 6)
    expected = net(x)
    lora.apply_lora(net, [8, 4])
    assert torch.equal(net(x), expected)
    # Rank of the first layer 6 (its input is that small), then 4, then 2 (the head has two outputs).
    sizes = [(6, 6, 64), (4, 64, 64), (2, 64, 2)]
    assert sum(p.numel() for p in lora.adapter_parameters(net)) == sum(r * (i + o) for r, i, o in sizes)
    again = lora.apply_lora(policy(), 1)
    with pytest.raises(ValueError, match="no linear layer"):
        lora.apply_lora(again, 1)


def test_a_frozen_base_stays_and_a_thawed_one_moves():
    net, x = lora.apply_lora(policy(), 4), torch.randn(5, 6)
    base = [p.clone() for p in lora.base_parameters(net)]
    lora.freeze_base(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(base, lora.base_parameters(net)))
    assert all(p.abs().sum() > 0 for p in lora.adapter_parameters(net))
    lora.thaw_base(net)
    net(x).square().sum().backward()
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(base, lora.base_parameters(net)))


def test_merged_equals_base_and_adapter():
    layer = lora.LoRALinear(nn.Linear(6, 5), 3, alpha=6)
    nn.init.normal_(layer.lora_b)
    x = torch.randn(4, 6)
    assert torch.allclose(layer.merged()(x), layer(x), atol=1e-6)
    with pytest.raises(ValueError, match=r"use 1\.\.5"):
        lora.LoRALinear(nn.Linear(6, 5), 6)
