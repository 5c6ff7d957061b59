"""The planner against published counts, hand calculation and measurement."""

from dataclasses import replace

import pytest
import torch

from contract.errors import UsageError
from encoders.packing import Packing
from encoders.presets import preset
from pretrain.flops import activations, build_model, memory, parameters, token_flops
from pretrain.plan import HARDWARE, hardware, make_plan
from pretrain.recipes import named

GIGA = 1e9


@pytest.mark.parametrize(
    ("name", "sentence_task", "unique"),
    [  # transformers' ...ForMaskedLM and ...ForPreTraining of the same shape
        ("roberta-base", False, 124_697_433),
        ("roberta-large", False, 355_412_057),
        ("bert-base", False, 109_514_298),
        ("bert-base", True, 110_106_428),
        ("bert-large", True, 336_226_108),
        ("albert-base", True, 11_813_810),
        ("albert-large", True, 17_847_474),
        ("albert-xlarge", True, 59_021_490),
        ("albert-xxlarge", True, 223_158_450),
    ],
)
def test_parameters_are_those_of_the_published_models(name: str, sentence_task: bool, unique: int) -> None:
    assert parameters(preset(name), sentence_task=sentence_task)[1] == unique


def test_the_unshared_size_of_an_albert_is_about_that_of_a_bert() -> None:
    used, unique = parameters(preset("albert-base"), sentence_task=True)
    assert used == unique + 11 * 7_087_872  # eleven more executions of one block


def test_operations_per_token_are_those_of_the_hand_calculation() -> None:
    base = token_flops(preset("roberta-base"), length=512, masked_share=0.15)
    assert base.blocks == 6 * 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert base.attention / GIGA == pytest.approx(0.0566, abs=5e-4)
    assert base.head / GIGA == pytest.approx(0.0353, abs=5e-4)
    everywhere = token_flops(preset("roberta-base"), length=512, masked_share=1.0)
    assert everywhere.total / GIGA == pytest.approx(0.80, abs=5e-3)
    albert = token_flops(preset("albert-base"), length=512, masked_share=0.15)
    assert albert.total / GIGA == pytest.approx(0.57, abs=5e-3)  # sharing saves memory, not work
    assert token_flops(preset("albert-xxlarge"), length=512, masked_share=0.15).total / GIGA == pytest.approx(
        14.8, abs=0.1
    )


def test_operations_agree_with_a_counter_in_the_framework() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = replace(preset("mini-albert"), vocab_size=500, attention="plain")
    model = build_model(config, sentence_task=True)
    tokens, masked = 128, 19
    with FlopCounterMode(display=False) as counter:
        words, sentences = model(torch.randint(5, 500, (1, tokens)), positions=torch.arange(masked))
        (words.sum() + sentences.sum()).backward()
    ours = tokens * token_flops(config, length=tokens, masked_share=masked / tokens).total
    # the framework also counts the pooler, and no backward pass into the embeddings
    assert counter.get_total_flops() == pytest.approx(ours, rel=0.02)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_activations_agree_with_what_the_backward_pass_keeps(dropout: float) -> None:
    config = replace(preset("mini-bert"), hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = build_model(config, sentence_task=True)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens, masked = 512, 77
    ids = torch.randint(5, 8000, (1, tokens))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        words, _ = model(ids, None, ids % 2, positions=torch.arange(masked), packing=Packing((128,) * 4))
        torch.nn.functional.cross_entropy(words, ids[0, :masked], reduction="sum")
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    expected = 4 * tokens * activations(config, length=128, masked_share=masked / tokens, on_cpu=True)
    assert measured == pytest.approx(expected, rel=0.1)


def test_memory_holds_weights_gradients_and_two_moments() -> None:
    parts = memory(
        preset("albert-base"),
        sentence_task=True,
        micro_tokens=0,
        length=512,
        masked_share=0.15,
        activation_bytes=4,
        on_cpu=False,
    )
    assert parts.total == 4 * 4 * 11_813_810


def test_the_published_run_of_roberta_base_takes_a_month_of_an_h200() -> None:
    plan = make_plan(
        preset("roberta-base"),
        named("roberta-base").recipe,
        peak_flops=HARDWARE["h200"].bf16_tflops * 1e12,
        micro_tokens=65536,
        precision="bf16",
    )
    assert plan.tokens == 8192 * 512 * 500_000
    assert plan.days == pytest.approx(33, abs=1)
    assert plan.allreduce_bytes == 4 * 124_697_433
    assert plan.as_dict()["flops_per_token"] == plan.flops.total


def test_albert_sends_a_tenth_of_what_roberta_sends() -> None:
    def sent(shape: str, recipe: str) -> int:
        return make_plan(
            preset(shape), named(recipe).recipe, peak_flops=1e15, micro_tokens=1, precision="bf16"
        ).allreduce_bytes

    assert sent("roberta-base", "roberta-base") / sent("albert-base", "albert") == pytest.approx(10.6, abs=0.1)


def test_what_does_not_exist_or_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="no hardware 'abacus'"):
        hardware("abacus")
    short = replace(preset("mini-bert"), max_position_embeddings=64)
    with pytest.raises(UsageError, match="512 tokens and the shape has positions for 64"):
        make_plan(short, named("bert").recipe, peak_flops=1e12, micro_tokens=1, precision="fp32")
