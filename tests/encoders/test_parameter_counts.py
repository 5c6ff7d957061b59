"""Exact parameter counts of the published shapes, and the table of the ALBERT paper. On the meta device: no memory."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from encoders.config import EncoderConfig, Sharing
from encoders.encoder import Encoder
from encoders.heads import MaskedLanguageModel, Pooler, PretrainingModel, SequenceClassifier
from encoders.presets import PRESETS, preset
from encoders.training import count_parameters


def unique(*kinds: type[torch.nn.Module], config: EncoderConfig) -> int:
    with torch.device("meta"):
        return sum(count_parameters(kind(config))[1] for kind in kinds)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert-base", 109_482_240),
        ("bert-large", 335_141_888),
        ("roberta-base", 124_645_632),
        ("roberta-large", 355_359_744),
        ("albert-base", 11_683_584),
        ("albert-large", 17_683_968),
        ("albert-xlarge", 58_724_864),
        ("albert-xxlarge", 222_595_584),
    ],
)
def test_encoder_with_pooler(name: str, expected: int) -> None:
    assert unique(Encoder, Pooler, config=preset(name)) == expected


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (Encoder, "roberta-base", 124_055_040),
        (MaskedLanguageModel, "roberta-base", 124_697_433),
        (SequenceClassifier, "roberta-base", 124_647_170),
        (MaskedLanguageModel, "roberta-large", 355_412_057),
        (MaskedLanguageModel, "bert-base", 109_514_298),
        (PretrainingModel, "bert-base", 110_106_428),
        (PretrainingModel, "bert-large", 336_226_108),
        (PretrainingModel, "albert-base", 11_813_810),
        (PretrainingModel, "albert-xxlarge", 223_158_450),
    ],
)
def test_with_heads(kind: type[torch.nn.Module], name: str, expected: int) -> None:
    assert unique(kind, config=preset(name)) == expected


# Tables 3 and 4 of the paper (base shape). Exact counts with the pooler; the paper maps nothing where E = H.
TABLE = {
    # E: (all, attention, ffn, none)
    64: (9_681_408, 61_645_056, 35_684_352, 87_648_000),
    128: (11_683_584, 63_647_232, 37_686_528, 89_650_176),
    256: (15_687_936, 67_651_584, 41_690_880, 93_654_528),
    768: (31_114_752, 83_078_400, 57_117_696, 109_081_344),
}
POOLER = 768 * 768 + 768
PRINTED = {
    # (E, sharing): (millions in the paper, whether that figure counts the pooler)
    (64, "all"): (10, True),
    (128, "all"): (12, True),
    (256, "all"): (16, True),
    (768, "all"): (31, True),
    (64, "none"): (87, False),
    (128, "none"): (89, False),
    (256, "none"): (93, False),
    (768, "none"): (108, False),
    (128, "attention"): (64, True),
    (768, "attention"): (83, True),
    (128, "ffn"): (38, True),
    (768, "ffn"): (57, True),
}


@pytest.mark.parametrize("width", TABLE)
@pytest.mark.parametrize("sharing", get_args(Sharing))
def test_the_papers_table(width: int, sharing: Sharing) -> None:
    config = replace(
        preset("albert-base"), embedding_size=width, embedding_projection=width != 768, layer_sharing=sharing
    )
    exact = unique(Encoder, Pooler, config=config)
    assert exact == TABLE[width][get_args(Sharing).index(sharing)]
    if (width, sharing) in PRINTED:
        millions, counts_pooler = PRINTED[width, sharing]
        assert round((exact if counts_pooler else exact - POOLER) / 1e6) == millions


def test_used_parameters_are_those_of_the_unshared_network() -> None:
    shared, unshared = (
        SequenceClassifier(replace(preset("mini-albert"), layer_sharing=kind)) for kind in ("all", "none")
    )
    assert count_parameters(shared)[0] == count_parameters(unshared)[0] == count_parameters(unshared)[1]
    assert count_parameters(shared)[1] < count_parameters(unshared)[1] / 2


def test_the_minis_differ_in_their_design_only() -> None:
    minis = [PRESETS[f"mini-{family}"] for family in ("bert", "roberta", "albert")]
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        assert len({getattr(config, field) for config in minis}) == 1
    assert {config.max_length for config in minis} == {512}
