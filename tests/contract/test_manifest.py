import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from contract.errors import BundleError
from contract.manifest import (
    FORMAT_VERSION,
    Graph,
    Manifest,
    TensorSpec,
    load_manifest,
    load_text_encoder,
    save_manifest,
)
from contract.storage import sha256_file

BATCH_SEQ = ("batch", "seq")


def some_manifest(folder: Path) -> Manifest:
    names = ("model.onnx", "model.onnx_data", "config.json", "tokenizer.json")
    return Manifest(
        robal_version="0.1.0",
        name="tiny",
        family="albert",
        problem_type="single_label_classification",
        labels=("negative", "positive"),
        max_length=16,
        pad_token_id=0,
        type_vocab_size=2,
        inputs=tuple(
            TensorSpec(name=name, dtype="int64", axes=BATCH_SEQ)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ),
        outputs=(TensorSpec(name="logits", dtype="float32", axes=("batch", 2)),),
        graphs=(
            Graph(
                precision="fp32",
                file="model.onnx",
                weights=("model.onnx_data",),
                opset=17,
                size_bytes=13,
                checks={"max_abs_logit_difference": 1e-7},
            ),
        ),
        parameters=100,
        unique_parameters=25,
        files={name: sha256_file(folder / name) for name in names},
        metrics={"dev": {"accuracy": 0.5}},
        provenance={"checkpoint": {"seed": 1}},
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder with every file of a bundle; the graph itself is never opened here."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    for name in ("model.onnx", "model.onnx_data"):
        (folder / name).write_bytes(name.encode())
    (folder / "config.json").write_text('{"id2label": {"0": "negative", "1": "positive"}}')
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "good": 3, "bad": 4}, unk_token="[PAD]"))
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    save_manifest(folder, some_manifest(folder))
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def refused(folder: Path, message: str) -> None:
    with pytest.raises(BundleError, match=message) as caught:
        load_manifest(folder)
    assert "\n" not in str(caught.value)


def test_what_is_saved_is_loaded(bundle: Path) -> None:
    assert load_manifest(bundle) == some_manifest(bundle)


def test_the_text_encoder_follows_the_manifest(bundle: Path) -> None:
    encoder = load_text_encoder(bundle, load_manifest(bundle))
    assert (encoder.max_length, encoder.pad_token_id, encoder.type_vocab_size) == (16, 0, 2)
    assert encoder.encode("good").input_ids.tolist() == [1, 3, 2]


@pytest.mark.parametrize("broken", ["{}", "not json", ""])
def test_a_tokenizer_that_cannot_be_read_is_one_sentence(bundle: Path, broken: str) -> None:
    (bundle / "tokenizer.json").write_text(broken)
    with pytest.raises(BundleError, match=r"tokenizer\.json cannot be read"):
        load_text_encoder(bundle, load_manifest(bundle, verify=False))


def test_what_is_not_a_bundle_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "nothing is not a folder")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "file is not a folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "is not a robal bundle.$")
    (empty / "config.json").write_text("{}")
    refused(empty, "looks like a checkpoint: run `robal export`")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (FORMAT_VERSION + 1, "has bundle format 2 and this robal reads up to 1; upgrade robal"),
        (0, "never existed"),
        (-1, "never existed"),
        ("1", "no integer format_version"),
        (1.0, "no integer format_version"),
        (True, "no integer format_version"),
        (None, "no integer format_version"),
    ],
)
def test_another_format_version_is_refused(bundle: Path, version: object, message: str) -> None:
    edit(bundle, lambda raw: raw.update(format_version=version))
    refused(bundle, message)


def test_a_newer_format_is_named_before_its_unknown_fields_are_missed(bundle: Path) -> None:
    (bundle / "manifest.json").write_text('{"format_version": 2}')
    refused(bundle, "upgrade robal")


def test_fields_of_a_later_minor_release_are_ignored(bundle: Path) -> None:
    edit(bundle, lambda raw: raw.update(calibration={"temperature": 1.5}))
    assert load_manifest(bundle) == some_manifest(bundle)


def test_a_swapped_label_file_is_refused(bundle: Path) -> None:
    (bundle / "config.json").write_text('{"id2label": {"0": "positive", "1": "negative"}}')
    refused(bundle, r"config\.json was changed after the export")


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx_data", "config.json", "tokenizer.json"])
def test_every_file_is_missed_and_every_edit_is_seen(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    refused(bundle, f"{name} was changed after the export")
    assert load_manifest(bundle, verify=False) == replace(some_manifest(bundle), files=_hashes(bundle))
    (bundle / name).unlink()
    refused(bundle, f"lacks the file '{name}'")
    with pytest.raises(BundleError, match="lacks the file"):
        load_manifest(bundle, verify=False)


def _hashes(bundle: Path) -> dict[str, str]:
    return dict(json.loads((bundle / "manifest.json").read_text())["files"])


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", ".", "..", "", "a/../model.onnx", "a\\b", "nul\0byte", "manifest.json"]
)
def test_a_file_name_cannot_lead_out_of_the_bundle(bundle: Path, name: str) -> None:
    (bundle.parent / "secret").write_text("x")
    (bundle / "a").mkdir()
    (bundle / "a" / "b").write_text("x")
    (bundle / "a\\b").write_text("x")
    edit(bundle, lambda raw: raw["files"].update({name: sha256_file(bundle.parent / "secret")}))
    refused(bundle, "not a plain file name")


@pytest.mark.parametrize("where", ["file", "weights"])
def test_a_graph_cannot_read_a_file_without_a_hash(bundle: Path, where: str) -> None:
    value = {"file": "../model.onnx", "weights": ["../model.onnx_data"]}[where]
    edit(bundle, lambda raw: raw["graphs"][0].update({where: value}))
    refused(bundle, r"no sha256 for '\.\./model")


def test_an_unhashed_tokenizer_is_refused(bundle: Path) -> None:
    edit(bundle, lambda raw: raw["files"].pop("tokenizer.json"))
    refused(bundle, r"no sha256 for 'tokenizer\.json'")


REQUIRED = [
    *("robal_version", "name", "family", "problem_type", "labels", "max_length", "pad_token_id", "type_vocab_size"),
    *("inputs", "outputs", "graphs", "parameters", "unique_parameters", "files", "metrics", "provenance"),
]


@pytest.mark.parametrize("field", REQUIRED)
def test_a_missing_field_is_named(bundle: Path, field: str) -> None:
    edit(bundle, lambda raw: raw.pop(field))
    refused(bundle, f"the field {field} is missing")


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("value", [None, True, 1.5, [[]], {"a": []}], ids=repr)
def test_a_field_of_the_wrong_type_is_named(bundle: Path, field: str, value: object) -> None:
    if field in ("metrics", "provenance") and isinstance(value, dict):
        return  # free-form objects
    edit(bundle, lambda raw: raw.update({field: value}))
    refused(bundle, rf"{field}(\[0\]|\['a'\])? is|no sha256")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw["inputs"].append(7), r"inputs\[3\] is 7; expected"),
        (lambda raw: raw["inputs"][0].pop("dtype"), r"the field inputs\[0\].dtype is missing"),
        (lambda raw: raw["outputs"][0].update(axes=["batch", None]), r"outputs\[0\].axes\[1\] is None; expected"),
        (lambda raw: raw["graphs"][0].update(opset=True), r"graphs\[0\].opset is True; expected int"),
        (lambda raw: raw["graphs"][0].update(weights=[3]), r"graphs\[0\].weights\[0\] is 3; expected str"),
        (lambda raw: raw["graphs"].append(raw["graphs"][0]), "two graphs of precision 'fp32'"),
        (lambda raw: raw["graphs"].clear(), "there is no graph"),
        (lambda raw: raw.update(labels=["a", 1]), r"labels\[1\] is 1; expected str"),
        (lambda raw: raw.update(labels=["a", "a"]), "labels must be distinct"),
        (lambda raw: raw.update(labels=[]), "labels must be distinct and at least one"),
        (lambda raw: raw.update(labels=["a", "b", "c"]), "3 labels and outputs of another size"),
        (lambda raw: raw.update(problem_type="ranking"), "problem_type is 'ranking'; expected one of"),
        (lambda raw: raw.update(max_length=0), "max_length is 0; expected at least 1"),
        (lambda raw: raw["files"].update({"config.json": 5}), r"files\['config.json'\] is 5; expected str"),
    ],
)
def test_a_broken_value_is_named(bundle: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    edit(bundle, change)
    refused(bundle, message)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from([*REQUIRED, "format_version"]), value=anything)
def test_no_manifest_gives_anything_but_a_manifest_or_a_sentence(bundle: Path, field: str, value: object) -> None:
    path = bundle / "manifest.json"
    original = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(original), field: value}))
        load_manifest(bundle, verify=False)
    except BundleError:
        pass
    finally:
        path.write_text(original)


def test_a_graph_is_found_by_its_precision(bundle: Path) -> None:
    manifest = load_manifest(bundle)
    assert manifest.graph("fp32").file == "model.onnx"
    with pytest.raises(BundleError, match="'tiny' has no int8 graph; it has 'fp32'"):
        manifest.graph("int8")


def test_a_bundle_whose_swap_was_killed_is_put_back(bundle: Path) -> None:
    shutil.move(bundle, bundle.parent / ".bundle.old")
    assert load_manifest(bundle).name == "tiny"


def test_surplus_files_do_no_harm(bundle: Path) -> None:
    (bundle / "README.md").write_text("notes")
    assert load_manifest(bundle) == some_manifest(bundle)
