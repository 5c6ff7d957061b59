"""The onnxruntime engine against arithmetic, and its refusals."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest

from contract.encoding import TextEncoder
from contract.errors import BundleError, EngineFailure
from contract.manifest import Manifest, load_manifest, load_text_encoder
from encoders.checkpoint import save_checkpoint
from encoders.heads import SequenceClassifier
from export.bundle import write_bundle
from export.sources import from_checkpoint
from service.engine import OnnxEngine
from tests.service.bundles import expected_logits
from tests.tiny import tiny_config, tiny_tokenizer


@pytest.fixture
def manifest(words: Path) -> Manifest:
    return load_manifest(words)


@pytest.fixture
def encoder(words: Path, manifest: Manifest) -> TextEncoder:
    return load_text_encoder(words, manifest)


def engine(folder: Path, manifest: Manifest) -> OnnxEngine:
    return OnnxEngine(folder, manifest, precision="fp32", threads=1)


def test_logits_are_right_whatever_the_padding(words: Path, manifest: Manifest, encoder: TextEncoder) -> None:
    texts = ["good", "bad film the bad", "", ("good", "film")]
    logits = engine(words, manifest).run(encoder.pad(encoder.encode_batch(texts)))
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, [expected_logits(text) for text in texts], rtol=1e-5, atol=1e-6)


def test_a_closed_engine_computes_nothing(words: Path, manifest: Manifest, encoder: TextEncoder) -> None:
    closed = engine(words, manifest)
    closed.close()
    with pytest.raises(EngineFailure, match="closed"):
        closed.run(encoder.pad([encoder.encode("good")]))


def test_a_label_count_that_is_not_the_manifests_is_a_failure(
    words: Path, manifest: Manifest, encoder: TextEncoder
) -> None:
    three = dataclasses.replace(manifest, labels=("a", "b", "c"))
    with pytest.raises(EngineFailure, match=r"\(1, 2\); \(1, 3\) was expected"):
        engine(words, three).run(encoder.pad([encoder.encode("good")]))


def test_files_that_are_no_such_graph_are_bundle_errors(words: Path, manifest: Manifest, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(words, folder)
    path = folder / "model.onnx"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BundleError, match="cannot be loaded by onnxruntime"):
        engine(folder, manifest)
    model = onnx.load_from_string(whole)
    model.graph.output[0].name = "scores2"
    model.graph.node[-1].output[0] = "scores2"
    onnx.save(model, path)
    with pytest.raises(BundleError, match="outputs 'scores2'; 'logits' was expected"):
        engine(folder, manifest)
    model = onnx.load_from_string(whole)
    model.graph.input.append(onnx.helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, path)
    with pytest.raises(BundleError, match="inputs 'pixels'"):
        engine(folder, manifest)
    with pytest.raises(BundleError, match="no int8 graph"):
        OnnxEngine(folder, manifest, precision="int8", threads=1)


@pytest.mark.slow
def test_memory_does_not_climb_with_ever_new_shapes(tmp_path: Path) -> None:
    config = tiny_config("roberta", max_length=512, hidden_size=64, intermediate_size=512, num_attention_heads=8)
    model = SequenceClassifier(config).eval()
    save_checkpoint(tmp_path / "model", model, tiny_tokenizer("roberta"), max_length=512, record={})
    write_bundle(from_checkpoint(tmp_path / "model"), tmp_path / "bundle", name="three-layers")
    one = engine(tmp_path / "bundle", load_manifest(tmp_path / "bundle"))
    random = np.random.default_rng(0)
    process = psutil.Process()
    sizes = []
    for _ in range(300):
        length = int(random.integers(8, 513))
        ids = random.integers(5, 300, (int(random.integers(1, 1024 // length + 1)), length))
        one.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})
        sizes.append(process.memory_info().rss / 2**20)
    assert max(sizes[150:]) < max(sizes[:150]) + 5  # MiB; the largest batch alone takes 40
