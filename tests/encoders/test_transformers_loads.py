"""What we save, transformers loads: no missing key, no surplus key, the same answers. So do we."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from contract.errors import CheckpointError
from encoders.checkpoint import load_classifier, open_checkpoint, save_checkpoint
from encoders.heads import MaskedLanguageModel, Model, PretrainingModel, SequenceClassifier
from encoders.training import count_parameters
from tests.encoders.oracle import HEADS, inputs, overwrite
from tests.encoders.test_parity import close
from tests.tiny import tiny_config, tiny_tokenizer

SHARED = ("all", "attention", "ffn")
HEADS_OF_FAMILIES: list[tuple[str, type[Model]]] = [
    *((family, SequenceClassifier) for family in ("bert", "roberta", "albert")),
    *((family, MaskedLanguageModel) for family in ("bert", "roberta", "albert")),
    *((family, PretrainingModel) for family in ("bert", "albert")),  # RoBERTa has no sentence task
]
LAYOUTS = [
    # family, sharing, blocks in a layer, groups
    *(("albert", sharing, inner, groups) for sharing in SHARED for inner in (1, 2) for groups in (1, 2)),
    *(("bert", sharing, inner, groups) for sharing in SHARED for inner, groups in ((1, 1), (2, 2))),
    *((family, "none", inner, 1) for family in ("albert", "bert") for inner in (1, 2)),
    (
        "albert",
        "all",
        3,
        2,
    ),  # more blocks in a group than layers: transformers cannot run that from ALBERT's own layout
    ("roberta", "all", 1, 1),
]


def save(folder: Path, model: Model, **options: Any) -> Path:
    overwrite(model)
    save_checkpoint(folder, model.eval(), tiny_tokenizer(model.config.model_type), max_length=64, record={}, **options)
    return folder


def load_theirs(folder: Path, head: str) -> Any:
    """transformers' model, after a look at its own report."""
    theirs, report = HEADS[head][0].from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    assert {key: list(value) for key, value in report.items() if len(value)} == {}
    return theirs.eval()


@pytest.mark.parametrize(("family", "kind"), HEADS_OF_FAMILIES)
def test_every_head_of_every_family(family: str, kind: type[Model], tmp_path: Path) -> None:
    model = kind(tiny_config(family, labels=("a", "b", "c"), hidden_dropout_prob=0.0))
    theirs = load_theirs(save(tmp_path / "m", model), kind.__name__)
    batch = inputs(model.config)
    output = model(**batch)
    outputs = output if isinstance(output, tuple) else (output,)
    for ours, reference in zip(outputs, theirs(**batch).to_tuple(), strict=True):
        close(ours, reference, "logits")


@pytest.mark.parametrize(("family", "sharing", "inner", "groups"), LAYOUTS)
def test_every_kind_of_sharing(family: str, sharing: Any, inner: int, groups: int, tmp_path: Path) -> None:
    config = tiny_config(
        family,
        num_hidden_layers=5,
        classifier_dropout=0.1,
        layer_sharing=sharing,
        num_hidden_groups=groups,
        inner_group_num=inner,
    )
    model = SequenceClassifier(config)
    folder = save(tmp_path / "m", model)
    batch = inputs(config)
    expected = model(**batch)
    close(load_theirs(folder, "SequenceClassifier")(**batch).logits, expected, "transformers' logits")

    checkpoint = open_checkpoint(folder)
    assert checkpoint.config == config
    loaded = load_classifier(checkpoint)
    assert not loaded.unused_tensors
    assert torch.equal(loaded.model(**batch), expected)
    assert count_parameters(loaded.model) == count_parameters(model)  # shared again, not eight copies


def test_copies_that_differ_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", SequenceClassifier(tiny_config("bert", layer_sharing="ffn")))
    theirs = load_theirs(folder, "SequenceClassifier")
    with torch.no_grad():
        theirs.bert.encoder.layer[1].intermediate.dense.bias += 1
    theirs.save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"layer\.0\.intermediate\.dense\.bias and .*layer\.1.* differ"):
        load_classifier(open_checkpoint(folder))
    raw = json.loads((folder / "config.json").read_text())
    assert raw.pop("robal")["layer_sharing"] == "ffn"  # the key survives transformers' own saving
    (folder / "config.json").write_text(json.dumps(raw))
    batch = inputs(theirs.config)
    close(load_classifier(open_checkpoint(folder)).model(**batch), theirs(**batch).logits, "logits of separate layers")


@pytest.mark.parametrize(
    "config",
    [
        tiny_config("bert", embedding_size=11),
        tiny_config("roberta", embedding_size=11, layer_sharing="all"),
        tiny_config("albert", embedding_size=20, embedding_projection=False, classifier_dropout=0.2),
    ],
    ids=["factorised bert", "factorised roberta", "albert without map"],
)
def test_what_transformers_has_no_class_for_is_not_offered_to_it(config: Any, tmp_path: Path) -> None:
    model = SequenceClassifier(config)
    folder = save(tmp_path / "m", model)
    with pytest.raises(ValueError, match=f"robal-{config.model_type}"):
        transformers.AutoConfig.from_pretrained(folder)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.record["transformers"] is False
    assert checkpoint.config == config
    assert torch.equal(load_classifier(checkpoint).model(**inputs(config)), model(**inputs(config)))


def test_bfloat16_storage(tmp_path: Path) -> None:
    model = SequenceClassifier(tiny_config("albert"))
    folder = save(tmp_path / "m", model, dtype=torch.bfloat16)
    batch = inputs(model.config)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype="auto").eval()
    assert theirs.dtype == torch.bfloat16
    close(load_classifier(open_checkpoint(folder)).model(**batch), theirs.float()(**batch).logits, "logits")
    size, full = (
        path.stat().st_size
        for path in (folder / "model.safetensors", save(tmp_path / "f", model) / "model.safetensors")
    )
    assert size < 0.7 * full


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_the_tokenizer_and_the_settings(family: str, tmp_path: Path) -> None:
    config = tiny_config(family, labels=("no", "yes"), problem_type="multi_label_classification")
    folder = save(tmp_path / "m", SequenceClassifier(config))
    ours = open_checkpoint(folder).text_encoder
    assert ours is not None
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs.model_max_length == ours.max_length == 64
    assert theirs.pad_token_id == config.pad_token_id
    assert theirs.mask_token is not None
    for text in ("this film is good", ("the people", "in it"), "", "word " * 100):
        pair = (text,) if isinstance(text, str) else text
        assert theirs(*pair, truncation="longest_first")["input_ids"] == ours.encode(text).input_ids.tolist()
    read = transformers.AutoConfig.from_pretrained(folder)
    assert read.id2label == {0: "no", 1: "yes"}
    assert read.problem_type == "multi_label_classification"


def test_a_transformers_pipeline_gives_our_scores(tmp_path: Path) -> None:
    model = SequenceClassifier(tiny_config("roberta", labels=("no", "yes")))
    folder = save(tmp_path / "m", model)
    pipeline = transformers.pipeline("text-classification", model=str(folder), device="cpu", top_k=None)
    text = "the people in it are wonderful"
    encoder = open_checkpoint(folder).text_encoder
    assert encoder is not None
    batch = encoder.pad([encoder.encode(text)])
    logits = model(torch.from_numpy(batch["input_ids"]), torch.from_numpy(batch["attention_mask"]))
    expected = dict(zip(("no", "yes"), logits.softmax(-1)[0].tolist(), strict=True))
    assert {row["label"]: row["score"] for row in pipeline([text])[0]} == pytest.approx(expected, abs=1e-5)


def test_a_config_without_labels_of_its_own_for_pretraining(tmp_path: Path) -> None:
    config = replace(tiny_config("albert"), labels=("a", "b", "c"))
    folder = save(tmp_path / "m", PretrainingModel(config))
    assert load_theirs(folder, "PretrainingModel").config.num_labels == 2
