"""The onnxruntime engine against arithmetic, and its refusals."""

import dataclasses
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.encoding import EncodedText, TextEncoder
from contract.errors import BundleError, EngineFailure
from contract.manifest import Manifest, load_manifest, load_text_encoder
from encoders.checkpoint import save_checkpoint
from export.bundle import write_bundle
from export.sources import from_checkpoint
from service.engine import GROUP_TOKENS, MAX_PADDING_SHARE, OnnxEngine, attention_cells, groups
from tests.service.bundles import expected_logits
from tests.tiny import tiny_config, tiny_model, tiny_tokenizer


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
    logits = engine(words, manifest).run(encoder.encode_batch(texts))
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, [expected_logits(text) for text in texts], rtol=1e-5, atol=1e-6)


def test_a_closed_engine_computes_nothing(words: Path, manifest: Manifest, encoder: TextEncoder) -> None:
    closed = engine(words, manifest)
    closed.close()
    with pytest.raises(EngineFailure, match="closed"):
        closed.run([encoder.encode("good")])


def test_a_label_count_that_is_not_the_manifests_is_a_failure(
    words: Path, manifest: Manifest, encoder: TextEncoder
) -> None:
    three = dataclasses.replace(manifest, labels=("a", "b", "c"))
    with pytest.raises(EngineFailure, match=r"\(1, 2\); \(1, 3\) was expected"):
        engine(words, three).run([encoder.encode("good")])


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


@given(st.lists(st.integers(1, 600), max_size=60))
def test_groups_hold_every_text_once_and_keep_their_bounds(lengths: list[int]) -> None:
    found = list(groups(lengths))
    assert sorted(index for group in found for index in group) == list(range(len(lengths)))
    for group in found:
        sizes = [lengths[index] for index in group]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) <= GROUP_TOKENS or len(group) == 1
        assert len(group) * sizes[0] <= sum(sizes) / (1 - MAX_PADDING_SHARE)
    assert sum(lengths) <= attention_cells(lengths) <= 2 * sum(lengths)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config("roberta", max_length=512, hidden_size=64, intermediate_size=512, num_attention_heads=8)
    model = tiny_model(config, seed=0)
    save_checkpoint(folder / "model", model, tiny_tokenizer("roberta"), max_length=512, record={})
    write_bundle(from_checkpoint(folder / "model"), folder / "bundle", name="three-layers")
    return folder / "bundle"


def random_texts(random: np.random.Generator, lengths: Sequence[int]) -> list[EncodedText]:
    return [
        EncodedText(ids, np.zeros_like(ids), len(ids))
        for ids in (random.integers(5, 300, length) for length in lengths)
    ]


def test_a_text_is_answered_as_if_it_were_alone(model: Path) -> None:
    one = engine(model, load_manifest(model))
    random = np.random.default_rng(0)
    texts = random_texts(random, random.integers(1, 513, 40).tolist())
    together = one.run(texts)
    alone = np.concatenate([one.run([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5, rtol=0)
    assert np.abs(alone).max() > 0.05
    assert np.ptp(alone, axis=0).min() > 1e-3, "the texts differ, so a mixed-up order would show"


def test_instances_compute_side_by_side(model: Path) -> None:
    two = OnnxEngine(model, load_manifest(model), precision="fp32", threads=1, instances=2)
    texts = random_texts(np.random.default_rng(1), [30, 5, 200] * 4)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(two.run, [texts] * 8))
    for answer in answers:
        np.testing.assert_allclose(answer, answers[0], atol=1e-6)
    assert two.instances == 2


@pytest.mark.slow
def test_memory_is_bounded_whatever_the_traffic(model: Path) -> None:
    one = engine(model, load_manifest(model))
    random = np.random.default_rng(0)
    process = psutil.Process()
    one.run(random_texts(random, [8]))
    before = process.memory_info().rss
    # A rectangle of at most 2 x 1,024 cells, 512 wide, has 32 MiB of scores for 8 heads, and three such tensors are
    # alive at once. Without groups, 16 x 512 would need four times that; an arena or patterns per shape ever more.
    most = 3 * 32 + 32
    for _ in range(100):
        one.run(random_texts(random, random.integers(1, 513, int(random.integers(1, 17))).tolist()))
        assert (process.memory_info().rss - before) / 2**20 < most
