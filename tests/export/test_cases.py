"""Public reports of exports that went wrong: each right answer, by the report's name."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from contract.errors import BundleError, GateFailed
from contract.manifest import load_manifest
from encoders.checkpoint import save_checkpoint
from encoders.heads import SequenceClassifier
from encoders.training import seed_everything
from export import verify
from export.bundle import write_bundle
from export.graph import input_specs, output_specs
from export.sources import from_checkpoint
from tests.export.parts import GRAPH, WEIGHTS, native, write_graph
from tests.tiny import tiny_config, tiny_model, tiny_tokenizer

FAMILIES = ("bert", "roberta", "albert")


def inputs_of(model: SequenceClassifier, mask: np.ndarray) -> verify.Inputs:
    random = np.random.default_rng(0)
    case = {
        "input_ids": random.integers(5, model.config.vocab_size, mask.shape),
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(mask),
    }
    return {spec.name: case[spec.name] for spec in input_specs(model.config)}


def test_b26_a_graph_fixed_to_one_shape_is_refused(cases: Path) -> None:
    config = tiny_config("roberta")
    session = verify.open_session(cases / "B26_fixed_1x128.onnx")
    with pytest.raises(GateFailed, match=r"the graph's input 'input_ids' is .*\[?1, 128"):
        verify.check_interface(session, input_specs(config), output_specs(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_b26_every_batch_and_length_gives_the_models_logits(tmp_path: Path, family: str) -> None:
    model = tiny_model(tiny_config(family, max_length=512))
    session = verify.open_session(write_graph(model, tmp_path))
    for shape in ((1, 1), (1, 511), (3, 17), (33, 512)):
        inputs = inputs_of(model, np.ones(shape, np.int64))
        (logits,) = session.run(None, dict(inputs))
        np.testing.assert_allclose(logits, native(model, inputs), atol=1e-4)


def test_b32_twelve_shared_layers_are_stored_once_and_a_lost_file_is_named(tmp_path: Path) -> None:
    seed_everything(0)  # the weights a training would start from: twelve times the same large one is chaos
    config = tiny_config("albert", num_hidden_layers=12, hidden_size=192, intermediate_size=768)
    model = SequenceClassifier(config).eval()
    checkpoint, bundle = tmp_path / "checkpoint", tmp_path / "bundle"
    save_checkpoint(checkpoint, model, tiny_tokenizer("albert"), max_length=64, record={})
    write_bundle(from_checkpoint(checkpoint), bundle, name="x", precisions=("fp32", "int8"))
    graphs = load_manifest(bundle).graphs
    before = (checkpoint / "model.safetensors").stat().st_size
    assert graphs[0].size_bytes <= 1.2 * before
    assert graphs[1].size_bytes <= 0.28 * before + verify.GRAPH_ALLOWANCE_BYTES
    shutil.move(bundle, tmp_path / "elsewhere")
    load_manifest(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / WEIGHTS).unlink()
    with pytest.raises(BundleError, match=f"lacks the file '{WEIGHTS}'"):
        load_manifest(tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["B33_ir99", "B33_opset99"])
def test_b33_a_version_that_no_supported_runtime_reads_is_refused(cases: Path, tmp_path: Path, name: str) -> None:
    newer = onnx.load(cases / f"{name}.onnx")
    proto = onnx.load(write_graph(tiny_model(tiny_config("bert")), tmp_path), load_external_data=False)
    if name == "B33_ir99":
        proto.ir_version = newer.ir_version
    else:
        proto.opset_import[0].version = newer.opset_import[0].version
    (tmp_path / GRAPH).write_bytes(proto.SerializeToString())
    with pytest.raises(GateFailed, match=r"has (IR version|opset) 99 and onnxruntime 1\.22 reads up to|ONNX checker"):
        verify.check_storage(tmp_path, GRAPH, [WEIGHTS], 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_b34_any_mask_gives_the_models_logits(tmp_path: Path, family: str) -> None:
    model = tiny_model(tiny_config(family))
    session = verify.open_session(write_graph(model, tmp_path))
    whole = np.ones((3, 11), np.int64)
    right, left, holed = whole.copy(), whole.copy(), whole.copy()
    right[1:, 6:] = left[1:, :5] = holed[1:, 2:9:2] = 0
    for mask in (right, left, holed):
        inputs = inputs_of(model, mask)
        (logits,) = session.run(None, dict(inputs))
        np.testing.assert_allclose(logits, native(model, inputs), atol=1e-4)


def test_b34_a_layer_whose_operators_are_gone_is_counted(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("bert"))
    write_graph(model, tmp_path)
    blocks = model.config.num_hidden_layers
    verify.check_operators(tmp_path, GRAPH, blocks=blocks, precision="fp32")
    with pytest.raises(GateFailed, match=rf"LayerNormalization operators and {blocks + 1} blocks ask for"):
        verify.check_operators(tmp_path, GRAPH, blocks=blocks + 1, precision="fp32")
