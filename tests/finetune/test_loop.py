import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from contract.encoding import TextEncoder
from contract.errors import Failure
from encoders.heads import SequenceClassifier
from finetune.batches import epoch_batches
from finetune.config import TrainingConfig
from finetune.events import Evaluation, Figures, Progress, Step
from finetune.loop import train
from finetune.losses import summed_loss
from labelled.labels import LabelSet
from labelled.reader import Row
from labelled.rows import EncodedRows, encode_rows, targets_of
from tests.tiny import tiny_config, tiny_model, tiny_tokenizer

LABELS = ("bad", "good")
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
"""Dropout draws differently for different shapes; without it, equal means equal."""


def model_and_encoder(**config: object) -> tuple[SequenceClassifier, TextEncoder]:
    """A model in float64: where a gradient is zero but for rounding (the bias of attention keys), Adam divides the
    rounding by itself and makes a full step out of it, so that float32 runs of equal meaning drift apart.
    """
    shape = tiny_config("bert", LABELS, **{**QUIET, **config})
    encoder = TextEncoder(
        tiny_tokenizer("bert"),
        max_length=shape.max_length,
        pad_token_id=shape.pad_token_id,
        type_vocab_size=shape.type_vocab_size,
    )
    return tiny_model(shape).double(), encoder


def data(encoder: TextEncoder, count: int) -> EncodedRows:
    rows = [Row(f"{'a good film ' * (n % 4)}{n}", (LABELS[n % 2],), 0.0, n, n) for n in range(count)]
    return EncodedRows(encode_rows(encoder, rows), targets_of(rows, LabelSet(LABELS), "single_label_classification"))


class Recorder:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.evaluations: list[Evaluation] = []

    def stepped(self, step: Step) -> None:
        self.steps.append(step)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


def run(
    model: SequenceClassifier,
    encoder: TextEncoder,
    rows: EncodedRows,
    scores: Iterator[float] | None = None,
    **options: object,
) -> tuple[Recorder, Progress, list[int]]:
    """Train with given dev scores; returns what was seen and the steps whose checkpoints were kept."""
    config = replace(TrainingConfig(epochs=2, learning_rate=0.01, metric="accuracy", max_length=64), **options)
    watch, progress, kept = Recorder(), Progress(), []

    def evaluate() -> Figures:
        return {} if scores is None else {"accuracy": next(scores), "loss": 1.0}

    train(
        model,
        rows,
        config,
        precision="fp32",
        evaluate=evaluate,
        keep=lambda progress: kept.append(progress.steps),
        watch=watch,
        progress=progress,
    )
    return watch, progress, kept


def parameters(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("accumulate", [2, 3, 8, 100])
def test_a_batch_in_parts_is_the_batch(accumulate: int) -> None:
    whole, encoder = model_and_encoder()
    divided, _ = model_and_encoder()
    rows = data(encoder, 27)  # the last batch has 3 rows
    before = parameters(whole).clone()
    seen, _, _ = run(whole, encoder, rows, batch_size=8)
    seen_in_parts, _, _ = run(divided, encoder, rows, batch_size=8, accumulate=accumulate)
    assert (parameters(whole) - before).abs().max() > 1e-2, "it must have moved for the comparison to mean anything"
    assert (parameters(whole) - parameters(divided)).abs().max() < 1e-6
    for step, step_in_parts in zip(seen.steps, seen_in_parts.steps, strict=True):
        assert step.loss == pytest.approx(step_in_parts.loss, abs=1e-6)
        assert step.gradient_norm == pytest.approx(step_in_parts.gradient_norm, rel=1e-5)


def test_the_loop_is_adamw_written_by_hand() -> None:
    """Against a dozen lines of arithmetic that share nothing with it but the model and the order of the rows."""
    model, encoder = model_and_encoder()
    oracle, _ = model_and_encoder()
    rows = data(encoder, 20)
    rate, decay, clip, epochs, batch_size = 0.01, 0.1, 0.5, 3, 8
    watch, _, _ = run(
        model,
        encoder,
        rows,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=rate,
        weight_decay=decay,
        clip_norm=clip,
        warmup=0.34,
        seed=5,
    )
    oracle.train()
    first = {name: torch.zeros_like(p) for name, p in oracle.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in oracle.named_parameters()}
    total, warm, step = 9, 3, 0
    rates = []
    for epoch in range(epochs):
        for batch in epoch_batches(rows.lengths, batch_size, seed=5, epoch=epoch):
            step += 1
            inputs = encoder.pad([rows.texts[i] for i in batch])
            logits = oracle(**{k: torch.from_numpy(v) for k, v in inputs.items()})
            wanted = torch.from_numpy(rows.targets[batch])
            loss = (torch.logsumexp(logits, 1) - logits[torch.arange(len(batch)), wanted]).mean()
            oracle.zero_grad()
            loss.backward()
            norm = math.sqrt(sum(float((p.grad**2).sum()) for p in oracle.parameters()))
            shrink = min(1.0, clip / (norm + 1e-6))
            used = rate * (step / warm if step <= warm else (total - step) / (total - warm))
            rates.append(used)
            with torch.no_grad():
                for name, p in oracle.named_parameters():
                    gradient = p.grad * shrink
                    first[name] = 0.9 * first[name] + 0.1 * gradient
                    second[name] = 0.999 * second[name] + 0.001 * gradient**2
                    is_matrix = not name.endswith("bias") and "norm" not in name
                    p -= used * decay * p if is_matrix else 0
                    mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                    p -= used * mean / (square.sqrt() + 1e-8)
    assert [step.learning_rate for step in watch.steps] == pytest.approx(rates)
    assert (parameters(model) - parameters(oracle)).abs().max() < 1e-6


def test_it_learns_eight_sentences_by_heart() -> None:
    model, encoder = model_and_encoder()
    rows = data(encoder, 8)
    watch, _, _ = run(model, encoder, rows, epochs=60, batch_size=4, learning_rate=0.01)
    assert watch.steps[-1].loss < 0.02


def test_only_better_checkpoints_are_kept_and_patience_ends_the_run() -> None:
    model, encoder = model_and_encoder()
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.9, 0.1, 0.1, 0.1, 1.0])
    watch, progress, kept = run(model, encoder, data(encoder, 8), scores, epochs=9, batch_size=4, patience=3)
    assert kept == [2, 4, 10]
    assert [evaluation.kept for evaluation in watch.evaluations] == [True, True, False, False, True, *[False] * 3]
    assert progress.best is not None
    assert (progress.best.step, progress.steps, progress.epochs, progress.stopped_early) == (10, 16, 8, True)


def test_without_patience_all_epochs_run() -> None:
    model, encoder = model_and_encoder()
    _, progress, _ = run(model, encoder, data(encoder, 8), iter([0.9, *[0.1] * 9]), epochs=10, patience=0)
    assert (progress.epochs, progress.stopped_early) == (10, False)


def test_without_dev_rows_the_last_checkpoint_is_kept() -> None:
    model, encoder = model_and_encoder()
    _, _, kept = run(model, encoder, data(encoder, 8), None, epochs=3, batch_size=4)
    assert kept == [2, 4, 6]


def test_evaluations_are_spread_over_the_epoch() -> None:
    model, encoder = model_and_encoder()
    watch, _, _ = run(model, encoder, data(encoder, 40), iter([0.5] * 99), epochs=1, batch_size=4, evals_per_epoch=4)
    assert [evaluation.step for evaluation in watch.evaluations] == [2, 5, 8, 10]
    watch, _, _ = run(model, encoder, data(encoder, 4), iter([0.5] * 99), epochs=1, batch_size=4, evals_per_epoch=9)
    assert [evaluation.step for evaluation in watch.evaluations] == [1]


def test_the_schedule_peaks_once_and_ends_at_zero() -> None:
    model, encoder = model_and_encoder()
    watch, _, _ = run(model, encoder, data(encoder, 40), epochs=1, batch_size=4, warmup=0.3, schedule="polynomial")
    rates = [step.learning_rate / 0.01 for step in watch.steps]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, *[((10 - u) / 7) ** 2 for u in range(4, 11)]])


def test_a_loss_that_is_no_number_ends_the_run_with_advice() -> None:
    model, encoder = model_and_encoder()
    with torch.no_grad():
        model.classifier.bias.fill_(math.inf)
    with pytest.raises(Failure, match="--learning-rate"):
        run(model, encoder, data(encoder, 4))


def test_clipping_can_be_turned_off() -> None:
    model, encoder = model_and_encoder()
    watch, _, _ = run(model, encoder, data(encoder, 8), epochs=1, clip_norm=0.0)
    assert math.isfinite(watch.steps[0].gradient_norm)


def test_losses_are_sums_over_rows_for_each_task() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    classes, several, number = torch.tensor([0, 1, 2, 1, 0]), (logits > 0).float(), torch.ones(5, 1)
    cases = [
        (logits, classes, "single_label_classification"),
        (logits, several, "multi_label_classification"),
        (logits[:, :1], number, "regression"),
    ]
    for outputs, targets, task in cases:
        whole = summed_loss(outputs, targets, task)
        each = sum(summed_loss(outputs[i : i + 1], targets[i : i + 1], task) for i in range(5))
        assert whole == pytest.approx(float(each), rel=1e-6)
    assert summed_loss(logits.bfloat16(), classes, "single_label_classification").dtype == torch.float32


def test_a_model_from_disk_trains_the_same(tmp_path: Path) -> None:
    """Dropout and order come from the seed, so that two runs in one process are equal too."""
    results = []
    for _ in range(2):
        model, encoder = model_and_encoder(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
        torch.manual_seed(3)
        run(model, encoder, data(encoder, 16), batch_size=4)
        results.append(parameters(model).numpy().tobytes())
    assert results[0] == results[1]
    assert np.frombuffer(results[0], np.float64).std() > 0
