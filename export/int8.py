"""The graph with 8-bit weights and activations: the same network as ``graph.py`` draws, with other linear layers.

Each token's input of a linear layer gets a scale of its own (its largest magnitude over 127), computed in the graph.
That is what makes an answer independent of its batch mates: with one scale for the whole batch, the usual dynamic
quantization, a text can get another label beside another text.

    x --(max |x| of the token / 127)--> scale
    x / scale -> round -> uint8 around 128 --MatMulInteger--> int32 -> float * weight scales * scale + bias

Operators are those of the ONNX standard; onnxruntime computes MatMulInteger with the processor's 8-bit instructions.
Embedding tables are stored with one scale a row, and turned back into floats as they are read.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper
from torch import Tensor, nn

from export.ops import Graph, as_array
from export.quantize import LEVELS, SCALES, VALUES, Quantized, quantize_columns, quantize_rows

ZERO = 128
"""The unsigned integer that stands for an activation of 0."""
SMALLEST = 1e-12
"""Least magnitude of a token's largest input, so that a token of zeros divides by something."""


class Int8Graph(Graph):
    """A ``Graph`` whose linear layers compute in 8 bits.

    Args:
        module: see ``Graph``.
        keep: names of linear layers that stay in float32.
    """

    def __init__(self, module: nn.Module, keep: frozenset[str] = frozenset()) -> None:
        super().__init__(module)
        self._keep = {f"{name}.weight" for name in keep}
        self._inputs: dict[str, tuple[str, str]] = {}

    def linear(self, x: str, layer: nn.Linear) -> str:
        """See ``Graph.linear``. Layers of one input share its quantised form."""
        if self.name_of(layer.weight) in self._keep:
            return super().linear(x, layer)
        values, scales = self._quantized(layer.weight, quantize_columns(as_array(layer.weight, transposed=True)))
        tokens, token_scale = self._quantized_input(x)
        product = self.op("MatMulInteger", tokens, values, self.constant(ZERO, np.uint8))
        scaled = self.op("Mul", self.op("Cast", product, to=TensorProto.FLOAT), scales)
        return self.op("Add", self.op("Mul", scaled, token_scale), self.weight(layer.bias))

    def embedding(self, table: Tensor, rows: str) -> str:
        """See ``Graph.embedding``."""
        values, scales = self._quantized(table, quantize_rows(as_array(table)))
        floats = self.op("Cast", self.op("Gather", values, rows), to=TensorProto.FLOAT)
        return self.op("Mul", floats, self.op("Gather", scales, rows))

    def _quantized_input(self, x: str) -> tuple[str, str]:
        """X (tokens, in) as uint8 and each token's scale (tokens, 1); the same nodes for the same input."""
        if x not in self._inputs:
            axis = self.constant([-1])
            low = self.op("Neg", self.op("ReduceMin", x, axis, keepdims=1))
            largest = self.op("Max", self.op("ReduceMax", x, axis, keepdims=1), low)
            largest = self.op("Max", largest, self.constant(SMALLEST, np.float32))
            scale = self.op("Mul", largest, self.constant(1 / LEVELS, np.float32))
            flat = self.op("Reshape", scale, axis)
            zero = numpy_helper.from_array(np.array([ZERO], np.uint8))
            zeros = self.op("ConstantOfShape", self.op("Shape", flat), value=zero)
            self._inputs[x] = self.op("QuantizeLinear", x, flat, zeros, axis=0), scale
        return self._inputs[x]

    def _quantized(self, parameter: Tensor, quantized: Quantized) -> tuple[str, str]:
        name = self.name_of(parameter)
        return self.stored(name + VALUES, quantized.values), self.stored(name + SCALES, quantized.scales)
