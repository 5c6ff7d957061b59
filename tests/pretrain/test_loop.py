"""The loop against a plain one written out here, and what must not change its result."""

import math
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from contract.errors import Failure
from encoders.checkpoint import load_classifier, load_pretraining, open_checkpoint
from encoders.heads import PretrainingModel
from encoders.training import parameter_groups, seed_everything
from encoders.weights import to_hf
from pretrain.alarms import unigram_entropy
from pretrain.batches import Position, Steps
from pretrain.recipes import Recipe
from pretrain.settings import Settings
from pretrain.store import Store
from pretrain.views import View
from tests.pretrain.tiny_runs import go, ledger, metrics, tiny_settings, tiny_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_store(tmp_path_factory.mktemp("store"))


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def plain_loop(store: Store, settings: Settings) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The same training in the plainest form: the whole batch padded, means over the whole batch, torch's AdamW."""
    recipe: Recipe = settings.recipe
    seed_everything(settings.seed)
    model = PretrainingModel(settings.config)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, recipe.weight_decay), betas=(recipe.beta1, recipe.beta2), eps=recipe.eps
    )
    view = View(store, recipe.view(settings.seed))
    steps = Steps(view=view, batch_tokens=recipe.batch_size * recipe.window).start_at(Position())
    losses, labels_seen = [], np.empty(0)
    for update in range(1, recipe.steps + 1):
        step = next(steps)
        batch = view.load(step.ids, step.epoch)
        padded = batch.padded(store.vocabulary.pad_id)
        words, sentences = model(
            torch.from_numpy(padded.input_ids),
            torch.from_numpy(padded.attention_mask),
            torch.from_numpy(padded.token_type_ids),
        )
        targets = np.full(padded.input_ids.shape, -100)
        targets.flat[padded.masked_positions] = batch.targets
        word_loss = F.cross_entropy(words.flatten(0, 1), torch.from_numpy(targets).flatten())
        labels = torch.from_numpy(batch.pair_labels)
        loss = word_loss + (F.cross_entropy(sentences, labels) if (labels >= 0).any() else 0.0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        warm, total = recipe.warmup_steps, recipe.steps
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * (
                update / warm if update <= warm else (total - update) / (total - warm)
            )
        optimizer.step()
        losses.append(word_loss.item())
        if update < recipe.steps:  # the last one has a rate of 0
            labels_seen = np.append(labels_seen, batch.pair_labels)
    assert set(labels_seen) == {0, 1, -100}  # in order, swapped, and samples of one sentence
    return to_hf(model), losses


@pytest.mark.parametrize("micro_tokens", [10**6, 40])
@pytest.mark.parametrize("packed", [True, False])
def test_the_loop_equals_a_plain_one_however_a_step_is_divided(
    store: Store, tmp_path: Path, micro_tokens: int, packed: bool
) -> None:
    settings = tiny_settings(store, steps=4, micro_tokens=micro_tokens, packed=packed, format="sentence-pair", seed=1)
    go(store, settings, tmp_path / "out")
    expected, losses = plain_loop(store, settings)
    trained = weights(tmp_path / "out")
    assert trained.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(trained[name], tensor, rtol=0, atol=1e-6, msg=name)
    assert [line["mlm_loss"] for line in metrics(tmp_path / "out")] == pytest.approx(losses, rel=1e-5)


def test_a_mean_of_parts_is_the_mean_of_the_whole(store: Store, tmp_path: Path) -> None:
    """B52."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    go(store, tiny_settings(store, micro_tokens=10**6), whole)
    go(store, tiny_settings(store, micro_tokens=1), parts)  # each sample alone: parts of very different sizes
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], tensor, rtol=0, atol=1e-6, msg=name)
    assert ledger(whole) == ledger(parts)


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ("mini-roberta", {}),
        ("mini-bert", {}),
        ("mini-bert", {"format": "sentence-pair", "optimizer": "lamb-google"}),
        ("mini-bert", {"objective": "mlm", "format": "doc-sentences", "masking": "static"}),
        ("mini-albert", {"optimizer": "lamb-nvidia", "unit": "word"}),
        ("mini-albert", {"dropout": 0.1, "power": 2.0}),
    ],
)
def test_every_choice_trains_to_finite_figures(
    store: Store, tmp_path: Path, shape: str, changes: dict[str, object]
) -> None:
    finished = go(store, tiny_settings(store, shape, steps=3, warmup_steps=1, **changes), tmp_path / "out")
    assert all(math.isfinite(line["mlm_loss"]) and line["gradient_norm"] > 0 for line in metrics(tmp_path / "out"))
    assert math.isfinite(finished.heldout["perplexity"])
    has_pairs = open_checkpoint(tmp_path / "out").record["task"]["objective"] != "mlm"
    assert ("pair_accuracy" in finished.heldout) == has_pairs


def test_it_learns_and_leaves_the_frequencies_of_words_behind(store: Store, tmp_path: Path) -> None:
    settings = tiny_settings(store, "mini-bert", steps=120, batch_size=8, learning_rate=5e-3, unit="token")
    finished = go(store, settings, tmp_path / "out")
    losses = [line["mlm_loss"] for line in metrics(tmp_path / "out")]
    assert np.mean(losses[-10:]) < 0.95 * unigram_entropy(store) < losses[0]
    assert finished.heldout["mlm_loss"] < unigram_entropy(store)


def test_the_rate_of_every_update_is_that_of_the_schedule(store: Store, tmp_path: Path) -> None:
    """B54: the first update has a rate, the peak is there once, the last has none."""
    go(store, tiny_settings(store, steps=10, warmup_steps=4, learning_rate=1.0e-3), tmp_path / "out")
    used = [line["learning_rate"] for line in metrics(tmp_path / "out")]
    expected = [*(1e-3 * u / 4 for u in range(1, 5)), *(1e-3 * (10 - u) / 6 for u in range(5, 11))]
    assert used == pytest.approx(expected, rel=1e-5)


def test_a_budget_in_minutes_decays_by_the_clock_and_ends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(0.0, 0.01)  # seconds: a clock that a busy machine cannot hold up
    monkeypatch.setattr("pretrain.loop.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    settings = tiny_settings(store, minutes=0.05, steps=1000, warmup_steps=100)
    finished = go(store, settings, tmp_path / "out")
    rates = [line["learning_rate"] for line in metrics(tmp_path / "out")]
    peak = settings.recipe.learning_rate
    assert 0.5 * peak < max(rates) <= peak
    assert rates[-1] < 0.1 * peak
    assert finished.state.elapsed_s == pytest.approx(3.0, abs=0.2)  # the last update, and no budget for one more
    assert len(rates) == finished.state.step < 1000


def test_lines_too_short_to_mask_do_no_harm(tmp_path: Path) -> None:
    short = tiny_store(tmp_path / "short", "bpe", min_characters=1)
    settings = tiny_settings(short, "mini-roberta", format="doc-sentences", window=4, batch_size=1, steps=30)
    go(short, settings, tmp_path / "out")
    assert all(math.isfinite(line["mlm_loss"]) for line in metrics(tmp_path / "out"))


def test_a_loss_that_breaks_stops_the_run_and_names_the_batch(store: Store, tmp_path: Path) -> None:
    settings = tiny_settings(store, steps=500, warmup_steps=0, learning_rate=1e8, clip_norm=0.0)
    with pytest.raises(Failure, match=r"the loss (became nan|jumped)") as error:
        go(store, settings, tmp_path / "out", save_steps=1, keep=3)
    match = re.search(r"the last good checkpoint is (\S+);", str(error.value))
    assert match is not None
    assert "the weights were not updated with it" in str(error.value)
    load_pretraining(open_checkpoint(Path(match[1])))
    broken = (tmp_path / "out" / "run" / "broken-batch.json").read_text()
    step = ledger(tmp_path / "out")[-1]["step"] + 1
    assert f'"step": {step}' in broken


def test_the_result_is_a_checkpoint_that_fine_tuning_can_start_from(store: Store, tmp_path: Path) -> None:
    go(store, tiny_settings(store), tmp_path / "out")
    checkpoint = open_checkpoint(tmp_path / "out")
    assert checkpoint.text_encoder is not None
    assert checkpoint.text_encoder.max_length == 32
    assert checkpoint.record["data"]["store"] == store.fingerprint
    assert checkpoint.record["training"]["steps"] == 8
    loaded = load_classifier(checkpoint, labels=("a", "b", "c"), strict=False)
    assert set(loaded.new_tensors) == {"classifier.weight", "classifier.bias"}


def test_figures_of_a_step_add_up(store: Store, tmp_path: Path) -> None:
    go(store, tiny_settings(store, steps=3, window=32), tmp_path / "packed")
    go(store, tiny_settings(store, steps=3, window=32, packed=False), tmp_path / "padded")
    packed, padded = metrics(tmp_path / "packed"), metrics(tmp_path / "padded")
    assert all(line["padding_share"] == 0 for line in packed)
    assert any(line["padding_share"] > 0 for line in padded)
    for line in packed:
        assert line["tokens"] <= 4 * 32
        assert line["masked_rate"] == pytest.approx(line["masked"] / line["tokens"], rel=1e-4)
        assert 0.05 < line["masked_rate"] < 0.3
        assert line["tokens_per_second"] == pytest.approx(line["tokens"] / line["seconds"], rel=1e-3)
        assert 0 < line["peak_share"] < 1
        assert line["sent_bytes"] == 0
