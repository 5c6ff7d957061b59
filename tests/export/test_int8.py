"""The int8 graph against its definition written out in PyTorch, and its gates broken on purpose."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from optimum.onnxruntime import ORTModelForSequenceClassification
from torch import nn

from contract.errors import GateFailed
from contract.manifest import load_manifest
from encoders.heads import SequenceClassifier
from encoders.training import count_parameters
from export import verify
from export.bundle import write_bundle
from export.graph import classifier_graph, input_specs, output_specs
from export.int8 import Int8Graph
from export.quantize import quantize_columns, quantize_rows
from export.sources import from_checkpoint
from tests.export.parts import grid, native
from tests.tiny import tiny_checkpoint, tiny_config, tiny_model

FAMILIES = ("bert", "roberta", "albert")
GRAPH, WEIGHTS = "model_int8.onnx", "model_int8.onnx_data"


def write(model: SequenceClassifier, folder: Path, keep: frozenset[str] = frozenset()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    classifier_graph(model, lambda module: Int8Graph(module, keep)).save(
        folder,
        graph_file=GRAPH,
        weights_file=WEIGHTS,
        inputs=input_specs(model.config),
        outputs=output_specs(model.config),
    )
    return folder / GRAPH


def rounded(x: torch.Tensor) -> torch.Tensor:
    """x (..., in) as 8 bits a token would keep it, in float arithmetic."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 127
    return (x / scale).round().clamp(-128, 127) * scale


def emulate(model: SequenceClassifier, keep: frozenset[str] = frozenset()) -> SequenceClassifier:
    """The native module with weights replaced by what 8 bits hold, and inputs of linear layers rounded."""
    tables = (model.encoder.embeddings.word, model.encoder.embeddings.position)
    with torch.no_grad():
        for table in tables:
            stored = quantize_rows(table.weight.numpy())
            table.weight.copy_(torch.from_numpy(stored.values * stored.scales))
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear) and name not in keep:
                stored = quantize_columns(np.ascontiguousarray(layer.weight.numpy().T))
                layer.weight.copy_(torch.from_numpy((stored.values * stored.scales).T))
                layer.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]),))
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sharing", ["all", "attention", "none"])
def test_logits_equal_the_definition(tmp_path: Path, family: str, sharing: str) -> None:
    config = tiny_config(family, layer_sharing=sharing, max_length=19, num_hidden_layers=3)
    session = verify.open_session(write(tiny_model(config, seed=3), tmp_path))
    definition = emulate(tiny_model(config, seed=3))
    found, expected = [], []
    for _, inputs in grid(definition):
        found.append(session.run(None, dict(inputs))[0])
        expected.append(native(definition, inputs))
    found, expected = np.concatenate(found), np.concatenate(expected)
    # A value on the border of two steps may fall to either side, which changes one text a little; the others are equal.
    off = np.abs(found - expected).max(axis=1)
    assert np.quantile(off, 0.9) < 1e-4
    assert off.max() < 0.2
    assert verify.relative_difference(found, native_logits(tiny_model(config, seed=3))) < 0.3


def native_logits(model: SequenceClassifier) -> np.ndarray:
    return np.concatenate([native(model, inputs) for _, inputs in grid(model)])


def test_the_onnx_reference_evaluator_agrees(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("albert", max_length=9))
    path = write(model, tmp_path)
    evaluator, session = ReferenceEvaluator(str(path)), verify.open_session(path)
    for name, inputs in grid(model):
        (theirs,) = evaluator.run(None, dict(inputs))
        np.testing.assert_allclose(session.run(None, dict(inputs))[0], theirs, atol=0.02, rtol=0, err_msg=name)


def test_only_standard_operators_are_used_and_shared_weights_are_stored_once(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("albert", num_hidden_layers=4))
    proto = onnx.load(write(model, tmp_path), load_external_data=False)
    assert {node.domain for node in proto.graph.node} == {""}
    stored = [tensor for tensor in proto.graph.initializer if tensor.external_data]
    assert len({tensor.name for tensor in stored}) == len(stored)
    integers = [tensor for tensor in stored if tensor.data_type == onnx.TensorProto.INT8]
    layers = sum(isinstance(module, nn.Linear) for module in model.modules())
    assert len(integers) == layers + 2, "each linear layer once, and two tables"
    counts = Counter(node.op_type for node in proto.graph.node)
    assert counts["MatMulInteger"] == 6 * 4 + 1 + 2
    assert counts["QuantizeLinear"] == 4 * 4 + 1 + 2 + 1  # q, k, v share one; the last block's q has another


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_does_not_depend_on_its_neighbours(tmp_path: Path, family: str) -> None:
    model = tiny_model(tiny_config(family, max_length=33))
    session = verify.open_session(write(model, tmp_path))
    assert verify.check_independence(session, grid(model), precision="int8")["max_batch_difference"] < 1e-5


def test_one_scale_for_the_batch_is_refused(tmp_path: Path) -> None:
    """What the usual dynamic quantization does: the gate must see it."""
    model = tiny_model(tiny_config("bert", max_length=33))
    path = write(model, tmp_path)
    session = onnxruntime.InferenceSession(batch_scaled(onnx.load(path)).SerializeToString())
    with pytest.raises(GateFailed, match="depend on the texts beside it"):
        verify.check_independence(session, grid(model), precision="int8")


def batch_scaled(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Every token's scale is the largest of the batch."""
    nodes = []
    for node in proto.graph.node:
        nodes.append(node)
        if node.op_type == "Max" and any("constant.float32" in name for name in node.input):
            own = node.output[0] + ".own"
            largest = onnx.helper.make_node("ReduceMax", [own], [own + ".largest"], keepdims=1)
            same = onnx.helper.make_node("Max", [own, own + ".largest"], [node.output[0]])
            node.output[0] = own
            nodes += [largest, same]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


def storage_and_operators(folder: Path, model: SequenceClassifier, kept: tuple[str, ...] = ()) -> dict[str, object]:
    checks = verify.check_storage(folder, GRAPH, [WEIGHTS], count_parameters(model)[1], precision="int8")
    blocks = model.config.num_hidden_layers
    return checks | verify.check_operators(folder, GRAPH, blocks=blocks, precision="int8", kept=kept)


def test_layers_in_float_must_be_named(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("bert"))
    write(model, tmp_path, keep=frozenset({"pooler.dense"}))
    with pytest.raises(GateFailed, match=r"1 linear layers are not in 8 bits: 'pooler\.dense'"):
        storage_and_operators(tmp_path, model)
    checks = storage_and_operators(tmp_path, model, kept=("pooler.dense",))
    assert 0.9 < checks["coverage"] < 1  # type: ignore[operator]


def test_weights_that_can_saturate_are_refused(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("bert"))
    proto = onnx.load(write(model, tmp_path))
    weight = next(tensor for tensor in proto.graph.initializer if tensor.name == "pooler.dense.weight.int8")
    values = onnx.numpy_helper.to_array(weight).copy()
    values[:2] = 100
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(proto, tmp_path / GRAPH, save_as_external_data=True, location=WEIGHTS, size_threshold=0)
    with pytest.raises(GateFailed, match=r"pooler\.dense\.weight\.int8 can add up to 51,000"):
        verify.check_operators(tmp_path, GRAPH, blocks=model.config.num_hidden_layers, precision="int8", kept=())


def test_a_missing_norm_is_refused(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("bert"))
    write(model, tmp_path)
    with pytest.raises(GateFailed, match="blocks ask for"):
        verify.check_operators(tmp_path, GRAPH, blocks=model.config.num_hidden_layers + 1, precision="int8")


def test_logits_of_another_model_are_refused(tmp_path: Path) -> None:
    session = verify.open_session(write(tiny_model(tiny_config("bert", max_length=9), seed=1), tmp_path))
    other = tiny_model(tiny_config("bert", max_length=9), seed=2)
    with pytest.raises(GateFailed, match="of what texts differ by"):
        verify.check_values(session, lambda inputs: native(other, inputs), grid(other), precision="int8")


def test_a_bundle_holds_both_and_optimum_loads_both(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", "albert", hidden_size=64, intermediate_size=128)
    bundle = tmp_path / "bundle"
    manifest = write_bundle(from_checkpoint(checkpoint), bundle, name="x", precisions=("fp32", "int8"))
    assert [graph.precision for graph in load_manifest(bundle).graphs] == ["fp32", "int8"]
    assert manifest.resolve("auto") == "fp32", "nobody has looked at the accuracy of int8"
    inputs = {"input_ids": torch.tensor([[2, 7, 8, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    arrays = {name: value.numpy() for name, value in inputs.items()}
    for file in ("model.onnx", GRAPH):
        theirs = ORTModelForSequenceClassification.from_pretrained(bundle, file_name=file)(**inputs).logits
        (ours,) = verify.open_session(bundle / file).run(None, arrays)
        np.testing.assert_allclose(theirs.numpy(), ours, atol=1e-6)


def test_values_that_are_no_numbers_are_not_independent(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("bert", max_length=33))
    with torch.no_grad():
        model.classifier.bias[0] = float("nan")
    session = verify.open_session(write(model, tmp_path))
    with pytest.raises(GateFailed, match="change by nan"):
        verify.check_independence(session, grid(model), precision="int8")
