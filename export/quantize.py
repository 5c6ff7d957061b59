"""Weights as 8-bit integers: the arithmetic, without graphs.

A linear layer's weight is stored per output column as ``int8 * scale``. What decides the scale is not only the largest
weight. Processors without VNNI multiply unsigned activations by signed weights with an instruction (vpmaddubsw) that
adds two neighbouring products in 16 bits and saturates: 255 * 127 + 255 * 127 does not fit, the result is wrong and
nothing tells. Reducing weights to 7 bits everywhere, the usual remedy, gives away a bit that few columns need. Here
each column's scale is the smallest at which no aligned pair of its weights can saturate, whatever the activations are;
the same file then gives the same integers on every processor, with VNNI and without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

VALUES, SCALES = ".int8", ".scale"
"""What is added to a weight's name for the two tensors that take its place."""
LEVELS = 127
"""Largest stored integer; -128 is not used, so that the range is symmetric."""
ACTIVATION_MAX = 255
"""Largest unsigned 8-bit activation."""
INT16_MAX = 32767

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantized:
    """``values * scales`` stands for the original."""

    values: Bytes
    scales: Floats
    """float32, broadcastable to ``values``."""


def quantize_columns(weight: Floats) -> Quantized:
    """A weight (in, out) with one scale for each column: values (in, out) and scales (out,)."""
    scales = np.maximum(np.abs(weight).max(axis=0), _pair_sums(weight)) / LEVELS
    return _rounded(weight, np.where(scales > 0, scales, 1).astype(np.float32))


def quantize_rows(table: Floats) -> Quantized:
    """A table (rows, width) with one scale for each row: values (rows, width) and scales (rows, 1)."""
    scales = np.abs(table).max(axis=1, keepdims=True) / LEVELS
    return _rounded(table, np.where(scales > 0, scales, 1).astype(np.float32))


def largest_pair_product(values: Bytes) -> int:
    """The largest magnitude that two neighbouring products can add up to, over all activations; (in, out) -> int.

    At most ``INT16_MAX`` means that nothing saturates. Neighbours are rows 2k and 2k + 1, as onnxruntime packs them.
    """
    return int(ACTIVATION_MAX * _pair_sums(values.astype(np.int32)).max(initial=0))


def _pair_sums(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(in, out) -> (out,): the largest sum of magnitudes of two neighbours that pull in the same direction."""
    weight = np.concatenate([weight, np.zeros_like(weight[: len(weight) % 2])])
    pairs = weight.reshape(-1, 2, weight.shape[1])
    up = np.maximum(pairs, 0).sum(axis=1).max(axis=0, initial=0)
    down = np.maximum(-pairs, 0).sum(axis=1).max(axis=0, initial=0)
    return np.asarray(np.maximum(up, down))


def _rounded(array: Floats, scales: Floats) -> Quantized:
    values = np.clip(np.rint(array / scales), -LEVELS, LEVELS).astype(np.int8)
    return Quantized(values=values, scales=scales)
