"""Rows as what a model takes: token ids, and targets as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.encoding import EncodedText, TextEncoder
from contract.scores import ProblemType
from labelled.labels import LabelSet
from labelled.reader import Row

CHUNK_ROWS = 2048
"""Rows that are tokenised between two signs of life."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Texts and targets of one data set, tokenised once."""

    texts: tuple[EncodedText, ...]
    targets: npt.NDArray[Any]
    """See ``targets_of``."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text, special tokens included."""
        return [len(text.input_ids) for text in self.texts]

    @property
    def truncated(self) -> int:
        """How many texts lost tokens."""
        return sum(text.truncated for text in self.texts)

    @property
    def cut_tokens(self) -> int:
        """How many tokens they lost together."""
        return sum(text.full_length - len(text.input_ids) for text in self.texts)


def encode_rows(
    text_encoder: TextEncoder, rows: Sequence[Row], advance: Callable[[int], None] = lambda rows: None
) -> tuple[EncodedText, ...]:
    """Tokenise rows in order.

    Args:
        text_encoder: the model's.
        rows: the texts.
        advance: called with the number of rows that were done since the last call.
    """
    encoded: list[EncodedText] = []
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        encoded += text_encoder.encode_batch([row.text for row in part])
        advance(len(part))
    return tuple(encoded)


def targets_of(rows: Sequence[Row], labels: LabelSet, problem_type: ProblemType) -> npt.NDArray[Any]:
    """What the logits should be: (rows,) int64 class numbers for one label, float32 (rows, labels) of 0 and 1 for
    several, float32 (rows, 1) for regression.
    """  # noqa: D205
    match problem_type:
        case "single_label_classification":
            return np.array([labels.index(row.labels[0]) for row in rows], dtype=np.int64)
        case "multi_label_classification":
            given = np.zeros((len(rows), len(labels.names)), dtype=np.float32)
            for number, row in enumerate(rows):
                given[number, [labels.index(label) for label in row.labels]] = 1.0
            return given
        case "regression":
            return np.array([[row.value] for row in rows], dtype=np.float32)
