from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from contract.manifest import TensorSpec
from export.ops import Graph

INPUTS = (TensorSpec(name="x", dtype="float32", axes=("batch", 3)),)
OUTPUTS = (TensorSpec(name="y", dtype="float32", axes=("batch", 3)),)


class Twice(nn.Module):
    """One layer used twice, with a big and an odd-sized weight around it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(3, 700)
        self.shared = nn.Linear(700, 700)
        self.down = nn.Linear(700, 3)
        self.norm = nn.LayerNorm(3, eps=0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.down(self.shared(self.shared(self.up(x)))))


def write(module: Twice, folder: Path) -> Path:
    g = Graph(module)
    hidden = g.linear("x", module.up)
    for index in range(2):
        with g.scope(f"layer.{index}"):
            hidden = g.linear(hidden, module.shared)
    g.op("Identity", g.layer_norm(g.linear(hidden, module.down), module.norm), output="y")
    g.save(folder, graph_file="g.onnx", weights_file="w.bin", inputs=INPUTS, outputs=OUTPUTS)
    return folder / "g.onnx"


@pytest.fixture
def module() -> Twice:
    torch.manual_seed(3)
    return Twice().requires_grad_(False)


def test_the_graph_computes_what_the_module_computes(tmp_path: Path, module: Twice) -> None:
    session = onnxruntime.InferenceSession(str(write(module, tmp_path)))
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], module(torch.from_numpy(x)), atol=1e-5)


def test_each_parameter_is_one_initializer_under_its_own_name(tmp_path: Path, module: Twice) -> None:
    model = onnx.load(write(module, tmp_path))
    assert [tensor.name for tensor in model.graph.initializer] == [
        *("up.weight", "up.bias", "shared.weight", "shared.bias", "down.weight", "down.bias"),
        *("norm.weight", "norm.bias"),
    ]
    for tensor in model.graph.initializer:
        parameter = module.get_parameter(tensor.name).numpy()
        stored = onnx.numpy_helper.to_array(tensor)
        np.testing.assert_array_equal(stored, parameter.T if parameter.ndim == 2 else parameter)


def test_weights_lie_where_memory_mapping_wants_them(tmp_path: Path, module: Twice) -> None:
    model = onnx.load(write(module, tmp_path), load_external_data=False)
    end = 0
    for tensor in model.graph.initializer:
        where = {entry.key: entry.value for entry in tensor.external_data}
        assert where["location"] == "w.bin"
        offset, length = int(where["offset"]), int(where["length"])
        assert length == 4 * np.prod(tensor.dims)
        assert offset % (4096 if length >= 4096 else 64) == 0
        assert end <= offset < end + 4096
        end = offset + length
    assert (tmp_path / "w.bin").stat().st_size == end


def test_half_precision_is_stored_as_float32(tmp_path: Path, module: Twice) -> None:
    exact = {name: parameter.bfloat16().float() for name, parameter in module.named_parameters()}
    model = onnx.load(write(module.bfloat16(), tmp_path))
    for tensor in model.graph.initializer:
        stored = onnx.numpy_helper.to_array(tensor)
        assert stored.dtype == np.float32
        np.testing.assert_array_equal(stored, exact[tensor.name].numpy().T)


def test_the_same_module_gives_the_same_bytes(tmp_path: Path, module: Twice) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        write(module, folder)
    for name in ("g.onnx", "w.bin"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_nodes_are_named_by_where_they_are(tmp_path: Path, module: Twice) -> None:
    names = [node.name for node in onnx.load(write(module, tmp_path), load_external_data=False).graph.node]
    assert names[2:6] == ["layer.0.MatMul.1", "layer.0.Add.1", "layer.1.MatMul.1", "layer.1.Add.1"]
    assert len(set(names)) == len(names)


def test_a_scope_ends_with_an_error_too(module: Twice) -> None:
    g = Graph(module)
    with pytest.raises(KeyError), g.scope("inside"):
        raise KeyError
    assert g.op("Relu", "x") == "Relu.1"


def test_one_weight_in_two_layouts_would_be_two_weights(module: Twice) -> None:
    g = Graph(module)
    g.weight(module.shared.weight)
    with pytest.raises(AssertionError, match=r"shared\.weight would be stored in two layouts"):
        g.weight(module.shared.weight, transposed=True)


def test_equal_constants_are_one(module: Twice) -> None:
    g = Graph(module)
    assert g.constant([1, 2]) == g.constant([1, 2])
    names = {g.constant(1), g.constant([1]), g.constant(1.0, np.float32), g.constant([1, 2]), g.constant([12])}
    assert len(names) == 5
