"""Texts to logits with a checkpoint (PyTorch) or a bundle (onnxruntime), behind one interface.

``evaluate`` and ``predict`` do not know which of the two they hold, so both are measured by the same code. A bundle is
scored without importing torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from contract.encoding import EncodedText, TextEncoder
from contract.manifest import MANIFEST_NAME
from contract.scores import Array, Calibration, ProblemType
from finetune.batches import budget_batches

BATCH_TOKENS = 8192
"""Padded tokens of one batch in inference."""


class Scorer(Protocol):
    """A model that is ready to answer."""

    name: str
    """For messages and tables."""
    labels: tuple[str, ...]
    problem_type: ProblemType
    text_encoder: TextEncoder
    renames: Mapping[str, str]
    """Class names for labels of the files that the model was trained on, where they differ."""
    calibration: Calibration
    """How its logits become scores and labels."""
    trained_on: Mapping[str, str]
    """sha256 of files -> "train" or "dev"; see ``trained_on.py``."""

    def logits(self, texts: Sequence[EncodedText]) -> Array:
        """One batch of texts, best of like length -> float32 (batch, labels)."""
        ...


def score_texts(
    scorer: Scorer,
    texts: Sequence[EncodedText],
    *,
    batch_tokens: int = BATCH_TOKENS,
    advance: Callable[[int], None] = lambda rows: None,
) -> Array:
    """Logits float32 (texts, labels) in the order of the texts, which are batched by length.

    Args:
        scorer: the model.
        texts: encoded with ``scorer.text_encoder``.
        batch_tokens: most tokens of a batch, padding included; one text may exceed it.
        advance: called with the number of texts that were scored since the last call.
    """
    logits = np.zeros((len(texts), len(scorer.labels)), dtype=np.float32)
    for batch in budget_batches([len(text.input_ids) for text in texts], batch_tokens):
        logits[batch] = scorer.logits([texts[index] for index in batch])
        advance(len(batch))
    return logits


def open_scorer(folder: Path, precision: str = "fp32") -> Scorer:
    """The scorer for a model folder: onnxruntime if it is a bundle, else PyTorch.

    Raises:
        BundleError: it is a bundle and broken, or has no graph of that precision.
        CheckpointError: it is not a complete classifier.
    """
    # inside the function: each of the two needs an engine that the other does not
    if (folder / MANIFEST_NAME).exists():
        from finetune.onnx_scorer import OnnxScorer

        return OnnxScorer.open(folder, precision)
    from finetune.torch_scorer import TorchScorer

    return TorchScorer.open(folder)
