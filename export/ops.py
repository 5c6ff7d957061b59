"""An ONNX graph under construction: nodes with readable names, weights that are stored once, a file pair at the end.

``Graph`` knows operators and files, and nothing about encoders (``graph.py`` does). Its one promise is about weights: a
torch parameter becomes exactly one initializer, however many layers use it, in the layout its users want, so that
neither Transpose nor Identity ever stands between a shared weight and its use. (Quantizers and optimizers lose sight of
shared weights behind such nodes, and copy or skip them.)

Operators are those of the ONNX standard, at an opset every supported onnxruntime knows. Fusions are left to the engine:
onnxruntime finds them at load time from exactly these forms (``docs/decisions/002-graph-emission.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from contract.manifest import TensorSpec

OPSET = 20
"""The first with a Gelu operator; onnxruntime 1.17 and later read it."""
IR_VERSION = 9
"""The file format that came with that opset."""

PAGE_BYTES = 4096
LINE_BYTES = 64

ONNX_TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}


class Graph:
    """Collects nodes and weights of one graph. Methods return the name of the value they make.

    Args:
        module: the module whose parameters the graph will use; their names become the initializers' names.
    """

    def __init__(self, module: nn.Module) -> None:
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._weights: dict[str, tuple[Tensor, bool]] = {}
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._constants: dict[str, TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._shapes: list[onnx.ValueInfoProto] = []
        self._scope: tuple[str, ...] = ()
        self._counts: Counter[str] = Counter()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put ``name.`` before the names of the nodes made inside."""
        outer = self._scope
        self._scope = (*outer, name)
        try:
            yield
        finally:
            self._scope = outer

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        stem = ".".join((*self._scope, kind))
        self._counts[stem] += 1
        name = f"{stem}.{self._counts[stem]}"
        self._nodes.append(helper.make_node(kind, inputs, [output or name], name=name, **attributes))
        return output or name

    def declare(self, value: str, axes: Sequence[str | int]) -> None:
        """State the shape of a float32 value, where shape inference cannot know it."""
        self._shapes.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, axes))

    def constant(self, value: float | int | Sequence[int], dtype: type = np.int64) -> str:
        """A small constant inside the graph file, made once for each distinct value."""
        array: npt.NDArray[Any] = np.asarray(value, dtype=dtype)
        name = f"constant.{array.dtype}.{'x'.join(map(str, array.ravel()))}{'' if array.ndim else '.scalar'}"
        self._constants.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def name_of(self, parameter: Tensor) -> str:
        """The name of a parameter of the module; a shared one has one name."""
        return self._names[id(parameter)]

    def stored(self, name: str, array: npt.NDArray[Any]) -> str:
        """An array in the weights file, float32 or int8; the same name at each use."""
        self._arrays.setdefault(name, array)
        return name

    def weight(self, parameter: Tensor, *, transposed: bool = False) -> str:
        """A parameter in the weights file, as it is or with its two axes swapped; the same name at each use."""
        name = self.name_of(parameter)
        known = self._weights.setdefault(name, (parameter, transposed))
        assert known[1] == transposed, f"{name} would be stored in two layouts"
        return name

    def linear(self, x: str, layer: nn.Linear) -> str:
        """``x @ weight.T + bias`` over the last axis."""
        product = self.op("MatMul", x, self.weight(layer.weight, transposed=True))
        return self.op("Add", product, self.weight(layer.bias))

    def embedding(self, table: Tensor, rows: str) -> str:
        """Rows of a table."""
        return self.op("Gather", self.weight(table), rows)

    def layer_norm(self, x: str, layer: nn.LayerNorm) -> str:
        """Normalisation of the last axis."""
        return self.op(
            "LayerNormalization", x, self.weight(layer.weight), self.weight(layer.bias), axis=-1, epsilon=layer.eps
        )

    def save(
        self,
        folder: Path,
        *,
        graph_file: str,
        weights_file: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Write the graph and, beside it, its weights as external data that can be memory-mapped.

        Weights are turned into float32 one at a time; the peak of memory is that of one weight.
        """
        initializers = list(self._constants.values())
        arrays = chain(((name, as_array(*weight)) for name, weight in self._weights.items()), self._arrays.items())
        with (folder / weights_file).open("wb") as handle:
            for name, array in arrays:
                # Big tensors begin at a page, which memory mapping wants; small ones at a cache line.
                unit = PAGE_BYTES if array.nbytes >= PAGE_BYTES else LINE_BYTES
                handle.seek(-(-handle.tell() // unit) * unit)
                initializers.append(_external(name, array, weights_file, handle.tell()))
                handle.write(array.data)
        graph = helper.make_graph(
            self._nodes,
            "classifier",
            _values(inputs),
            _values(outputs),
            initializer=initializers,
            value_info=self._shapes,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="robal",
        )
        (folder / graph_file).write_bytes(model.SerializeToString(deterministic=True))


def as_array(parameter: Tensor, transposed: bool = False) -> npt.NDArray[np.float32]:
    """A parameter in float32, its two axes swapped on demand."""
    tensor = parameter.detach().to(torch.float32)
    return np.ascontiguousarray((tensor.T if transposed else tensor).numpy())


def _external(name: str, array: npt.NDArray[Any], file: str, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", offset), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _values(specs: Sequence[TensorSpec]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(spec.name, ONNX_TYPES[spec.dtype], spec.axes) for spec in specs]
