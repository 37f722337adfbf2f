"""The token environment: its task, its rewards, its observations, and the figure that it turns on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from rlbench.analyse.figures import analyse_trial  # noqa: E402
from rlbench.catalog.scenario import load_scenario  # noqa: E402
from rlbench.probe.env import TapEnv, make_plain  # noqa: E402
from rlbench.probe.taps import Taps  # noqa: E402
from rlbench.probe.tokens import Tokens, tokens_of  # noqa: E402

ID = "rlbench.probe.tokens:Tokens-v0"


def episode(env: Any, completion: list[int], **reset: Any) -> list[float]:
    env.reset(**reset)
    return [env.step(token)[1] for token in completion]


@pytest.mark.parametrize(
    ("prompt", "completion", "rewards"),
    [
        ([3, 0, 2, 0, 1], [0, 0, 1, 2, 3], [0.2, 0.2, 0.2, 0.2, 0.2]),
        ([3, 0, 2, 0, 1], [3, 0, 2, 0, 1], [0, 0.2, 0, 0, 0]),
        ([3, 0, 2, 0, 1], [0, 0, 1, 2, 31], [0.2, 0.2, 0.2, 0.2, 0]),
        ([1, 1, 1, 1, 1], [31, 1, 31, 1, 31], [0, 0.2, 0, 0.2, 0]),
        ([31, 30, 29, 28, 27], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0]),
    ],
)
def test_known_completions_have_known_rewards(prompt: list[int], completion: list[int], rewards: list[float]) -> None:
    assert episode(Tokens(), completion, options={"prompt": prompt}) == pytest.approx(rewards)


def test_prompt_and_completion_have_fixed_lengths() -> None:
    env = Tokens(length=7, digits=3)
    for seed in range(20):
        env.reset(seed=seed)
        ends = [env.step(0)[2:4] for _ in range(7)]
        assert ends == [(False, False)] * 6 + [(True, False)]
        assert len(env.prompt) == len(env.completion) == 7
        assert set(env.prompt) <= {0, 1, 2}
        with pytest.raises(RuntimeError, match="reset"):
            env.step(0)


def test_the_seed_decides_the_prompts() -> None:
    def prompts(seed: int) -> list[list[int]]:
        env = Tokens()
        env.reset(seed=seed)
        return [env.prompt] + [env.prompt for _ in range(10) if env.reset()]

    assert prompts(1) == prompts(1)
    assert prompts(1) != prompts(2)
    assert len({tuple(prompt) for prompt in prompts(1)}) == 11


def test_a_policy_that_sorts_what_it_observes_gets_the_maximum(tmp_path: Path) -> None:
    """From the stamped observation alone, as a library sees it."""
    env = TapEnv(make_plain(ID, {}), str(tmp_path), 5)
    for seed in range(50):
        observation, total, over = env.reset(seed=seed)[0], 0.0, False
        while not over:
            prompt, completion = tokens_of(observation, 5, 32)
            observation, reward, over, _, _ = env.step(sorted(prompt)[len(completion)])
            total += reward
        assert total == pytest.approx(1.0)


def test_random_tokens_earn_one_in_the_vocabulary() -> None:
    env = Tokens()
    env.action_space.seed(0)
    total = sum(sum(episode(env, [env.action_space.sample() for _ in range(5)], seed=seed)) for seed in range(4000))
    assert total / 4000 == pytest.approx(1 / 32, rel=0.1)


def test_observations_tell_every_state_apart_and_fit_their_space() -> None:
    env = Tokens(length=2, digits=2, vocabulary=3)
    seen = set()
    for prompt in itertools.product(range(2), repeat=2):
        for completion in itertools.product(range(3), repeat=2):
            observations = [env.reset(options={"prompt": prompt})[0]]
            observations += [env.step(token)[0] for token in completion]
            for written, observation in enumerate(observations):
                assert env.observation_space.contains(observation)
                assert tokens_of(observation, 2, 3) == (list(prompt), list(completion[:written]))
                seen.add(observation.tobytes())
    assert len(seen) == 4 * (1 + 3 + 9)


def test_stamps_fall_on_elements_that_are_never_zero() -> None:
    """Else they would turn into denormal numbers, which processors are slow with."""
    env = make_plain(ID, {})
    observations = [env.reset(seed=0)[0]] + [env.step(0)[0] for _ in range(5)]
    assert env.observation_space.shape == (171,)
    assert all((np.abs(observation[:6]) > 0.01).all() for observation in observations)


def test_observations_are_the_callers_own() -> None:
    env = Tokens()
    first = env.reset(seed=0)[0]
    kept = first.copy()
    env.step(3)
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("wrong", [{"digits": 0}, {"digits": 33}, {"length": 0}])
def test_wrong_sizes_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Tokens(**wrong)


@pytest.mark.parametrize("prompt", [[1, 2], [1, 2, 3, 4, 32], [-1, 2, 3, 4, 5]])
def test_wrong_prompts_are_named(prompt: list[int]) -> None:
    with pytest.raises(ValueError, match="not 5 tokens below 32"):
        Tokens().reset(options={"prompt": prompt})


def test_it_declares_that_a_step_is_a_token() -> None:
    assert make_plain(ID, {}).metadata["tokens_per_step"] == 1
    assert "tokens_per_step" not in make_plain("CartPole-v1", {}).metadata


@pytest.mark.parametrize("tokens_per_step", [1, None])
def test_tokens_per_second_are_steps_per_second_where_a_step_is_a_token(
    tmp_path: Path, tokens_per_step: int | None
) -> None:
    env = TapEnv(make_plain(ID, {}), str(tmp_path), 0)
    taps = Taps(str(tmp_path), "float6", 171)
    weights = np.zeros(4, np.float32)
    for _ in range(3):
        observations = [env.reset()[0]]
        for token in range(5):
            taps.acted(observations[-1][None], weights)
            observations.append(env.step(token)[0])
        taps.learned(np.stack(observations[:-1]))
        weights += 1
        taps.updated(weights)
    taps.describe()
    row, _ = analyse_trial(tmp_path, load_scenario("tokens-ppo"), {"tokens_per_step": tokens_per_step}, [], 1.0, {})
    assert row["env_steps"] == 15
    if tokens_per_step:
        assert row["tokens_per_s"] == row["env_steps_per_s"] > 0
    else:
        assert row["tokens_per_s"] is None
        assert json.loads(row["null_reasons"])["tokens_per_s"] == "not a token environment"
