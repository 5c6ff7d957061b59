import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.errors import CheckpointError, UsageError
from contract.manifest import load_manifest
from encoders.presets import PRESETS
from export import verify
from export.bundle import write_bundle
from export.sources import from_checkpoint, from_preset
from tests.tiny import tiny_bundle, tiny_checkpoint, tiny_config, tiny_tokenizer

SHARED = Path(__file__).parents[2].parent / "shared"


@pytest.fixture
def cases() -> Path:
    """Folders with tiny models made by transformers, and what transformers computes with them."""
    folder = SHARED / "cases" / "open" / "ckpt"
    if not folder.is_dir():
        pytest.skip("the shared checkpoint cases are not beside this checkout")
    return folder


# Hugging Face folders


@pytest.mark.parametrize(
    ("case", "logits", "family"),
    [
        ("B00_base_bert", "logits", "bert"),
        ("B19_module_prefix", "logits", "bert"),
        ("B20_bf16", "logits", "bert"),
        ("B21_plain_bin", "logits", "bert"),
        ("B24_chinese-roberta-is-bert", "logits", "bert"),
        ("B24_chinese-albert-vocab-txt", "albert_logits", "albert"),
    ],
)
def test_a_folder_that_others_made_answers_as_transformers_does(
    tmp_path: Path, cases: Path, case: str, logits: str, family: str
) -> None:
    source = from_checkpoint(cases / case)
    manifest = write_bundle(source, tmp_path / "bundle", name="x")
    assert manifest.family == family
    assert manifest.metrics == {}
    assert manifest.provenance["source"] == case
    reference = json.loads((cases / "reference.json").read_text())
    inputs = {spec.name: np.asarray(reference[spec.name], np.int64) for spec in manifest.inputs}
    (found,) = verify.open_session(tmp_path / "bundle" / "model.onnx").run(None, inputs)
    # half-precision files differ from the float32 reference by their own rounding
    np.testing.assert_allclose(found, reference[logits], atol=0.1 if case == "B20_bf16" else 1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_a_fresh_transformers_folder_is_exported(tmp_path: Path, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = tiny_config(family)
    torch.manual_seed(5)
    raw = {name: value for name, value in config.to_hf().items() if name not in ("model_type", "robal")}
    model = transformers.AutoModelForSequenceClassification.from_config(
        transformers.AutoConfig.for_model(family, **raw)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    folder = tmp_path / "theirs"
    model.eval().save_pretrained(folder)
    tiny_tokenizer(family).save(str(folder / "tokenizer.json"))
    bundle = tmp_path / "bundle"
    manifest = write_bundle(from_checkpoint(folder), bundle, name="x")
    ids = np.arange(5, 45).reshape(2, 20)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids % 2}
    inputs = {spec.name: inputs[spec.name] for spec in manifest.inputs}
    with torch.inference_mode():
        expected = model(**{name: torch.from_numpy(array) for name, array in inputs.items()}).logits
    (found,) = verify.open_session(bundle / "model.onnx").run(None, inputs)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_masked_language_model_has_to_be_fine_tuned_first(cases: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lacks .*'classifier\.\w+'.*[Ff]ine-tune it first"):
        from_checkpoint(cases / "B17_mlm_only_no_pooler")


def test_a_folder_without_a_tokenizer_is_refused(cases: Path) -> None:
    with pytest.raises(CheckpointError, match="B16_roberta_18_positions has no tokenizer"):
        from_checkpoint(cases / "B16_roberta_18_positions")


def test_a_tokenizer_of_another_model_is_refused(cases: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer has ids up to \d+ and the embedding has \d+ rows"):
        from_checkpoint(cases / "B22_vocab_txt_longer_than_embedding")


@pytest.mark.parametrize(
    ("missing", "message"),
    [("config.json", "has no config.json"), ("model.safetensors", "weights"), ("tokenizer.json", "has no tokenizer")],
)
def test_an_incomplete_folder_is_refused_by_what_it_lacks(tmp_path: Path, missing: str, message: str) -> None:
    folder = tiny_checkpoint(tmp_path / "c")
    (folder / missing).unlink()
    with pytest.raises(CheckpointError, match=message) as caught:
        from_checkpoint(folder)
    assert str(folder) in str(caught.value)


def test_a_head_is_never_made_up(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    folder = tiny_checkpoint(tmp_path / "c")
    tensors = safetensors.load_file(folder / "model.safetensors")
    del tensors["classifier.bias"]
    safetensors.save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks 'classifier\.bias'"):
        from_checkpoint(folder)


def test_a_preset_is_not_a_checkpoint() -> None:
    with pytest.raises(UsageError, match="'albert-base' is a preset: a shape without weights"):
        from_checkpoint(Path("albert-base"))


# random weights


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preset names with small shapes behind them: what is tested here does not depend on the size."""
    shapes: dict[str, Any] = {
        "roberta-base": tiny_config("roberta", max_length=512),
        "albert-base": tiny_config("albert", max_length=512),
    }
    for name, config in shapes.items():
        monkeypatch.setitem(PRESETS, name, config)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["roberta-base", "albert-base"])
@pytest.mark.parametrize("donor", [tiny_bundle, tiny_checkpoint])
def test_a_shape_with_random_weights_says_what_it_is(tmp_path: Path, name: str, donor: Any) -> None:
    source = from_preset(name, seed=3, tokenizer_folder=donor(tmp_path / "donor"))
    write_bundle(source, tmp_path / "bundle", name="x")
    manifest = load_manifest(tmp_path / "bundle")
    provenance = {key: value for key, value in manifest.provenance.items() if key != "export"}
    assert provenance == {
        "note": "random weights: latency only",
        "preset": name,
        "seed": 3,
        "tokenizer": "donor",
    }
    assert manifest.metrics == {}
    assert manifest.max_length == 512  # the shape's, not the donor's
    assert manifest.labels == ("negative", "positive")


@pytest.mark.usefixtures("small")
def test_the_seed_decides_the_weights_and_none_is_a_constant(tmp_path: Path) -> None:
    donor = tiny_checkpoint(tmp_path / "donor")
    state = torch.get_rng_state()
    first, second, other = (from_preset("albert-base", seed=seed, tokenizer_folder=donor).model for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's random numbers are used up
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name)), name
        assert not torch.equal(parameter, other.get_parameter(name)), name
        assert parameter.numel() == 1 or parameter.std() > 0.005, name


@pytest.mark.usefixtures("small")
def test_a_borrowed_tokenizer_has_to_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "albert-base", tiny_config("albert", vocab_size=200))
    with pytest.raises(UsageError, match=r"has ids up to \d+ and the preset has 200 embeddings"):
        from_preset("albert-base", seed=0, tokenizer_folder=tiny_checkpoint(tmp_path / "donor"))
    with pytest.raises(UsageError, match="is not a folder"):
        from_preset("albert-base", seed=0, tokenizer_folder=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no tokenizer files"):
        from_preset("albert-base", seed=0, tokenizer_folder=tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("albert-bas", "did you mean 'albert-base'"),
        ("roberta-bse", "did you mean 'roberta-base'"),
        ("gpt", "there are"),
    ],
)
def test_a_wrong_preset_is_answered_with_the_right_ones(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"there is no preset '{name}'.*{message}"):
        from_preset(name, seed=0, tokenizer_folder=tmp_path)
