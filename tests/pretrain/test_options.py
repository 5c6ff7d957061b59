"""What can be typed: names, contradictions, and what follows from what."""

import re
from pathlib import Path
from typing import Any

import pytest

from contract.errors import CheckpointError, UsageError
from encoders.checkpoint import save_checkpoint
from encoders.heads import MaskedLanguageModel
from pretrain.options import Choices, resolve
from pretrain.settings import Settings, ShapeChanges, differences
from pretrain.store import Store
from tests.pretrain.tiny_runs import tiny_settings, tiny_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_store(tmp_path_factory.mktemp("store"))


def settings_for(store: Store, **changes: Any) -> Settings:
    fields = {name: changes.pop(name) for name in list(changes) if name not in Choices.__dataclass_fields__}
    values: dict[str, Any] = {
        "preset": None,
        "model": None,
        "changes": ShapeChanges(),
        "recipe": None,
        "sequences": None,
        "minutes": None,
        "seed": 0,
        "micro_tokens": 8192,
        "dtype": "fp32",
        "packed": True,
        "compiled": False,
        "parallel": "ddp",
        "save_minutes": 10.0,
        "save_steps": 0,
        "evaluate_steps": 0,
        "spike": 2.5,
        "ledger_ids": False,
        "tensorboard": None,
        "values": fields,
    }
    return resolve(Choices(**(values | changes)), store)[0]


def test_without_options_the_mini_shape_of_the_tokenizers_family_is_trained(store: Store) -> None:
    settings = settings_for(store)
    assert settings.start == "mini-bert"
    assert settings.recipe.objective == "nsp"
    assert settings.config.vocab_size == store.vocabulary.size
    assert settings.config.pad_token_id == store.vocabulary.pad_id


def test_every_family_can_be_trained_on_every_tokenizer(store: Store) -> None:
    roberta = settings_for(store, preset="mini-roberta")
    assert roberta.config.max_length == 512
    assert roberta.config.type_vocab_size == 2  # the tokenizer's second texts are of type 1
    assert settings_for(store, preset="mini-albert").recipe.objective == "sop"


def test_format_and_objective_follow_each_other(store: Store) -> None:
    assert settings_for(store, objective="mlm+sop").recipe.objective == "sop"
    assert settings_for(store, preset="mini-bert", objective="mlm").recipe.format == "segment-pair"
    assert settings_for(store, preset="mini-albert", format="full-sentences").recipe.objective == "mlm"
    assert settings_for(store, recipe="mini-roberta", objective="mlm+nsp").recipe.format == "segment-pair"


def test_budgets_scale_recipes(store: Store) -> None:
    assert settings_for(store, steps=500).recipe.warmup_steps == 50
    shrunk = settings_for(store, recipe="roberta-8k", preset="mini-bert", sequences=10_000).recipe
    assert shrunk.batch_size * shrunk.steps == pytest.approx(10_000, rel=0.02)
    assert settings_for(store, minutes=3.0).minutes == 3.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "gpt"}, "there is no preset 'gpt'"),
        ({"recipe": "gpt"}, "there is no recipe 'gpt'"),
        ({"optimizer": "sgd"}, "--optimizer 'sgd' is none of 'adamw', 'lamb-google', 'lamb-nvidia'"),
        ({"format": "lines"}, "--format 'lines' is none of"),
        ({"masking": "sometimes"}, "--masking 'sometimes' is none of"),
        ({"unit": "letter"}, "--masking-unit 'letter' is none of"),
        ({"objective": "nsp"}, "--objective 'nsp' is none of 'mlm', 'mlm+nsp', 'mlm+sop'"),
        ({"parallel": "tensor"}, "--parallel 'tensor' is neither"),
        ({"dtype": "fp8"}, "--dtype 'fp8' is none of"),
        ({"changes": ShapeChanges(layer_sharing="some")}, "--sharing 'some' is none of"),
        ({"changes": ShapeChanges(layers=0)}, "num_hidden_layers=0"),
        ({"steps": 0}, "steps=0 is not above 0"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0 is not above 0"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 is below 0"),
        ({"steps": 10, "warmup_steps": 11}, "a warm-up of 11 steps does not fit into 10"),
        ({"steps": 10, "minutes": 1.0}, "different budgets"),
        ({"minutes": 0.0}, "--minutes 0.0 is not above 0"),
        ({"sequences": 0}, "--sequences 0 is not above 0"),
        ({"micro_tokens": 0}, "--micro-tokens 0 is not above 0"),
        ({"window": 513}, "--max-length 513 is more than the 512 positions"),
        (
            {"preset": "mini-roberta", "objective": "mlm+nsp", "format": "segment-pair"},
            "needs a sentence head and roberta",
        ),
        ({"objective": "mlm+nsp", "format": "full-sentences"}, "nsp needs two segments"),
        ({"preset": "mini-bert", "model": Path("x")}, "--model brings its own shape"),
    ],
)
def test_what_cannot_be_is_refused(store: Store, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, CheckpointError), match=re.escape(message)):
        settings_for(store, **changes)


def test_a_model_folder_brings_its_shape(store: Store, tmp_path: Path) -> None:
    shape = tiny_settings(store).config
    save_checkpoint(tmp_path / "model", MaskedLanguageModel(shape), store.tokenizer, max_length=32, record={})
    settings = settings_for(store, model=tmp_path / "model", objective="mlm")
    assert settings.config.hidden_size == shape.hidden_size
    assert settings.start == str(tmp_path / "model")
    assert settings.recipe == settings_for(store, preset="mini-albert", objective="mlm").recipe


def test_differences_are_named_with_both_values() -> None:
    assert differences({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4, "d": 3}}) == ["b.c (4 before, 2 now)"]
