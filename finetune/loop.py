"""The training loop, written out in full.

    for each epoch
        for each batch                        rows of like length, packed, in an order of seed and epoch alone
            for each part of the batch        loss summed over rows / rows of the whole batch; gradients add up
            clip, AdamW step, schedule step
            at an evaluation point            figures on dev; a better result is kept at once, on disk
        stop when there was no better result for ``patience`` evaluations

A batch is one optimiser step whatever the number of parts: dividing each part's sum by the rows of the whole batch
makes accumulation a question of memory only (the mean of the parts' means would be another number as soon as they
differ in size). Clipping sees the whole gradient. Nothing here reads files or prints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from contract.errors import Failure
from encoders.heads import SequenceClassifier
from encoders.precision import Precision, autocast
from encoders.training import parameter_groups, schedule
from finetune.batches import Indices, epoch_batches, parts
from finetune.config import TrainingConfig
from finetune.losses import summed_loss
from finetune.packed import pack
from labelled.metrics import is_better
from labelled.rows import EncodedRows

Figures = dict[str, Any]


class Watch(Protocol):
    """Who wants to know how it goes."""

    def stepped(self, step: Step) -> None:
        """After each optimiser step."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """After each evaluation, when its checkpoint is on disk."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimiser step."""

    number: int
    """From 1."""
    of: int
    """Steps of the whole run, if it does not stop early."""
    epoch: int
    """From 1."""
    loss: float
    """Mean over the batch."""
    learning_rate: float
    """The one that this step used."""
    gradient_norm: float
    """Before clipping."""
    rows: int
    tokens: int
    """Without padding."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One look at the dev rows."""

    step: int
    epoch: int
    figures: Figures
    kept: bool
    """Whether this is the best one so far and its checkpoint was kept."""


@dataclass(slots=True)
class Progress:
    """What a run has done so far; also what is left of it after an interruption."""

    steps: int = 0
    epochs: int = 0
    """Whole epochs."""
    tokens: int = 0
    """Trained on, without padding."""
    train_seconds: float = 0.0
    """Spent in optimiser steps, evaluations not counted."""
    best: Evaluation | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    stopped_early: bool = False


def train(
    model: SequenceClassifier,
    data: EncodedRows,
    config: TrainingConfig,
    *,
    precision: Precision,
    evaluate: Callable[[], Figures],
    keep: Callable[[Progress], None],
    watch: Watch,
    progress: Progress,
) -> None:
    """Train a classifier in place.

    Args:
        model: on its device. Afterwards it holds the last weights, not the best ones: those were given to ``keep``.
        data: the training rows.
        config: resolved.
        precision: of the forward and backward pass.
        evaluate: figures of the model as it is; they must have ``config.metric`` and ``loss``. Empty figures mean that
            there are no dev rows: then every evaluation counts as better than the last.
        keep: saves the model as it is; called at each better evaluation.
        watch: is told about every step and evaluation.
        progress: is filled in as the run goes on.

    Raises:
        Failure: the loss is not a finite number.
    """
    epochs, metric, rate = config.epochs, config.metric, config.learning_rate
    assert epochs, "the config must be resolved"
    assert metric, "the config must be resolved"
    assert rate, "the config must be resolved"
    device = model.classifier.weight.device
    lengths = data.lengths
    targets = torch.from_numpy(data.targets).to(device)
    steps_per_epoch = math.ceil(len(lengths) / config.batch_size)
    total = steps_per_epoch * epochs
    optimizer = AdamW(parameter_groups(model, config.weight_decay), lr=rate, fused=True)
    rates = schedule(
        optimizer,
        total_steps=total,
        warmup_steps=round(config.warmup * total),
        kind=config.schedule,
        power=config.power,
    )
    looks = {round(steps_per_epoch * look / config.evals_per_epoch) for look in range(1, config.evals_per_epoch + 1)}

    def gradients(batch: Indices) -> float:
        """Add the gradient of a batch's mean loss; returns the mean loss."""
        mean = 0.0
        for part in parts(batch, config.accumulate):
            with autocast(device, precision):
                logits = model(**pack([data.texts[index] for index in part], device))
            loss = summed_loss(logits, targets[part], config.problem_type) / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            mean += loss.item()
        return mean

    stale = 0
    for epoch in range(epochs):
        for number, batch in enumerate(epoch_batches(lengths, config.batch_size, seed=config.seed, epoch=epoch), 1):
            started = time.perf_counter()
            model.train()
            used_rate = float(rates.get_last_lr()[0])
            loss = gradients(batch)
            norm = clip_grad_norm_(model.parameters(), config.clip_norm or math.inf).item()
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Failure(
                    f"the loss became {loss} (gradient norm {norm}) at step {progress.steps + 1}; "
                    f"pass a --learning-rate below {rate:.1e}."
                )
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
            seconds = time.perf_counter() - started
            tokens = sum(lengths[index] for index in batch)
            progress.steps += 1
            progress.tokens += tokens
            progress.train_seconds += seconds
            watch.stepped(
                Step(
                    number=progress.steps,
                    of=total,
                    epoch=epoch + 1,
                    loss=loss,
                    learning_rate=used_rate,
                    gradient_norm=norm,
                    rows=len(batch),
                    tokens=tokens,
                    seconds=seconds,
                )
            )
            if number not in looks:
                continue
            progress.epochs = epoch + (number == steps_per_epoch)
            figures = evaluate()
            better = not figures or is_better(figures, progress.best.figures if progress.best else None, metric)
            evaluation = Evaluation(step=progress.steps, epoch=epoch + 1, figures=figures, kept=better)
            progress.evaluations.append(evaluation)
            if better:
                stale = 0
                progress.best = evaluation
                keep(progress)
            else:
                stale += 1
            watch.evaluated(evaluation)
            if config.patience and stale >= config.patience:
                progress.stopped_early = progress.steps < total
                return
