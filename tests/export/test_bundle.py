import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from contract.errors import GateFailed, UsageError
from contract.manifest import load_manifest, load_text_encoder
from encoders.checkpoint import load_classifier, open_checkpoint, save_checkpoint
from encoders.heads import SequenceClassifier
from encoders.training import count_parameters
from export import verify
from export.bundle import check_target, write_bundle
from export.sources import Source, from_checkpoint
from tests.export.parts import native
from tests.tiny import tiny_bundle, tiny_checkpoint, tiny_config, tiny_model, tiny_tokenizer

FILES = {
    *("model.onnx", "model.onnx_data", "config.json", "manifest.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
}
PAIRS = [("this film is good", "and that one is not"), "nothing worked", "x" * 300]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return from_checkpoint(tiny_checkpoint(tmp_path / "checkpoint", labels=("no", "yes", "may be")))


def test_a_bundle_says_what_it_is(tmp_path: Path, source: Source) -> None:
    written = write_bundle(source, tmp_path / "bundle", name="mood")
    manifest = load_manifest(tmp_path / "bundle")
    assert json.loads(json.dumps(asdict(written))) == json.loads(json.dumps(asdict(manifest)))
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == FILES
    assert set(manifest.files) == FILES - {"manifest.json"}
    assert (manifest.name, manifest.family) == ("mood", "albert")
    assert manifest.labels == ("no", "yes", "may be")
    assert (manifest.max_length, manifest.pad_token_id, manifest.type_vocab_size) == (64, 0, 2)
    assert (manifest.parameters, manifest.unique_parameters) == count_parameters(source.model)
    assert [spec.name for spec in manifest.inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    assert manifest.outputs[0].axes == ("batch", 3)
    assert manifest.metrics == {"accuracy": 0.75, "macro_f1": 0.7}
    assert manifest.provenance["source"] == "checkpoint"
    assert manifest.provenance["checkpoint"]["command"] == "finetune"
    assert "metrics" not in manifest.provenance["checkpoint"]
    assert {"created", "torch", "onnx", "python"} == set(manifest.provenance["export"])
    graph = manifest.graph("fp32")
    assert graph.size_bytes == sum((tmp_path / "bundle" / name).stat().st_size for name in (graph.file, *graph.weights))
    assert graph.opset == 20
    assert graph.checks["stored_parameters"] == manifest.unique_parameters
    assert 0 < graph.checks["max_abs_logit_difference"] <= graph.checks["logit_difference_limit"] == 1e-4
    assert graph.checks["lengths"] == [1, 2, 5, 17, 64]
    assert str(tmp_path) not in (tmp_path / "bundle" / "manifest.json").read_text()


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_text_in_a_bundle_gives_the_checkpoint_s_logits(tmp_path: Path, family: str) -> None:
    """Tokenizer, limits and graph together, through the files alone."""
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path / "checkpoint", family))
    bundle = tmp_path / "bundle"
    manifest = write_bundle(from_checkpoint(checkpoint.folder), bundle, name="x")
    assert checkpoint.text_encoder is not None
    theirs = checkpoint.text_encoder.pad(checkpoint.text_encoder.encode_batch(PAIRS))
    encoder = load_text_encoder(bundle, load_manifest(bundle))
    ours = encoder.pad(encoder.encode_batch(PAIRS))
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)
    assert ours["input_ids"].shape == (3, 64)
    inputs = {spec.name: ours[spec.name] for spec in manifest.inputs}
    (found,) = verify.open_session(bundle / "model.onnx").run(None, inputs)
    np.testing.assert_allclose(found, native(load_classifier(checkpoint).model, inputs), atol=2e-5)


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("bert", {}),
        ("roberta", {}),
        ("albert", {"num_hidden_groups": 2, "num_hidden_layers": 4}),
        ("bert", {"embedding_size": 7, "layer_sharing": "attention"}),  # transformers has no class for this one
    ],
)
def test_optimum_loads_the_folder_as_it_is(tmp_path: Path, family: str, config: dict[str, Any]) -> None:
    optimum = pytest.importorskip("optimum.onnxruntime")
    transformers = pytest.importorskip("transformers")
    labels = ("bad", "fair", "good")
    bundle = tiny_bundle(tmp_path / "bundle", family, labels, **config)
    model = optimum.ORTModelForSequenceClassification.from_pretrained(bundle)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    assert model.config.id2label == dict(enumerate(labels))
    texts = ["this film is good", "nothing worked, and nobody was sorry"]
    batch = tokenizer(texts, padding=True, return_tensors="np")
    reference = load_classifier(open_checkpoint(tmp_path / ".bundle.checkpoint")).model
    assert set(batch) == {spec.name for spec in load_manifest(bundle).inputs}
    found = model(**batch).logits
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found, native(reference, batch), atol=2e-5)


def test_the_same_checkpoint_gives_the_same_files(tmp_path: Path, source: Source) -> None:
    first, second = (load_manifest(tiny_bundle(tmp_path / name / "bundle")) for name in "ab")
    assert first.files == second.files


def test_a_failed_gate_writes_nothing(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle"
    write_bundle(source, bundle, name="x")
    before = contents(bundle)
    monkeypatch.setattr(verify, "MAX_LOGIT_DIFFERENCE", 1e-12)
    for target in (bundle, tmp_path / "new"):
        with pytest.raises(GateFailed, match=r"differ from the model's by \d"):
            write_bundle(source, target, name="x")
    assert contents(bundle) == before
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "checkpoint"}


def test_the_gates_look_at_the_files_that_will_be_shipped(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emitted graph is broken between the emitter and the gates, as a bug in either writer would."""
    make_model = onnx.helper.make_model

    def other_eps(graph: onnx.GraphProto, **options: Any) -> onnx.ModelProto:
        for node in graph.node:
            if node.op_type == "LayerNormalization":
                next(a for a in node.attribute if a.name == "epsilon").f = 0.01
        return make_model(graph, **options)

    monkeypatch.setattr("onnx.helper.make_model", other_eps)
    with pytest.raises(GateFailed, match="differ"):
        write_bundle(source, tmp_path / "bundle", name="x")
    assert not (tmp_path / "bundle").exists()


def test_an_interrupt_leaves_the_old_bundle(tmp_path: Path, source: Source) -> None:
    bundle = tmp_path / "bundle"
    write_bundle(source, bundle, name="x")
    before = contents(bundle)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "comparing fp32 logits" and done == total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bundle(source, bundle, name="y", advance=interrupt)
    assert contents(bundle) == before
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "checkpoint"}


def test_progress_reaches_its_end(tmp_path: Path, source: Source) -> None:
    seen: list[tuple[str, int, int]] = []
    write_bundle(source, tmp_path / "bundle", name="x", advance=lambda *step: seen.append(step))
    assert seen[0] == ("writing the fp32 graph", 0, 42)
    assert seen[-1] == ("comparing fp32 logits", 42, 42)


def test_a_checkpoint_that_was_trained_on_shorter_texts_keeps_its_limit(tmp_path: Path) -> None:
    config = tiny_config(max_length=64)
    save_checkpoint(tmp_path / "c", tiny_model(config), tiny_tokenizer(), max_length=30, record={})
    manifest = write_bundle(from_checkpoint(tmp_path / "c"), tmp_path / "b", name="x")
    assert manifest.max_length == 30
    assert manifest.graphs[0].checks["lengths"] == [1, 2, 5, 17, 30]


def test_the_tokenizer_has_no_padding_or_truncation_of_its_own(tmp_path: Path, source: Source) -> None:
    source.text_encoder.tokenizer.enable_padding(length=40)
    source.text_encoder.tokenizer.enable_truncation(7)
    write_bundle(source, tmp_path / "bundle", name="x")
    tokenizer = Tokenizer.from_file(str(tmp_path / "bundle" / "tokenizer.json"))
    assert tokenizer.padding is None
    assert tokenizer.truncation is None


# the target


def test_only_bundles_are_overwritten_and_only_when_told(tmp_path: Path, source: Source) -> None:
    bundle = tmp_path / "bundle"
    check_target(bundle, overwrite=False)
    write_bundle(source, bundle, name="x")
    with pytest.raises(UsageError, match=r"bundle exists; choose another --out or add --overwrite"):
        check_target(bundle, overwrite=False)
    check_target(bundle, overwrite=True)
    for precious in (tmp_path / "checkpoint", tmp_path):
        with pytest.raises(UsageError, match="is not a bundle, so it will not be overwritten"):
            check_target(precious, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a bundle"):
        check_target(tmp_path / "file", overwrite=True)
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", overwrite=False)


def test_a_bundle_whose_swap_was_killed_counts_as_there(tmp_path: Path, source: Source) -> None:
    write_bundle(source, tmp_path / "bundle", name="x")
    os.rename(tmp_path / "bundle", tmp_path / ".bundle.old")
    with pytest.raises(UsageError, match="exists"):
        check_target(tmp_path / "bundle", overwrite=False)


def test_a_module_with_trained_dropout_is_exported_without(tmp_path: Path) -> None:
    model = SequenceClassifier(tiny_config("roberta", hidden_dropout_prob=0.5, classifier_dropout=0.5)).eval()
    source = Source(
        model=model,
        text_encoder=from_checkpoint(tiny_checkpoint(tmp_path / "c", "roberta")).text_encoder,
        metrics={},
        provenance={},
    )
    assert write_bundle(source, tmp_path / "b", name="x").graphs[0].checks["max_abs_logit_difference"] < 1e-5
