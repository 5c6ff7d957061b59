"""The cost of engine calls is learned."""

import numpy as np
import pytest

from service.cost import CostModel


def test_nothing_is_known_at_first() -> None:
    assert CostModel().seconds(1000) == 0


def test_a_line_is_recovered_from_noisy_calls() -> None:
    random = np.random.default_rng(0)
    model = CostModel()
    for tokens in random.integers(10, 1000, 200).tolist():
        model.observe(tokens, (0.004 + 0.0002 * tokens) * random.uniform(0.95, 1.05))
    assert model.seconds(500) == pytest.approx(0.104, rel=0.03)
    assert model.seconds(10) == pytest.approx(0.006, rel=0.5)


def test_calls_of_one_size_say_what_a_token_costs() -> None:
    model = CostModel()
    for _ in range(5):
        model.observe(100, 0.2)
    assert model.seconds(50) == pytest.approx(0.1)


def test_noise_never_makes_more_tokens_cheaper() -> None:
    model = CostModel()
    model.observe(10, 0.5)
    model.observe(100, 0.1)
    assert 0 < model.seconds(10) < model.seconds(100)


def test_a_machine_that_gets_slower_is_followed() -> None:
    model = CostModel()
    for tokens in (50, 100, 150) * 20:
        model.observe(tokens, 0.001 * tokens)
    for tokens in (50, 100, 150) * 40:
        model.observe(tokens, 0.003 * tokens)
    assert model.seconds(100) == pytest.approx(0.3, rel=0.05)
