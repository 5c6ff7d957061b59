"""Configurations: what is read, what is written, what is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import CheckpointError, UsageError
from encoders.config import ACTIVATIONS, EncoderConfig
from encoders.presets import PRESETS, preset
from tests.encoders.oracle import CONFIGS
from tests.encoders.test_sharing import configs
from tests.tiny import tiny_config

RAW: dict[str, Any] = tiny_config("bert").to_hf()


@given(configs(), st.sampled_from(ACTIVATIONS), st.sampled_from((0.0, 0.25)))
def test_round_trip_through_json(config: EncoderConfig, activation: str, dropout: float) -> None:
    config = replace(config, hidden_act=activation, classifier_dropout=dropout, labels=("b", "a", "c"))
    assert EncoderConfig.from_hf(json.loads(json.dumps(config.to_hf()))) == config


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip_and_carry_no_key_of_ours(name: str) -> None:
    raw = preset(name).to_hf()
    assert "robal" not in raw
    assert EncoderConfig.from_hf(raw) == preset(name)


def test_there_is_no_such_preset() -> None:
    with pytest.raises(UsageError, match="no preset 'albert-huge'; there are 'albert-base'"):
        preset("albert-huge")


@pytest.mark.parametrize("case", [case for case in CONFIGS if "xlm" not in case])
@pytest.mark.parametrize("complete", [True, False])
def test_transformers_configurations_mean_the_same(case: str, complete: bool) -> None:
    theirs = CONFIGS[case]()
    ours = EncoderConfig.from_hf(theirs.to_dict() if complete else json.loads(theirs.to_json_string(use_diff=True)))
    for field in (
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
        *("initializer_range", "layer_norm_eps", "pad_token_id", "num_labels"),
    ):
        assert getattr(ours, field) == getattr(theirs, field), field
    back = type(theirs)(**ours.to_hf())
    for field, value in theirs.to_dict().items():
        if field not in ("architectures", "problem_type", "transformers_version"):
            assert getattr(back, field) == value, field


def test_what_a_configuration_leaves_out_is_what_transformers_fills_in() -> None:
    for family, kind in (
        ("bert", transformers.BertConfig),
        ("roberta", transformers.RobertaConfig),
        ("albert", transformers.AlbertConfig),
    ):
        sizes = {
            "vocab_size": 99,
            "hidden_size": 20,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 37,
        }
        ours, theirs = EncoderConfig.from_hf({"model_type": family, **sizes}), kind(**sizes)
        for name, value in ours.to_hf().items():
            if name not in ("problem_type", "id2label", "label2id"):
                assert getattr(theirs, name) == value, f"{family}: {name}"


def test_usable_length() -> None:
    assert preset("bert-base").max_length == preset("albert-base").max_length == 512
    assert preset("roberta-base").max_length == 512
    assert replace(preset("roberta-base"), pad_token_id=3).max_length == 510


@pytest.mark.parametrize(
    ("labels", "problem_type", "expected"),
    [
        ({"0": "no", "1": "yes"}, None, (("no", "yes"), "single_label_classification")),
        ({"1": "yes", "0": "no"}, "multi_label_classification", (("no", "yes"), "multi_label_classification")),
        ({"0": "score"}, None, (("score",), "regression")),
        (None, None, (("LABEL_0", "LABEL_1"), "single_label_classification")),
    ],
)
def test_labels_and_problem_type(labels: Any, problem_type: Any, expected: Any) -> None:
    config = EncoderConfig.from_hf(RAW | {"id2label": labels, "problem_type": problem_type})
    assert (config.labels, config.problem_type) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "'gpt2' is not a family"),
        ({"model_type": None}, "None is not a family"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"hidden_size": "20"}, "hidden_size='20'"),
        ({"hidden_size": 21}, "num_attention_heads=4.*must divide hidden_size=21"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"vocab_size": True}, "vocab_size=True"),
        ({"hidden_act": "silu"}, "hidden_act='silu'.*expected one of 'gelu'"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob=1.5"),
        ({"classifier_dropout": "a lot"}, "classifier_dropout='a lot'"),
        ({"layer_norm_eps": 0}, "layer_norm_eps=0"),
        ({"pad_token_id": 331}, "pad_token_id=331.*below vocab_size=331"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"problem_type": "ranking"}, "problem_type='ranking'"),
        ({"problem_type": "regression"}, "regression has one output"),
        ({"id2label": {"0": "a", "2": "b"}}, r"has the ids 0, 2; expected 0, 1, 2"),
        ({"id2label": {"0": "a", "1": "a"}}, "no name twice"),
        ({"id2label": {}}, "at least one label"),
        ({"id2label": ["a", "b"]}, "expected an object such as"),
        ({"robal": {"layers": 3}}, '"robal" in config.json'),
        ({"robal": {"layer_sharing": "half"}}, "layer_sharing='half'"),
        ({"robal": {"num_hidden_groups": 4}}, "num_hidden_groups=4.*only 3 layers"),
        ({"model_type": "roberta", "pad_token_id": 63}, "max_position_embeddings=64.*no position is left"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        EncoderConfig.from_hf(RAW | change)


def test_narrow_embeddings_need_a_map() -> None:
    with pytest.raises(CheckpointError, match="embedding_size=11 needs a map to hidden_size=20"):
        tiny_config("albert", embedding_projection=False)
