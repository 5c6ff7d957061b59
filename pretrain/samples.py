"""A batch of training samples, without padding; how to pad it, and how to look at one sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
NO_LABEL = -100
"""Pair label of a sample without a second segment; PyTorch's cross-entropy ignores it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Padded:
    """A batch as a rectangle."""

    input_ids: Ints
    """(batch, seq)"""
    attention_mask: npt.NDArray[np.bool_]
    """(batch, seq) true for a real token"""
    token_type_ids: Ints
    """(batch, seq)"""
    masked_positions: Ints
    """(masked,) places in the flattened (batch * seq,) rectangle"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """A batch as one row: the samples one after another."""

    ids: Ints
    """(batch,) number of each sample in its view"""
    lengths: Ints
    """(batch,) tokens of each sample, special tokens included"""
    input_ids: Ints
    """(tokens,) with masked tokens replaced"""
    token_type_ids: Ints
    """(tokens,) segment types"""
    masked_positions: Ints
    """(masked,) places in ``input_ids``, rising"""
    targets: Ints
    """(masked,) the original ids there"""
    pair_labels: Ints
    """(batch,) next sentence: 0 it follows, 1 it is from another document; sentence order: 0 original, 1 swapped;
    ``NO_LABEL`` where there is no pair or no such objective"""
    maskable: npt.NDArray[np.bool_]
    """(batch,) false for a sample that has nothing but special and unknown tokens, so that nothing could be masked"""

    @property
    def starts(self) -> Ints:
        """(batch,) first token of each sample in ``input_ids``."""
        return np.cumsum(self.lengths) - self.lengths

    def padded(self, pad_id: int, *, multiple_of: int = 1) -> Padded:
        """The batch as a rectangle, padded on the right.

        Args:
            pad_id: id at padded positions.
            multiple_of: the width is a multiple of this.
        """
        width = -(-int(self.lengths.max(initial=1)) // multiple_of) * multiple_of
        real = np.arange(width) < self.lengths[:, None]  # (batch, seq)
        places = np.flatnonzero(real)  # row by row, as the tokens lie
        input_ids = np.full(real.shape, pad_id, dtype=np.int64)
        token_type_ids = np.zeros(real.shape, dtype=np.int64)
        input_ids.flat[places] = self.input_ids
        token_type_ids.flat[places] = self.token_type_ids
        return Padded(
            input_ids=input_ids,
            attention_mask=real,
            token_type_ids=token_type_ids,
            masked_positions=places[self.masked_positions],
        )

    def original_ids(self) -> Ints:
        """(tokens,) the ids before masking."""
        ids = self.input_ids.copy()
        ids[self.masked_positions] = self.targets
        return ids
