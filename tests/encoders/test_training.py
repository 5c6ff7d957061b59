"""Seeds, parameter groups, schedules, the metric log."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoders.heads import MaskedLanguageModel, SequenceClassifier
from encoders.training import MetricLog, parameter_groups, schedule, seed_everything
from tests.tiny import tiny_config


def rates(total: int, peak: float = 1.0, **options: Any) -> list[float]:
    """The learning rate that each update used."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    decay = schedule(optimizer, total_steps=total, **options)
    used = []
    for _ in range(total):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        decay.step()
    return used


def test_the_table_of_rates() -> None:
    expected = [u / 10 if u <= 10 else (100 - u) / 90 for u in range(1, 101)]
    assert rates(100, warmup_steps=10) == pytest.approx(expected)


@given(st.integers(1, 200), st.data(), st.sampled_from(("linear", "polynomial", "constant")))
def test_no_step_at_the_seam(total: int, data: st.DataObject, kind: str) -> None:
    warmup = data.draw(st.integers(0, total))
    used = rates(total, warmup_steps=warmup, kind=kind, power=2.0)
    assert used[0] > 0 or (warmup == 0 and total == 1)
    assert max(used) <= 1.0
    if warmup:
        assert used[warmup - 1] == 1.0
        assert all(b - a == pytest.approx(1 / warmup) for a, b in pairwise(used[:warmup]))
    after = used[max(warmup - 1, 0) :]
    assert all(a >= b for a, b in pairwise(after))
    steepest = 2 / max(total - warmup, 1)
    assert all(a - b <= steepest + 1e-9 for a, b in pairwise(after))
    if kind != "constant" and total > warmup:
        assert used[-1] == 0.0


def test_polynomial_is_a_power_of_linear() -> None:
    linear, cubic = rates(50, kind="linear"), rates(50, kind="polynomial", power=3.0)
    assert cubic == pytest.approx([rate**3 for rate in linear])


def test_a_schedule_resumes_where_it_stopped() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    decay = schedule(optimizer, total_steps=100, warmup_steps=10)
    for _ in range(37):
        optimizer.step()
        decay.step()
    again = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    resumed = schedule(again, total_steps=100, warmup_steps=10)
    again.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(decay.state_dict())
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == pytest.approx((100 - 38) / 90)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("head", [SequenceClassifier, MaskedLanguageModel])
def test_matrices_decay_and_the_rest_does_not(family: str, head: Any) -> None:
    model = head(tiny_config(family))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, plain = ({names[id(parameter)] for parameter in group["params"]} for group in parameter_groups(model, 0.1))
    assert [group["weight_decay"] for group in parameter_groups(model, 0.1)] == [0.1, 0.0]
    assert plain == {name for name in names.values() if name.endswith("bias") or ".norm." in name}
    assert decayed | plain == set(names.values())
    assert len(decayed) + len(plain) == len(names)  # each parameter once, shared or not


def test_frozen_parameters_are_left_out() -> None:
    model = SequenceClassifier(tiny_config("bert"))
    model.encoder.requires_grad_(False)
    parameters = [parameter for group in parameter_groups(model, 0.1) for parameter in group["params"]]
    assert len(parameters) == 4  # pooler and classifier


def test_one_seed_decides_every_generator() -> None:
    def draw() -> tuple[float, float, float]:
        seed_everything(2**40 + 7)
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    assert draw() == draw()


def test_a_seed_decides_a_model_from_scratch() -> None:
    def weights(seed: int) -> torch.Tensor:
        seed_everything(seed)
        return torch.cat([p.detach().flatten() for p in SequenceClassifier(tiny_config("albert")).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_first_values_are_berts() -> None:
    model = MaskedLanguageModel(tiny_config("roberta", hidden_size=64, initializer_range=0.05))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not bool(parameter.any()), name
        elif ".norm." in name:
            assert bool((parameter == 1).all()), name
        elif parameter.numel() > 1000:
            assert float(parameter.detach().std()) == pytest.approx(0.05, rel=0.1), name
    embeddings = model.encoder.embeddings
    for table in (embeddings.word, embeddings.position):
        assert not bool(table.weight[model.config.pad_token_id].any())


def test_the_metric_log_appends_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricLog(path) as log:
        log.write(step=1, loss=0.5, label="für")
        assert json.loads(path.read_text(encoding="utf-8")) == {"step": 1, "loss": 0.5, "label": "für"}  # flushed
    with MetricLog(path) as log:
        log.write(step=2, loss=0.25)
    assert [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").splitlines()] == [1, 2]
