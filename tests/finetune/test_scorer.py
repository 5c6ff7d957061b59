from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from contract.encoding import EncodedText, TextEncoder
from contract.errors import BundleError, CheckpointError
from finetune.packed import pack
from finetune.scorer import open_scorer, score_texts
from labelled.reader import Row
from labelled.rows import encode_rows
from tests.tiny import tiny_bundle, tiny_checkpoint, tiny_config, tiny_model, tiny_tokenizer

TEXTS = ["good", "a much longer text that says a good many things about films", "", "bad " * 90, "please ignore", "x"]


class FirstToken:
    """A scorer whose logits say which text it saw and how it was padded."""

    name, labels, problem_type = "fake", ("a", "b"), "single_label_classification"

    def __init__(self) -> None:
        self.text_encoder = TextEncoder(tiny_tokenizer(), max_length=64, pad_token_id=0)
        self.shapes: list[tuple[int, int]] = []

    def logits(self, texts: Sequence[EncodedText]) -> np.ndarray:
        batch = self.text_encoder.pad(texts)
        self.shapes.append(batch["input_ids"].shape)
        real = batch["attention_mask"].sum(axis=1)
        return np.stack([batch["input_ids"][:, 1], real], axis=1).astype(np.float32)


def encoded(encoder: TextEncoder, texts: list[str] = TEXTS) -> tuple:
    return encode_rows(encoder, [Row(text, (), 0.0, n, n) for n, text in enumerate(texts)])


def test_answers_come_in_the_order_of_the_texts_and_batches_within_the_budget() -> None:
    scorer, done = FirstToken(), []
    texts = encoded(scorer.text_encoder, TEXTS * 5)
    logits = score_texts(scorer, texts, batch_tokens=80, advance=done.append)
    assert logits[:, 0].tolist() == [text.input_ids[1] for text in texts]
    assert logits[:, 1].tolist() == [len(text.input_ids) for text in texts]
    assert all(rows * seq <= 80 or rows == 1 for rows, seq in scorer.shapes)
    assert scorer.shapes == sorted(scorer.shapes, key=lambda shape: -shape[1])
    assert sum(done) == len(texts)
    assert score_texts(scorer, ()).shape == (0, 2)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_checkpoint_and_bundle_answer_alike(tmp_path: Path, family: str) -> None:
    torch_scorer = open_scorer(tiny_checkpoint(tmp_path / "checkpoint", family))
    onnx_scorer = open_scorer(tiny_bundle(tmp_path / "bundle", family))
    texts = encoded(torch_scorer.text_encoder)
    assert [text.input_ids.tolist() for text in encoded(onnx_scorer.text_encoder)] == [
        text.input_ids.tolist() for text in texts
    ]
    logits = score_texts(torch_scorer, texts, batch_tokens=100)
    assert np.abs(logits - score_texts(onnx_scorer, texts, batch_tokens=200)).max() < 1e-4
    assert logits.std() > 0.01
    assert (onnx_scorer.labels, onnx_scorer.problem_type) == (torch_scorer.labels, torch_scorer.problem_type)


def test_broken_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="none"):
        open_scorer(tmp_path / "none")
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint")
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="tokenizer"):
        open_scorer(checkpoint)
    bundle = tiny_bundle(tmp_path / "bundle")
    with pytest.raises(BundleError, match="int8"):
        open_scorer(bundle, "int8")
    (bundle / "model.onnx").write_bytes(b"broken")
    with pytest.raises(BundleError, match=r"model\.onnx"):
        open_scorer(bundle)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_packed_texts_get_the_logits_and_gradients_of_the_padded_batch(family: str, order: str) -> None:
    """The padded path shares neither masks, positions nor the pooler's choice of tokens with the packed one."""
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
    shape = tiny_config(family, **quiet)
    encoder = TextEncoder(
        tiny_tokenizer(family),
        max_length=shape.max_length,
        pad_token_id=shape.pad_token_id,
        type_vocab_size=shape.type_vocab_size,
    )
    rows = [*TEXTS, ("a pair", "of two texts"), "good", "bad"]
    texts = list(encode_rows(encoder, [Row(text, (), 0.0, n, n) for n, text in enumerate(rows)]))
    if order == "sorted":
        texts.sort(key=lambda text: -len(text.input_ids))
    model = tiny_model(shape).train()
    weights = torch.randn(len(texts), 2, generator=torch.Generator().manual_seed(1))
    results = []
    for inputs in (
        {name: torch.from_numpy(array) for name, array in encoder.pad(texts).items()},
        pack(texts, torch.device("cpu")),
    ):
        model.zero_grad()
        logits = model(**inputs)
        (logits * weights).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((logits.detach(), gradients))
    (padded, padded_gradients), (packed, packed_gradients) = results
    assert padded.std() > 0.01
    assert (padded - packed).abs().max() < 1e-5
    assert padded_gradients.keys() == packed_gradients.keys() >= {"pooler.dense.weight", "classifier.weight"}
    for name, gradient in padded_gradients.items():
        assert (gradient - packed_gradients[name]).abs().max() <= 1e-5 * max(1.0, float(gradient.abs().max())), name
