"""The schedule of shared parts, and what sharing means for values and gradients."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoders.config import EncoderConfig, Sharing
from encoders.encoder import Encoder
from encoders.heads import SequenceClassifier
from encoders.sharing import schedule, stored_blocks
from encoders.weights import to_hf
from tests.encoders.oracle import inputs, overwrite
from tests.encoders.tolerances import PARITY
from tests.tiny import tiny_config


@st.composite
def configs(draw: st.DrawFn) -> EncoderConfig:
    layers = draw(st.integers(1, 13))
    return tiny_config(
        draw(st.sampled_from(("bert", "roberta", "albert"))),
        num_hidden_layers=layers,
        num_hidden_groups=draw(st.integers(1, layers)),
        inner_group_num=draw(st.integers(1, 3)),
        layer_sharing=draw(st.sampled_from(get_args(Sharing))),
    )


def test_the_picture_in_the_docstring() -> None:
    base = tiny_config(num_hidden_layers=6, num_hidden_groups=2)
    runs, own = (0, 0, 0, 1, 1, 1), (0, 1, 2, 3, 4, 5)
    expected = {"all": (runs, runs), "attention": (runs, own), "ffn": (own, runs), "none": (own, own)}
    for sharing, parts in expected.items():
        assert tuple(zip(*schedule(replace(base, layer_sharing=sharing)), strict=True)) == parts  # type: ignore[arg-type]


@given(configs())
def test_every_stored_part_is_used_and_only_neighbours_share(config: EncoderConfig) -> None:
    blocks = schedule(config)
    assert len(blocks) == config.num_hidden_layers * config.inner_group_num
    shared = config.num_hidden_groups * config.inner_group_num
    for part, sharers in (("attention", ("all", "attention")), ("ffn", ("all", "ffn"))):
        used = [getattr(block, part) for block in blocks]
        count = shared if config.layer_sharing in sharers else len(blocks)
        assert sorted(set(used)) == list(range(count))
        by_layer = used[:: config.inner_group_num]
        assert by_layer == sorted(by_layer)
    assert set(stored_blocks(config)) == set(blocks)


@given(configs())
def test_groups_are_those_of_the_reference_implementations(config: EncoderConfig) -> None:
    if config.layer_sharing == "all":
        for executed, block in enumerate(schedule(config)):
            layer, inner = divmod(executed, config.inner_group_num)
            group = int(layer / (config.num_hidden_layers / config.num_hidden_groups))
            assert divmod(block.ffn, config.inner_group_num) == (group, inner)


@pytest.mark.parametrize("sharing", get_args(Sharing))
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_shared_part_gets_the_sum_of_the_gradients_of_its_uses(family: str, sharing: Sharing) -> None:
    config = tiny_config(family, num_hidden_layers=4, layer_sharing=sharing, num_hidden_groups=2, hidden_act="gelu")
    shared = SequenceClassifier(config).eval()
    overwrite(shared)
    unshared = SequenceClassifier(replace(config, layer_sharing="none")).eval()
    state = shared.state_dict()
    for index, block in enumerate(shared.encoder.schedule):
        for part, used in (("attention", block.attention), ("ffn", block.ffn)):
            for name in getattr(shared.encoder, part)[used].state_dict():
                state[f"encoder.{part}.{index}.{name}"] = shared.state_dict()[f"encoder.{part}.{used}.{name}"]
    unshared.load_state_dict(state)
    batch = inputs(config)
    for model in (shared, unshared):
        model(**batch).square().mean().backward()
    for part in ("attention", "ffn"):
        for used, module in enumerate(getattr(shared.encoder, part)):
            uses = [i for i, block in enumerate(shared.encoder.schedule) if getattr(block, part) == used]
            for name, parameter in module.named_parameters():
                copies = [dict(getattr(unshared.encoder, part)[i].named_parameters())[name].grad for i in uses]
                total = torch.stack([gradient for gradient in copies if gradient is not None]).sum(0)
                assert torch.allclose(parameter.grad, total, atol=PARITY), f"{part}.{used}.{name}"


def test_the_file_of_an_all_shared_albert_holds_one_block() -> None:
    names = to_hf(SequenceClassifier(tiny_config("albert", num_hidden_layers=6)))
    assert {name.split("albert_layer_groups.")[1][:1] for name in names if "albert_layer_groups" in name} == {"0"}
    expanded = to_hf(SequenceClassifier(tiny_config("bert", num_hidden_layers=6, layer_sharing="all")))
    assert len({name.split(".")[3] for name in expanded if ".layer." in name}) == 6


def test_hidden_states_are_collected_before_and_after_each_block() -> None:
    config = tiny_config("albert", inner_group_num=2)
    encoder = Encoder(config).eval()
    batch = inputs(config)
    collected: list[torch.Tensor] = []
    last = encoder(**batch, collect=collected)
    assert len(collected) == 1 + len(encoder.schedule)
    assert torch.equal(collected[-1], last)
    assert torch.equal(collected[0], encoder.embeddings(batch["input_ids"], batch["token_type_ids"]))
