"""Checkpoint folders: files in every format, what is missing, what is surplus, what must not happen silently."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from contract.errors import CheckpointError, RobalError
from encoders.checkpoint import load_classifier, load_masked_lm, load_pretraining, open_checkpoint, save_checkpoint
from encoders.heads import MaskedLanguageModel, Model, SequenceClassifier
from encoders.weights import detect_family, hf_names
from tests.encoders.oracle import BATCH, CONFIGS, HEADS, inputs, oracle, overwrite
from tests.tiny import tiny_checkpoint, tiny_config, tiny_model, tiny_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path / "model", family="bert", labels=("no", "yes", "maybe"))


def tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, content: dict[str, Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in content.items()}, folder / "model.safetensors")


def edit_config(folder: Path, **changes: Any) -> None:
    raw = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))


def answers(folder: Path) -> Tensor:
    model = load_classifier(open_checkpoint(folder)).model
    return model(**inputs(model.config)).detach()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("case", [case for case in CONFIGS if "xlm" not in case])
def test_rename_tables_are_bijections_onto_transformers_names(case: str, head: str, tmp_path: Path) -> None:
    if head == "PretrainingModel" and "roberta" in case:
        return  # transformers means masked-LM by it
    theirs = oracle(case, head, num_labels=2)
    theirs.save_pretrained(tmp_path)
    model = HEADS[head][1](open_checkpoint(tmp_path)).model
    names = hf_names(model)
    assert set(names) == {name for name, _ in theirs.named_parameters()}  # which lists tied parameters once
    assert sorted(names.values()) == sorted(name for name, _ in model.named_parameters())


# Files


def test_sharded_safetensors(folder: Path) -> None:
    expected = answers(folder)
    content = tensors(folder)
    (folder / "model.safetensors").unlink()
    shards = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    for index, name in enumerate(sorted(content)):
        shards[sorted(shards)[index % 2]][name] = content[name]
    for name, part in shards.items():
        save_file(part, folder / name)
    index = {"weight_map": {tensor: shard for shard, part in shards.items() for tensor in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(answers(folder), expected)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"lacks 'model-00002-of-00002\.safetensors', which model\.safetensors\.ind"
    ):
        open_checkpoint(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(CheckpointError, match="plain file names were expected"):
        open_checkpoint(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        open_checkpoint(folder)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_of_tensors(folder: Path, is_zip: bool) -> None:
    expected = answers(folder)
    torch.save(tensors(folder), folder / "pytorch_model.bin", _use_new_zipfile_serialization=is_zip)
    (folder / "model.safetensors").unlink()
    assert torch.equal(answers(folder), expected)


@pytest.mark.parametrize("content", [["a", "list"], {"state": 1}, 5])
def test_a_pickle_of_something_else(folder: Path, content: Any) -> None:
    torch.save(content, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="does not hold a plain dictionary of tensors"):
        open_checkpoint(folder)


def test_a_pickle_of_a_model_object_stays_closed(folder: Path) -> None:
    torch.save(tiny_model(tiny_config("bert")), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"asks for encoders\.heads\.SequenceClassifier: .* stays closed"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"not weights at all, but long enough to be read as a header", "is damaged"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", r"Git LFS pointer.*git lfs pull"),
    ],
)
def test_damaged_weights(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_classifier(open_checkpoint(folder))


def test_truncated_weights(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load_classifier(open_checkpoint(folder))


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    with pytest.raises(CheckpointError, match=r"no weights.*'tf_model\.h5' cannot be read: convert it"):
        open_checkpoint(folder)
    (folder / "tf_model.h5").unlink()
    with pytest.raises(CheckpointError, match=r"no weights.*copy the whole model folder"):
        open_checkpoint(folder)


def test_not_a_model_folder(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent is not a folder"):
        open_checkpoint(tmp_path / "absent")
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is an exported bundle"):
        open_checkpoint(folder)
    (folder / "manifest.json").unlink()
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
        open_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(folder)


def test_a_record_from_the_future(folder: Path) -> None:
    (folder / "robal.json").write_text('{"format": 2}')
    with pytest.raises(CheckpointError, match=r"format 2 and this robal reads up to 1; upgrade"):
        open_checkpoint(folder)
    (folder / "robal.json").write_text('{"format": "one"}')
    with pytest.raises(CheckpointError, match="format 'one'"):
        open_checkpoint(folder)


# Names


def test_old_names_of_layer_norms_and_a_decoder_bias(tmp_path: Path) -> None:
    theirs = oracle("bert", "MaskedLanguageModel")
    theirs.save_pretrained(tmp_path)
    batch = inputs(theirs.config)
    content = tensors(tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        content = {key.replace(new, name): value for key, value in content.items()}
    content["cls.predictions.decoder.bias"] = content.pop("cls.predictions.bias")
    rewrite(tmp_path, content)
    loaded = load_masked_lm(open_checkpoint(tmp_path))
    assert (loaded.new_tensors, loaded.unused_tensors) == ((), ())
    assert torch.allclose(loaded.model(**batch), theirs(**batch).logits, atol=1e-5)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_wrappers(folder: Path, prefix: str) -> None:
    expected = answers(folder)
    rewrite(folder, {prefix + name: tensor for name, tensor in tensors(folder).items()})
    assert torch.equal(answers(folder), expected)


def test_positions_that_are_not_counted_up(folder: Path) -> None:
    content = tensors(folder)
    content["bert.embeddings.position_ids"] = torch.arange(64).flip(0)[None]
    rewrite(folder, content)
    with pytest.raises(CheckpointError, match="position_ids is not 0, 1, 2"):
        load_classifier(open_checkpoint(folder))


@pytest.mark.parametrize(
    ("names", "model_type", "expected"),
    [
        (["bert.embeddings.word_embeddings.weight"], "roberta", "bert"),
        (["roberta.embeddings.word_embeddings.weight"], "bert", "roberta"),
        (["module.albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.bias"], "bert", "albert"),
        (["encoder.layer.0.output.dense.bias"], "roberta", "roberta"),
        (["encoder.layer.0.output.dense.bias"], "xlm-roberta", "roberta"),
        (["bert.embeddings.LayerNorm.bias"], None, "bert"),
        (["bert.embeddings.LayerNorm.bias"], "robal-bert", "bert"),
    ],
)
def test_the_tensors_decide_the_family(names: list[str], model_type: str | None, expected: str) -> None:
    assert detect_family(names, model_type) == expected


def test_families_that_cannot_be_told_or_are_others() -> None:
    with pytest.raises(CheckpointError, match="no model_type"):
        detect_family(["encoder.layer.0.output.dense.bias"], None)
    with pytest.raises(CheckpointError, match="model_type='big_bird'"):  # its tensors are called bert, too
        detect_family(["bert.embeddings.LayerNorm.bias"], "big_bird")


def test_a_bert_whose_configuration_says_roberta(folder: Path) -> None:
    expected = answers(folder)
    edit_config(folder, model_type="roberta")
    assert open_checkpoint(folder).config.model_type == "bert"
    assert torch.equal(answers(folder), expected)


# What is missing or surplus


def test_missing_encoder_weights_are_always_an_error(folder: Path) -> None:
    content = tensors(folder)
    del content["bert.encoder.layer.1.attention.self.key.bias"]
    rewrite(folder, content)
    for strict in (True, False):
        with pytest.raises(
            CheckpointError, match=r"1 encoder tensors are missing: 'bert\.encoder\.layer\.1\.attention"
        ):
            load_classifier(open_checkpoint(folder), strict=strict)


def test_surplus_encoder_weights_mean_that_the_files_do_not_belong_together(folder: Path) -> None:
    edit_config(folder, num_hidden_layers=2)
    with pytest.raises(CheckpointError, match=r"16 encoder tensors have no place.*'bert\.encoder\.layer\.2"):
        load_classifier(open_checkpoint(folder))


def test_an_encoder_of_another_width(folder: Path) -> None:
    edit_config(folder, intermediate_size=38)
    with pytest.raises(
        CheckpointError, match=r"intermediate.*\(37, 20\) and the model needs \(38, 20\).*do not belong"
    ):
        load_classifier(open_checkpoint(folder))


def test_integer_weights_are_refused(folder: Path) -> None:
    content = tensors(folder)
    content["bert.pooler.dense.weight"] = content["bert.pooler.dense.weight"].to(torch.int8)
    rewrite(folder, content)
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight is stored as torch\.int8"):
        load_classifier(open_checkpoint(folder))


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_weights_of_a_diverged_training(folder: Path, number: float) -> None:
    content = tensors(folder)
    content["bert.encoder.layer.0.output.dense.weight"][3, 4] = number
    rewrite(folder, content)
    with pytest.raises(CheckpointError, match=r"layer\.0\.output\.dense\.weight holds NaN or infinity"):
        load_classifier(open_checkpoint(folder))


# Heads and labels


def test_other_labels_need_a_new_head(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    for labels in (("yes", "no", "maybe"), ("a", "b", "c")):
        with pytest.raises(CheckpointError, match="ask for a new head"):
            load_classifier(checkpoint, labels=labels, strict=False)
    with pytest.raises(CheckpointError, match=r"has 3 labels: ask for a new head"):
        load_classifier(checkpoint, labels=("a", "b"), strict=False)
    loaded = load_classifier(checkpoint, labels=("a", "b"), strict=False, new_head=True)
    assert loaded.new_tensors == ("classifier.weight", "classifier.bias")
    assert loaded.model.config.labels == ("a", "b")
    assert load_classifier(checkpoint, labels=checkpoint.config.labels).new_tensors == ()


def test_labels_without_names_may_be_named(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", labels=("LABEL_0", "LABEL_1"))
    loaded = load_classifier(open_checkpoint(folder), labels=("no", "yes"))
    assert loaded.model.config.labels == ("no", "yes")


def test_a_new_head_is_finite_seeded_and_of_the_right_size(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    heads = [load_classifier(checkpoint, new_head=True, strict=False, seed=seed).model.classifier for seed in (0, 0, 1)]
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert not torch.equal(heads[0].weight, heads[2].weight)
    assert float(heads[0].weight.detach().std()) == pytest.approx(0.02, rel=0.3)


def test_a_masked_language_model_becomes_a_classifier_and_back(tmp_path: Path) -> None:
    for family in ("bert", "roberta", "albert"):
        model = MaskedLanguageModel(tiny_config(family))
        overwrite(model)
        save_checkpoint(tmp_path / family, model, tiny_tokenizer(family), max_length=64, record={})
        checkpoint = open_checkpoint(tmp_path / family)
        loaded = load_classifier(checkpoint, labels=("x", "y", "z"), strict=False)
        assert loaded.new_tensors == (
            *("pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"),
        )
        ids = inputs(model.config)["input_ids"]
        assert torch.equal(loaded.model.encoder(ids), model.eval().encoder(ids))
        assert loaded.model(ids).shape == (BATCH, 3)
        with pytest.raises(CheckpointError, match="lacks 'classifier"):
            load_classifier(checkpoint)
    with pytest.raises(RobalError, match="roberta has no sentence task"):
        load_pretraining(open_checkpoint(tmp_path / "roberta"), strict=False)


# Saving


def test_saved_and_read_again_bit_by_bit(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert checkpoint.record["metrics"] == {"accuracy": 0.75, "macro_f1": 0.7}
    assert checkpoint.record["format"] == 1
    model = load_classifier(checkpoint).model
    original = tiny_model(checkpoint.config)
    for ours, theirs in zip(model.parameters(), original.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not model.training


def test_a_shorter_length_than_the_model_has_is_kept(tmp_path: Path) -> None:
    model = tiny_model(tiny_config("roberta", max_length=64))
    save_checkpoint(tmp_path / "m", model, tiny_tokenizer("roberta"), max_length=16, record={})
    encoder = open_checkpoint(tmp_path / "m").text_encoder
    assert encoder is not None
    assert encoder.max_length == 16


def test_no_tokenizer_files(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()
    assert open_checkpoint(folder).text_encoder is None


def test_a_tokenizer_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model: Model = SequenceClassifier(tiny_config("bert", vocab_size=100))
    with pytest.raises(CheckpointError, match="the embedding has 100 rows"):
        save_checkpoint(tmp_path / "m", model, tiny_tokenizer("bert"), max_length=64, record={})
    assert list(tmp_path.iterdir()) == []


def test_a_failing_save_leaves_the_old_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(folder)

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("encoders.checkpoint.save_tokenizer", fail)
    other = tiny_model(open_checkpoint(folder).config, seed=9)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(folder, other, tiny_tokenizer("bert"), max_length=64, record={})
    assert torch.equal(answers(folder), expected)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_kill_between_the_two_renames_is_mended(folder: Path) -> None:
    expected = answers(folder)
    shutil.move(folder, folder.parent / f".{folder.name}.old")
    assert torch.equal(answers(folder), expected)
