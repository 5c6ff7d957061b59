"""Attention: two paths that agree, masks that mean what they say, half precision, and what padding must not change."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.attention import attend
from encoders.config import EncoderConfig
from encoders.heads import SequenceClassifier
from tests.encoders.oracle import inputs, overwrite
from tests.encoders.tolerances import HALF, INVARIANCE, PATHS
from tests.tiny import tiny_config

FAMILIES = ("bert", "roberta", "albert")


def model(config: EncoderConfig) -> SequenceClassifier:
    built = SequenceClassifier(config).eval()
    overwrite(built)
    return built


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_and_fused_agree_in_values_and_gradients(family: str) -> None:
    config = tiny_config(family)
    models = [model(replace(config, attention=path)) for path in ("plain", "fused")]  # type: ignore[arg-type]
    plain, fused = (built(**inputs(config)) for built in models)
    assert torch.allclose(plain, fused, atol=PATHS)
    for output in (plain, fused):
        output.square().mean().backward()
    for (name, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.allclose(a.grad, b.grad, atol=PATHS), name


@pytest.mark.parametrize("path", ["plain", "fused"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_without_any_token_stays_finite_and_disturbs_no_other(family: str, path: Any) -> None:
    built = model(tiny_config(family, attention=path))
    batch = inputs(built.config)
    expected = built(**batch)
    batch["attention_mask"][2] = 0
    output = built(**batch)
    assert bool(output.isfinite().all())
    assert torch.allclose(output[:2], expected[:2], atol=INVARIANCE)
    output.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in built.parameters() if p.grad is not None)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["none", "right padding", "all padding"])
def test_half_precision(mask: str, dtype: torch.dtype, fused: bool) -> None:
    """B58."""
    generator = torch.Generator().manual_seed(0)
    query, key = ((5 * torch.randn(2, 4, 7, 5, generator=generator)).to(dtype).float() for _ in range(2))
    value = 2 * torch.rand(2, 4, 7, 5, generator=generator) - 1
    scores = query @ key.mT / 5**0.5
    assert scores.min() < -40
    assert scores.max() > 40
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    attention_mask = {"none": None, "right padding": real, "all padding": torch.zeros_like(real)}[mask]
    if attention_mask is not None:
        attention_mask = attention_mask[:, None, None, :]
    output = attend(query.to(dtype), key.to(dtype), value.to(dtype), attention_mask, dropout=0.0, fused=fused)
    assert output.dtype == dtype
    assert bool(output.isfinite().all())
    if mask == "all padding":
        if dtype == torch.float32:  # in half precision, the scores are not lost beside the lowest number
            assert torch.allclose(output, value.mean(-2, keepdim=True).expand_as(value), atol=PATHS)
        return
    allowed = scores if attention_mask is None else scores.masked_fill(~attention_mask, -torch.inf)
    expected = allowed.softmax(-1) @ value
    if fused or dtype == torch.float32:  # written out, bfloat16 rounds a score of 50 to quarters
        assert float((output.float() - expected).abs().max()) <= HALF
    if attention_mask is not None:  # masked values get weight 0, whatever they are
        value[1, :, 4:] = 1e4
        again = attend(query.to(dtype), key.to(dtype), value.to(dtype), attention_mask, dropout=0.0, fused=fused)
        assert torch.equal(again, output)


@pytest.mark.parametrize("fused", [True, False])
def test_masked_keys_get_no_weight_however_low_the_real_scores_are(fused: bool) -> None:
    key = torch.full((1, 1, 3, 1), -300.0)
    value = torch.tensor([1.0, 2.0, 1e9]).reshape(1, 1, 3, 1)
    real = torch.tensor([True, True, False]).reshape(1, 1, 1, 3)
    assert torch.equal(attend(-key, key, value, real, dropout=0.0, fused=fused), torch.full((1, 1, 3, 1), 1.5))


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_of_attention_weights(fused: bool) -> None:
    torch.manual_seed(0)
    ones = torch.ones(1, 1, 2000, 4)
    dropped = attend(ones, ones, ones, None, dropout=0.5, fused=fused)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(dropped.std()) > 0.01
    model = SequenceClassifier(tiny_config("bert", attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0)).train()
    batch = inputs(model.config)
    assert not torch.equal(model(**batch), model(**batch))
    assert torch.equal(model.eval()(**batch), model(**batch))


@settings(max_examples=30, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    extra=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_padding_and_batch_mates_change_nothing(family: str, lengths: list[int], extra: int, seed: int) -> None:
    built = model(tiny_config(family))
    pad = built.config.pad_token_id
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) + extra
    ids = torch.randint(10, built.config.vocab_size, (len(lengths), width), generator=generator)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    with torch.inference_mode():
        together = built(ids.where(mask, pad), mask)
        alone = torch.cat([built(row[None, :length]) for row, length in zip(ids, lengths, strict=True)])
        rubbish = built(torch.where(mask, ids, 7 if family == "roberta" else ids), mask)
    assert torch.allclose(together, alone, atol=INVARIANCE)
    if family != "roberta":  # there, what is padding is told by the ids too
        assert torch.allclose(rubbish, alone, atol=INVARIANCE)


def test_roberta_is_indifferent_to_where_padding_stands() -> None:
    built = model(tiny_config("roberta"))
    pad = built.config.pad_token_id
    text = torch.tensor([0, 41, 52, 63, 2])
    rows = torch.full((3, 8), pad)
    rows[0, :5] = text
    rows[1, 3:] = text
    rows[2, [1, 2, 4, 5, 7]] = text
    right, left, scattered = built(rows, rows != pad)
    assert torch.allclose(right, left, atol=INVARIANCE)
    assert torch.allclose(right, scattered, atol=INVARIANCE)


@pytest.mark.parametrize("family", ["roberta", "albert"])
def test_exported_with_one_shape_and_run_with_another(family: str) -> None:
    built = model(tiny_config(family))
    batch = inputs(built.config)
    axes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("seq", min=1, max=built.config.max_length)}
    program = torch.export.export(built, (), batch, dynamic_shapes=dict.fromkeys(batch, axes)).module()
    longer = {name: torch.cat([tensor, tensor], dim=1).repeat(2, 1) for name, tensor in batch.items()}
    single = {name: tensor[:1, :1] for name, tensor in batch.items()}
    for other in (longer, single):
        assert torch.allclose(program(**other), built(**other), atol=INVARIANCE)
