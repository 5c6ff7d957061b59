"""Checkpoints from public bug reports (B16 to B24): each loads with the right answers, or is refused with a reason."""

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contract.errors import CheckpointError, UsageError
from encoders.checkpoint import (
    Checkpoint,
    load_classifier,
    load_masked_lm,
    load_pretraining,
    open_checkpoint,
    save_checkpoint,
)
from encoders.training import parameter_groups
from tests.encoders.tolerances import BF16_STORAGE, FP16_STORAGE, REFERENCE
from tests.tiny import tiny_tokenizer

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "open" / "ckpt"
ROOMS = ("contract", "encoders", "pretrain", "finetune", "export", "service", "loadtests")
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not beside this checkout")


@cache
def reference() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((CASES / "reference.json").read_text())
    return content


def case(name: str) -> Checkpoint:
    return open_checkpoint(CASES / name)


def batch() -> list[Tensor]:
    return [torch.tensor(reference()[name]) for name in ("input_ids", "attention_mask", "token_type_ids")]


def difference(output: Tensor, name: str) -> float:
    return float((output.detach() - torch.tensor(reference()[name])).abs().max())


@pytest.mark.parametrize(
    "name",
    [
        "B00_base_bert",
        "B19_module_prefix",
        "B19_position_ids",
        "B21_plain_bin",
        "B24_cased_without_tokenizer_config",
        "B24_chinese-roberta-is-bert",
    ],
)
def test_equal_to_the_reference_with_nothing_left_over(name: str) -> None:
    loaded = load_classifier(case(name))
    assert (loaded.new_tensors, loaded.unused_tensors) == ((), ())
    assert difference(loaded.model(*batch()), "logits") <= REFERENCE


def test_b16_positions_start_after_the_padding_id() -> None:
    checkpoint = case("B16_roberta_18_positions")
    assert checkpoint.config.max_length == 16
    model = load_classifier(checkpoint).model
    ids = torch.tensor(reference()["roberta_input_ids"])  # the first row is padded
    assert difference(model(ids, ids != 1), "roberta_logits") <= REFERENCE
    left = torch.cat([ids[:1, 5:], ids[:1, :5]], dim=1)
    middle = torch.cat([ids[:1, :2], ids[:1, 5:], ids[:1, 2:5]], dim=1)
    for moved in (left, middle):
        assert torch.allclose(model(moved, moved != 1), model(ids[:1], ids[:1] != 1), atol=REFERENCE)


def test_b16_sixteen_tokens_run_and_seventeen_are_refused_before_the_model() -> None:
    model = load_classifier(case("B16_roberta_18_positions")).model
    sixteen = torch.tensor([[0, *range(3, 17), 2]])
    assert bool(model(sixteen).isfinite().all())
    with pytest.raises(UsageError, match="17 tokens and the model has positions for 16"):
        model(torch.cat([sixteen, sixteen[:, -1:]], dim=1))


def test_b17_a_missing_pooler_and_head_are_stated_and_seeded() -> None:
    checkpoint = case("B17_mlm_only_no_pooler")
    with pytest.raises(CheckpointError, match=r"lacks 'classifier\.bias'.*Fine-tune it first"):
        load_classifier(checkpoint)
    first, again, other = (load_classifier(checkpoint, strict=False, seed=seed) for seed in (3, 3, 4))
    assert set(first.new_tensors) == {f"{m}.{p}" for m in ("pooler.dense", "classifier") for p in ("weight", "bias")}
    assert all(name.startswith("cls.predictions.") for name in first.unused_tensors)
    assert torch.equal(first.model(*batch()), again.model(*batch()))
    assert not torch.equal(first.model(*batch()), other.model(*batch()))
    assert not bool(first.model.classifier.bias.any())


def test_b19_a_bare_encoder_gets_its_prefix_and_keeps_its_pooler() -> None:
    loaded = load_classifier(case("B19_no_prefix_encoder"), strict=False)
    assert loaded.new_tensors == ("classifier.weight", "classifier.bias")
    assert loaded.unused_tensors == ()
    base = load_classifier(case("B00_base_bert")).model
    assert torch.equal(loaded.model.pooler(loaded.model.encoder(*batch())), base.pooler(base.encoder(*batch())))


def test_b19_a_foreign_prefix_is_refused_with_both_names() -> None:
    with pytest.raises(CheckpointError, match=r"matched 0 of 41 tensors.*'encoder_q\.bert\.emb.*'bert\.embeddings"):
        load_classifier(case("B19_alien_prefix"), strict=False)


def test_b20_an_omitted_decoder_is_the_word_embeddings_also_after_a_step(tmp_path: Path) -> None:
    loaded = load_pretraining(case("B20_tied_decoder_omitted"))
    assert (loaded.new_tensors, loaded.unused_tensors) == ((), ())
    model = loaded.model
    words, sentence = model(*batch())
    assert difference(words[1, 2], "mlm_logits_row1_pos2") <= REFERENCE
    assert difference(sentence, "seq_relationship") <= REFERENCE
    words.logsumexp(-1).mean().backward()
    torch.optim.AdamW(parameter_groups(model, 0.01), lr=0.1).step()
    hidden = model.encoder(*batch())
    head = model.masked_lm
    decoded = head.norm(head.activation(head.dense(hidden))) @ model.encoder.embeddings.word.weight.T + head.bias
    assert torch.allclose(decoded, model(*batch())[0], atol=REFERENCE)
    config = model.config
    tokenizer = tiny_tokenizer("bert")  # the case's own vocabulary is as good as any other that fits
    if max(tokenizer.get_vocab().values()) >= config.vocab_size:
        tokenizer = case("B20_tied_decoder_omitted").text_encoder.tokenizer  # type: ignore[union-attr]
    save_checkpoint(tmp_path / "saved", model, tokenizer, max_length=16, record={})
    reloaded = load_pretraining(open_checkpoint(tmp_path / "saved")).model
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), reloaded.parameters(), strict=True))


def test_b20_a_decoder_of_its_own_is_never_dropped(tmp_path: Path) -> None:
    folder = CASES / "B20_decoder_differs_but_config_says_tied"
    with pytest.raises(CheckpointError, match=r"decoder\.weight differs from .*tie_word_embeddings"):
        load_masked_lm(open_checkpoint(folder))
    for path in folder.iterdir():  # do what the message says
        (tmp_path / path.name).write_bytes(path.read_bytes())
    raw = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    loaded = load_masked_lm(open_checkpoint(tmp_path))
    assert loaded.new_tensors == ()
    decoder, words = loaded.model.masked_lm.decoder.weight, loaded.model.encoder.embeddings.word.weight
    assert not torch.equal(decoder, words)


@pytest.mark.parametrize(("name", "bound"), [("B20_bf16", BF16_STORAGE), ("B20_fp16", FP16_STORAGE)])
def test_b20_sixteen_bits_load_as_float32(name: str, bound: float) -> None:
    model = load_classifier(case(name)).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert 0 < difference(model(*batch()), "logits") <= bound


@pytest.fixture
def empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_b21_a_pickle_that_could_run_code_stays_closed(empty_working_folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"asks for posix\.mkdir: .* so it stays closed; convert it"):
        case("B21_pickle_canary")
    assert list(empty_working_folder.iterdir()) == []


def test_b21_there_is_no_unrestricted_unpickling_in_the_product() -> None:
    root = Path(__file__).parents[2]
    loads = []
    for path in [*root.glob("*.py"), *(p for p in root.glob("*/**/*.py") if p.relative_to(root).parts[0] in ROOMS)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "pickle.load", "pickle.loads"):
                loads.append((path.name, ast.unparse(node)))
    assert "weight_files.py" in dict(loads)
    assert [call for _, call in loads if "weights_only=True" not in call] == []


def test_b22_a_head_of_another_size() -> None:
    checkpoint = case("B22_head_has_3_rows_config_says_5")
    with pytest.raises(CheckpointError, match=r"\(3, 16\) and the model needs \(5, 16\).*--new-head"):
        load_classifier(checkpoint, strict=False)
    loaded = load_classifier(checkpoint, strict=False, new_head=True)
    assert loaded.new_tensors == ("classifier.weight", "classifier.bias")
    weight = loaded.model.classifier.weight.detach()
    assert weight.shape == (5, 16)
    assert float(weight.std()) == pytest.approx(checkpoint.config.initializer_range, rel=0.3)
    three = load_classifier(checkpoint, labels=("a", "b", "c"), strict=False, new_head=True)
    assert three.model(*batch()).shape == (2, 3)


def test_b22_a_bias_shorter_than_the_embeddings() -> None:
    with pytest.raises(CheckpointError, match=r"cls\.predictions\.bias has shape \(30,\) and the model needs \(32,\)"):
        load_masked_lm(case("B22_embedding_grew_bias_did_not"))


def test_b22_a_vocabulary_longer_than_the_embeddings() -> None:
    with pytest.raises(CheckpointError, match="ids up to 31 and the embedding has 30 rows"):
        case("B22_vocab_txt_longer_than_embedding")


def test_b24_chinese_albert_has_berts_tokenizer_and_v2_has_its_dropout() -> None:
    checkpoint = case("B24_chinese-albert-vocab-txt")
    config = checkpoint.config
    assert (config.model_type, config.hidden_act) == ("albert", "gelu_new")
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.classifier_dropout) == (0, 0, 0.1)
    assert difference(load_classifier(checkpoint).model(*batch()), "albert_logits") <= REFERENCE
    assert checkpoint.text_encoder is not None
    assert checkpoint.text_encoder.encode("very good film").input_ids.tolist() == [2, 28, 25, 29, 3]


def test_b24_chinese_roberta_is_bert_with_berts_tokenizer() -> None:
    checkpoint = case("B24_chinese-roberta-is-bert")
    assert checkpoint.config.model_type == "bert"
    assert checkpoint.text_encoder is not None
    pair = checkpoint.text_encoder.encode(("Good", "film abc"))
    assert pair.input_ids.tolist() == [2, 25, 3, 29, 5, 16, 17, 3]
    assert pair.token_type_ids.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_b24_a_vocabulary_with_capitals_is_not_lower_cased() -> None:
    encoder = case("B24_cased_without_tokenizer_config").text_encoder
    assert encoder is not None
    assert encoder.encode("Good Film good").input_ids.tolist() == [2, 25, 29, 1, 3]
