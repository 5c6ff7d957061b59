"""Hidden states, logits and gradients equal transformers', from files that transformers wrote."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from encoders.checkpoint import load_classifier, open_checkpoint
from encoders.weights import hf_names
from tests.encoders.oracle import CONFIGS, inputs, native, oracle
from tests.encoders.tolerances import PARITY

WITH_SENTENCE_TASK = [case for case in CONFIGS if "roberta" not in case]


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert ours.shape == theirs.shape, what
    scale = max(1.0, float(theirs.detach().abs().max()))
    difference = float((ours - theirs).detach().abs().max())
    assert difference <= PARITY * scale, f"{what} differs by {difference:.2e} at a scale of {scale:.2g}"


def compare(case: str, head: str, folder: Path, batch: dict[str, Tensor], **changes: Any) -> None:
    theirs = oracle(case, head, **changes)
    ours = native(theirs, folder, head)
    expected = theirs(**batch, output_hidden_states=True)
    hidden: list[Tensor] = []
    handle = ours.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: (args, {**kwargs, "collect": hidden}), with_kwargs=True
    )
    output = ours(**batch)
    handle.remove()

    inner = ours.config.inner_group_num  # transformers reports layers, we report blocks
    assert len(hidden[::inner]) == len(expected.hidden_states)
    for layer, (mine, reference) in enumerate(zip(hidden[::inner], expected.hidden_states, strict=True)):
        close(mine, reference, f"hidden state {layer}")

    outputs = output if isinstance(output, tuple) else (output,)
    references = [value for key, value in expected.items() if "logits" in key]
    for index, (mine, reference) in enumerate(zip(outputs, references, strict=True)):
        close(mine, reference, f"logits {index}")
    for results in (outputs, references):
        generator = torch.Generator().manual_seed(2)
        sum((r * torch.randn(r.shape, generator=generator)).mean() for r in results).backward()
    their_parameters = dict(theirs.named_parameters(remove_duplicate=False))
    our_parameters = dict(ours.named_parameters())
    for their_name, our_name in hf_names(ours).items():
        gradient = their_parameters[their_name].grad
        assert gradient is not None
        assert bool(gradient.any()), f"{their_name} has no gradient: it would prove nothing"
        close(our_parameters[our_name].grad, gradient, f"gradient of {their_name}")


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("case", CONFIGS)
def test_sequence_classification(case: str, padded: bool, tmp_path: Path) -> None:
    compare(case, "SequenceClassifier", tmp_path, inputs(CONFIGS[case](), padded=padded))


@pytest.mark.parametrize("case", CONFIGS)
def test_masked_language_model(case: str, tmp_path: Path) -> None:
    compare(case, "MaskedLanguageModel", tmp_path, inputs(CONFIGS[case]()))


@pytest.mark.parametrize("case", WITH_SENTENCE_TASK)
def test_pretraining_model(case: str, tmp_path: Path) -> None:
    compare(case, "PretrainingModel", tmp_path, inputs(CONFIGS[case]()), num_labels=2)


@pytest.mark.parametrize("case", ["bert", "roberta", "albert"])
def test_an_untied_decoder_stays_one(case: str, tmp_path: Path) -> None:
    compare(case, "MaskedLanguageModel", tmp_path, inputs(CONFIGS[case]()), tie_word_embeddings=False)


@pytest.mark.parametrize("case", ["bert", "roberta", "albert-groups"])
def test_without_type_ids_and_mask(case: str, tmp_path: Path) -> None:
    theirs = oracle(case)
    ours = native(theirs, tmp_path)
    ids = inputs(theirs.config, padded=False)["input_ids"]
    close(ours(ids), theirs(ids, attention_mask=torch.ones_like(ids)).logits, "logits")


@pytest.mark.parametrize("case", ["bert", "roberta", "albert"])
def test_given_positions(case: str, tmp_path: Path) -> None:
    theirs = oracle(case, "MaskedLanguageModel")
    ours = native(theirs, tmp_path, "MaskedLanguageModel")
    batch = inputs(theirs.config)
    positions = torch.randint(5, 20, batch["input_ids"].shape, generator=torch.Generator().manual_seed(3))
    expected = theirs(**batch, position_ids=positions, output_hidden_states=True).hidden_states[-1]
    close(ours.encoder(**batch, position_ids=positions), expected, "last hidden state")


@pytest.mark.parametrize("case", ["bert", "roberta", "albert"])
def test_scores_at_chosen_positions_are_rows_of_all_scores(case: str, tmp_path: Path) -> None:
    ours = native(oracle(case, "MaskedLanguageModel"), tmp_path, "MaskedLanguageModel")
    batch = inputs(ours.config)
    chosen = torch.tensor([2, 0, 9, 20])
    everywhere = ours(**batch)
    close(ours(**batch, positions=chosen), everywhere.flatten(0, 1)[chosen], "chosen scores")


DROPOUTS: dict[str, dict[str, float]] = {
    "bert": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.4},
    "roberta": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.4},
    # no hidden dropout: transformers forgets it after the feed-forward part of ALBERT, see encoders/albert.py
    "albert-groups": {"attention_probs_dropout_prob": 0.3, "classifier_dropout_prob": 0.4},
}


@pytest.mark.parametrize("case", DROPOUTS)
def test_dropout_falls_on_the_same_numbers(case: str, tmp_path: Path) -> None:
    theirs = oracle(case, **DROPOUTS[case])
    theirs.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    checkpoint = replace(checkpoint, config=replace(checkpoint.config, attention="plain"))
    ours = load_classifier(checkpoint).model
    batch = inputs(theirs.config)
    torch.manual_seed(0)
    expected = theirs.train()(**batch).logits
    torch.manual_seed(0)
    close(ours.train()(**batch), expected, "logits in training")
    assert not torch.allclose(expected, theirs.eval()(**batch).logits, atol=0.1)


@pytest.mark.parametrize("case", ["bert", "roberta", "albert-groups"])
def test_bfloat16_files_load_as_float32(case: str, tmp_path: Path) -> None:
    theirs = oracle(case).bfloat16()
    ours = native(theirs, tmp_path)
    batch = inputs(theirs.config)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    close(ours(**batch), theirs.float()(**batch).logits, "logits")
