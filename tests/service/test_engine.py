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
from contract.manifest import Graph, Manifest, load_manifest, load_text_encoder
from encoders.checkpoint import save_checkpoint
from export.bundle import write_bundle
from export.sources import from_checkpoint
from service.engine import GROUP_TOKENS, MAX_PADDING_SHARE, OnnxEngine, attention_cells, check_probe, groups
from tests.service.bundles import expected_logits
from tests.tiny import tiny_checkpoint, tiny_config, tiny_model, tiny_tokenizer


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


def test_a_processor_that_computes_otherwise_is_found_at_the_start(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    write_bundle(from_checkpoint(tiny_checkpoint(tmp_path / "c")), bundle, name="x", precisions=("fp32", "int8"))
    manifest = load_manifest(bundle)
    for graph in manifest.graphs:
        loaded = OnnxEngine(bundle, manifest, precision=graph.precision, threads=1)
        check_probe(loaded, graph, bundle)
        probe = graph.checks["probe"]
        other = dataclasses.replace(graph, checks={"probe": probe | {"logits": [row[::-1] for row in probe["logits"]]}})
        with pytest.raises(BundleError, match=r"gives other logits here than where it was exported \(they differ by"):
            check_probe(loaded, other, bundle)
        nan = dataclasses.replace(graph, checks={"probe": probe | {"logits": [[np.nan] * 2] * len(probe["logits"])}})
        with pytest.raises(BundleError, match="other logits"):
            check_probe(loaded, nan, bundle)
        check_probe(loaded, dataclasses.replace(graph, checks={}), bundle)


def case(cases: Path, name: str, *, words: int = 32) -> Manifest:
    """A manifest around a graph of the public cases: 4 labels, a table of 32 rows."""
    return Manifest(
        robal_version="0",
        name=name,
        family="bert",
        problem_type="single_label_classification",
        labels=("a", "b", "c", "d"),
        max_length=16,
        pad_token_id=0,
        type_vocab_size=2,
        inputs=(),
        outputs=(),
        graphs=(Graph(precision="fp32", file=f"{name}.onnx", weights=(), opset=17, size_bytes=0),),
        parameters=0,
        unique_parameters=0,
        files={},
    )


def text(*ids: int, types: Sequence[int] | None = None) -> EncodedText:
    return EncodedText(np.array(ids), np.array(types or [0] * len(ids)), len(ids))


@pytest.mark.parametrize("name", ["B28_no_token_type_ids", "B28_needs_token_type_ids"])
def test_b28_a_graph_gets_exactly_the_inputs_it_has_in_its_own_type(cases: Path, tmp_path: Path, name: str) -> None:
    loaded = engine(cases, case(cases, name))
    expected = loaded.run([text(3, 4, 5), text(6, 7)])
    assert np.isfinite(expected).all()
    with pytest.raises(
        Exception, match="indices element out of data bounds"
    ):  # the scheduler makes it an EngineFailure
        loaded.run([text(40)])
    narrow = onnx.load(cases / f"{name}.onnx")
    for tensor in narrow.graph.input:  # ids as int32, made wide again for the operators behind
        tensor.type.tensor_type.elem_type = onnx.TensorProto.INT32
        widened = onnx.helper.make_node("Cast", [tensor.name], [f"{tensor.name}_64"], to=onnx.TensorProto.INT64)
        for node in narrow.graph.node:
            node.input[:] = [f"{tensor.name}_64" if value == tensor.name else value for value in node.input]
        narrow.graph.node.insert(0, widened)
    onnx.save(narrow, tmp_path / f"{name}.onnx")
    found = engine(tmp_path, case(tmp_path, name)).run([text(3, 4, 5), text(6, 7)])
    np.testing.assert_array_equal(found, expected)
    for tensor in narrow.graph.input:
        tensor.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(narrow, tmp_path / f"{name}.onnx")
    with pytest.raises(BundleError, match=r"'input_ids' as tensor\(float\); token ids are int64 or int32"):
        engine(tmp_path, case(tmp_path, name))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("B33_ir99", "Unsupported model IR version: 99, max supported IR version: "),
        ("B33_opset99", r"opset.* 99|99 is under development"),
        ("B33_truncated", "Protobuf parsing failed"),
        ("B32_external_data_lost", "initializer: E"),
        ("B26_fixed_1x128", None),
    ],
)
def test_b32_b33_a_graph_that_cannot_be_loaded_is_named_with_the_reason(
    cases: Path, name: str, reason: str | None
) -> None:
    if reason is None:
        with pytest.raises(Exception, match="Got invalid dimensions"):
            engine(cases, case(cases, name)).run([text(1, 2)])
        return
    with pytest.raises(BundleError, match=reason) as caught:
        engine(cases, case(cases, name))
    assert f"{name}.onnx" in str(caught.value)
