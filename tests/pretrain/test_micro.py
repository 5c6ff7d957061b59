"""Micro-batches: every sample once, packed equal to padded, nothing to predict gives nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoders.heads import MaskedLanguageModel, Model, PretrainingModel
from pretrain.micro import Batcher, digest_of, summed
from pretrain.views import View, ViewSettings
from tests.encoders.oracle import overwrite
from tests.pretrain.stores import store_of
from tests.tiny import tiny_config

CPU = torch.device("cpu")
DOCUMENTS = [[3, 9, 4], [1], [12, 2, 2, 7], [5, 5], [30, 1, 1], [2] * 9]
VIEW = ViewSettings(format="segment-pair", objective="sop", max_length=24)


def batcher(*, packed: bool, micro_tokens: int = 10**6, view: ViewSettings = VIEW) -> Batcher:
    samples = View(store_of(DOCUMENTS, "wordpiece"), view)
    return Batcher(view=samples, micro_tokens=micro_tokens, packed=packed, with_types=True, device=CPU)


def model_of(kind: type[Model]) -> Model:
    config = tiny_config("bert", max_length=24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = kind(replace(config, vocab_size=200))
    overwrite(model)
    return model


def loss_and_gradients(kind: type[Model], batches: Batcher) -> tuple[float, float, dict[str, torch.Tensor]]:
    model = model_of(kind)
    words = pairs = 0.0
    for micro in batches.load(np.arange(batches.view.samples), epoch=1):
        sums = summed(model, micro)
        (sums.words + sums.pairs).backward()  # type: ignore[no-untyped-call]
        words, pairs = words + sums.words.item(), pairs + sums.pairs.item()
    return words, pairs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", [MaskedLanguageModel, PretrainingModel])
def test_packed_padded_and_divided_batches_sum_to_the_same(kind: type[Model]) -> None:
    words, pairs, gradients = loss_and_gradients(kind, batcher(packed=False))
    assert (pairs > 0) == (kind is PretrainingModel)
    for other in (batcher(packed=True), batcher(packed=True, micro_tokens=30), batcher(packed=False, micro_tokens=60)):
        other_words, other_pairs, other_gradients = loss_and_gradients(kind, other)
        assert other_words == pytest.approx(words, rel=1e-6)
        assert other_pairs == pytest.approx(pairs, rel=1e-6)
        assert gradients.keys() == other_gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(other_gradients[name], gradient, rtol=1e-4, atol=3e-5, msg=name)


@given(st.booleans(), st.integers(1, 80), st.integers(0, 3), st.data())
def test_every_sample_is_in_one_micro_batch_and_none_is_too_large(
    packed: bool, micro_tokens: int, epoch: int, data: st.DataObject
) -> None:
    batches = batcher(packed=packed, micro_tokens=micro_tokens)
    ids = np.array(data.draw(st.lists(st.integers(0, batches.view.samples - 1), min_size=1, unique=True)))
    micros = batches.load(ids, epoch)
    assert sum(micro.samples for micro in micros) == len(ids)
    assert sum(micro.tokens for micro in micros) == batches.view.lengths(ids, epoch).sum()
    for micro in micros:
        assert micro.input_ids.numel() <= micro_tokens or micro.samples == 1
        assert (micro.input_ids.numel() == micro.tokens) or not packed
    whole = batches.view.load(ids, epoch)
    assert sum(micro.digest for micro in micros) % 2**64 == digest_of(whole)
    assert sum(micro.attended for micro in micros) == (whole.lengths**2).sum()


def test_the_digest_sees_order_masks_targets_and_labels() -> None:
    view = batcher(packed=True).view
    ids = np.arange(view.samples)
    first = digest_of(view.load(ids, 0))
    assert digest_of(view.load(ids[::-1].copy(), 0)) == first  # a sum over samples
    assert digest_of(view.load(ids, 1)) != first
    samples = view.load(ids, 0)
    for changed in (
        replace(samples, targets=samples.targets + 1),
        replace(samples, pair_labels=1 - samples.pair_labels),
        replace(samples, input_ids=samples.input_ids[::-1].copy()),
        replace(samples, ids=samples.ids + 1),
    ):
        assert digest_of(changed) != first


@pytest.mark.parametrize("packed", [True, False])
def test_a_rank_without_samples_computes_zeros_for_every_parameter(packed: bool) -> None:
    model = model_of(PretrainingModel)
    (micro,) = batcher(packed=packed).load(np.arange(0), epoch=0)
    sums = summed(model, micro)
    (sums.words + sums.pairs).backward()  # type: ignore[no-untyped-call]
    assert float(sums.words) == float(sums.pairs) == 0.0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name
