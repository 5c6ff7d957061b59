"""Packed texts against the same texts alone and padded: outputs, losses and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from contract.errors import UsageError
from encoders.config import EncoderConfig
from encoders.heads import MaskedLanguageModel, PretrainingModel
from encoders.packing import Packing, Run, join_runs, split_runs
from tests.encoders.oracle import overwrite
from tests.encoders.tolerances import INVARIANCE, PARITY
from tests.tiny import tiny_config

LENGTHS = (5, 1, 4, 4, 9, 4)
SHAPES: dict[str, Callable[[], EncoderConfig]] = {
    "bert": lambda: tiny_config("bert", **NO_DROPOUT),
    "roberta": lambda: tiny_config("roberta", **NO_DROPOUT),
    "albert": lambda: tiny_config("albert", **NO_DROPOUT),
    "bert-plain": lambda: tiny_config("bert", attention="plain", **NO_DROPOUT),
}
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def texts(config: EncoderConfig, seed: int = 3) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(5, config.vocab_size, (length,), generator=generator) for length in LENGTHS]
    types = [torch.randint(0, config.type_vocab_size, (length,), generator=generator) for length in LENGTHS]
    return ids, types


def padded(config: EncoderConfig, ids: list[Tensor], types: list[Tensor]) -> dict[str, Tensor]:
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones_like(text) for text in ids], batch_first=True)
    return {
        "input_ids": pad(ids, batch_first=True, padding_value=config.pad_token_id),
        "attention_mask": mask,
        "token_type_ids": pad(types, batch_first=True),
    }


def packed(ids: list[Tensor], types: list[Tensor]) -> dict[str, Any]:
    return {
        "input_ids": torch.cat(ids).unsqueeze(0),
        "token_type_ids": torch.cat(types).unsqueeze(0),
        "packing": Packing(LENGTHS),
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_each_packed_text_gets_the_vectors_that_it_gets_alone(shape: str) -> None:
    config = SHAPES[shape]()
    model = MaskedLanguageModel(config).eval()
    overwrite(model)
    ids, types = texts(config)
    together = model.encoder(**packed(ids, types))[0].split(LENGTHS)
    for row, text, kinds in zip(together, ids, types, strict=True):
        alone = model.encoder(text.unsqueeze(0), None, kinds.unsqueeze(0))[0]
        torch.testing.assert_close(row, alone, rtol=0, atol=INVARIANCE)


@pytest.mark.parametrize("shape", ["bert", "albert"])
def test_losses_and_gradients_of_packed_and_padded_texts_are_equal(shape: str) -> None:
    config = SHAPES[shape]()
    model = PretrainingModel(config)
    overwrite(model)
    ids, types = texts(config)
    row = torch.tensor([0, 4, 6, 9, 22, 26])  # places in the packed row: firsts, lasts, and one in the middle
    lengths, starts = torch.tensor(LENGTHS), Packing(LENGTHS).starts()
    text = torch.searchsorted(starts, row, right=True) - 1
    in_rectangle = text * lengths.max() + row - starts[text]
    targets, order = torch.tensor([7, 8, 9, 10, 11, 12]), torch.tensor([0, 1, 1, 0, 1, 0])

    def run(inputs: dict[str, Any], positions: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad()
        words, sentences = model(**inputs, positions=positions)
        loss = torch.nn.functional.cross_entropy(words, targets)
        (loss + torch.nn.functional.cross_entropy(sentences, order)).backward()
        return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    loss, gradients = run(packed(ids, types), row)
    expected_loss, expected = run(padded(config, ids, types), in_rectangle)
    torch.testing.assert_close(loss, expected_loss, rtol=0, atol=PARITY)
    assert gradients.keys() == expected.keys() == {name for name, _ in model.named_parameters()}
    for name in expected:
        torch.testing.assert_close(gradients[name], expected[name], rtol=1e-4, atol=PARITY, msg=name)


def test_scores_at_chosen_positions_are_those_of_the_full_head() -> None:
    config = SHAPES["roberta"]()
    model = MaskedLanguageModel(config).eval()
    overwrite(model)
    ids, types = texts(config)
    positions = torch.tensor([26, 0, 5])
    everywhere = model(**packed(ids, types))[0]
    chosen = model(**packed(ids, types), positions=positions)
    torch.testing.assert_close(chosen, everywhere[positions], rtol=0, atol=INVARIANCE)
    assert model(**packed(ids, types), positions=positions[:0]).shape == (0, config.vocab_size)


def test_a_packed_text_that_is_too_long_is_refused() -> None:
    model = MaskedLanguageModel(tiny_config("roberta", max_length=8))
    row = torch.full((1, 12), 9)
    model(row, packing=Packing((8, 4)))
    with pytest.raises(UsageError, match="9 tokens and the model has positions for 8"):
        model(row, packing=Packing((9, 3)))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_runs_cover_the_row_and_join_to_it_again(lengths: list[int]) -> None:
    packing = Packing(tuple(lengths))
    assert [run.tokens for run in packing.runs for _ in range(run.texts)] == lengths
    row = torch.arange(packing.tokens * 2.0).view(1, packing.tokens, 2)
    torch.testing.assert_close(join_runs(split_runs(row, packing)), row, rtol=0, atol=0)
    assert packing.positions()[0].tolist() == [place for length in lengths for place in range(length)]
    assert packing.starts().tolist() == [sum(lengths[:text]) for text in range(len(lengths))]


def test_neighbours_of_equal_length_make_one_run() -> None:
    assert Packing((4, 4, 2, 4)).runs == (Run(2, 4), Run(1, 2), Run(1, 4))
