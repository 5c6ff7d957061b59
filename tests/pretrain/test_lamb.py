"""LAMB against its two published definitions, written out in numpy, and against the cases that break other versions."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pretrain.lamb import Lamb, Variant

VARIANTS: tuple[Variant, ...] = ("google", "nvidia")


def oracle_step(
    weights: list[np.ndarray], gradients: list[np.ndarray], state: dict[str, Any], variant: str, lr: float, decay: float
) -> None:
    """The published formulas, in float64; the last array is a bias: no decay, no ratio."""
    state["t"] = state.get("t", 0) + 1
    if variant == "nvidia":
        total = np.sqrt(sum((g**2).sum() for g in gradients))
        gradients = [g / total for g in gradients]
    for index, (w, g) in enumerate(zip(weights, gradients, strict=True)):
        is_bias = index == len(weights) - 1
        m = state[f"m{index}"] = 0.9 * state.get(f"m{index}", 0) + 0.1 * g
        v = state[f"v{index}"] = 0.999 * state.get(f"v{index}", 0) + 0.001 * g**2
        if variant == "nvidia":
            m, v = m / (1 - 0.9 ** state["t"]), v / (1 - 0.999 ** state["t"])
        u = m / (np.sqrt(v) + 1e-6) + (0 if is_bias else decay * w)
        ratio = 1.0
        if not is_bias and np.linalg.norm(w) > 0 and np.linalg.norm(u) > 0:
            ratio = np.linalg.norm(w) / np.linalg.norm(u)
        w -= lr * ratio * u


def optimizer(parameters: list[nn.Parameter], variant: Variant, lr: float = 0.1, decay: float = 0.01) -> Lamb:
    groups = [{"params": parameters[:-1]}, {"params": parameters[-1:], "weight_decay": 0.0}]
    return Lamb(groups, lr=lr, weight_decay=decay, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ten_steps_equal_the_published_formula(variant: Variant) -> None:
    random = np.random.default_rng(0)
    weights = [random.normal(size=(3, 4)), random.normal(size=(4, 2)) * 5, random.normal(size=(3,))]
    parameters = [nn.Parameter(torch.tensor(w, dtype=torch.float32)) for w in weights]
    lamb = optimizer(parameters, variant)
    state: dict[str, Any] = {}
    for _ in range(10):
        gradients = [random.normal(size=w.shape) for w in weights]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        lamb.step()
        oracle_step(weights, gradients, state, variant, lr=0.1, decay=0.01)
    for parameter, expected in zip(parameters, weights, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=2e-5, atol=2e-6)


def one_step(variant: Variant, weight: Tensor, gradient: Tensor, **settings: Any) -> Tensor:
    parameter = nn.Parameter(weight.clone())
    parameter.grad = gradient
    Lamb([parameter], variant=variant, **settings).step()
    return parameter.detach()


def test_a_tensor_of_zeros_moves_by_the_learning_rate() -> None:
    """B56."""
    # nvidia's corrected moments give an update of exactly 1 for a single element; google's first update is
    # 0.1 / (sqrt(0.001) + eps)
    moved = one_step("nvidia", torch.zeros(1), torch.ones(1), lr=0.1, weight_decay=0.0)
    assert moved.item() == pytest.approx(-0.1, rel=1e-4)
    moved = one_step("google", torch.zeros(1), torch.ones(1), lr=0.1, weight_decay=0.0)
    assert moved.item() == pytest.approx(-0.1 * 0.1 / 0.001**0.5, rel=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_zero_gradient_without_decay_changes_nothing(variant: Variant) -> None:
    weight = torch.tensor([1.0, -2.0])
    assert one_step(variant, weight, torch.zeros(2), lr=0.1, weight_decay=0.0).tolist() == weight.tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_changes_the_result(variant: Variant) -> None:
    weight, gradient = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.3, -0.1]])
    plain: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.01}
    base = one_step(variant, weight, gradient, **plain)
    settings = [{"lr": 0.2}, {"weight_decay": 0.5}, {"eps": 0.1}]
    for change in settings:
        assert not torch.equal(base, one_step(variant, weight, gradient, **(plain | change))), change
    assert not torch.equal(base, one_step("nvidia" if variant == "google" else "google", weight, gradient, **plain))


def test_google_is_not_moved_by_the_scale_of_the_other_tensors_gradient_and_nvidia_is() -> None:
    def after(variant: Variant, other: float) -> Tensor:
        first, second = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.ones(2))
        lamb = Lamb([first, second], lr=0.1, weight_decay=0.1, eps=0.1, variant=variant)
        first.grad, second.grad = torch.tensor([0.3, -0.1]), torch.tensor([other, other])
        lamb.step()
        return first.detach()

    assert torch.equal(after("google", 1.0), after("google", 100.0))
    assert not torch.equal(after("nvidia", 1.0), after("nvidia", 100.0))


@pytest.mark.parametrize("variant", VARIANTS)
def test_state_survives_saving_bit_for_bit(variant: Variant) -> None:
    def make() -> tuple[list[nn.Parameter], Lamb]:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(2))]
        return parameters, optimizer(parameters, variant)

    def step(parameters: list[nn.Parameter], lamb: Lamb, number: int) -> None:
        torch.manual_seed(number)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        lamb.step()

    whole, lamb = make()
    for number in range(6):
        step(whole, lamb, number)
    first, stopped = make()
    for number in range(3):
        step(first, stopped, number)
    second, resumed = make()
    resumed.load_state_dict(stopped.state_dict())
    for parameter, value in zip(second, first, strict=True):
        parameter.data.copy_(value.data)
    for number in range(3, 6):
        step(second, resumed, number)
    assert all(torch.equal(a, b) for a, b in zip(whole, second, strict=True))


def test_half_precision_gradients_are_squared_in_full_precision() -> None:
    weight, gradient = torch.ones(4, dtype=torch.float16), torch.full((4,), 1e-4, dtype=torch.float16)
    moved = one_step("nvidia", weight, gradient, lr=0.1, weight_decay=0.0)
    assert torch.isfinite(moved).all()
    assert (moved < 1).all()
