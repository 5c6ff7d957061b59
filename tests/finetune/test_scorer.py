from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from contract.encoding import Ids, TextEncoder
from contract.errors import BundleError, CheckpointError
from finetune.scorer import open_scorer, score_texts
from labelled.reader import Row
from labelled.rows import encode_rows
from tests.tiny import tiny_bundle, tiny_checkpoint, tiny_tokenizer

TEXTS = ["good", "a much longer text that says a good many things about films", "", "bad " * 90, "please ignore", "x"]


class FirstToken:
    """A scorer whose logits say which text it saw and how it was padded."""

    name, labels, problem_type, renames = "fake", ("a", "b"), "single_label_classification", {}

    def __init__(self) -> None:
        self.text_encoder = TextEncoder(tiny_tokenizer(), max_length=64, pad_token_id=0)
        self.shapes: list[tuple[int, int]] = []

    def logits(self, batch: Mapping[str, Ids]) -> np.ndarray:
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
