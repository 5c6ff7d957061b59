"""The training loop, written out in full.

    for each epoch
        for each batch                        rows of like length, packed, in an order of seed and epoch alone
            for each part of the batch        loss summed over rows / rows of the whole batch; gradients add up
            clip, AdamW step, schedule step, weight average
            at an evaluation point            figures on dev; a better result is kept at once, on disk
            now and then                      the state of the run is saved; a resumed run goes on from it bit for bit
        stop when there was no better result for ``patience`` evaluations, or nothing is learned at all

A batch is one optimiser step whatever the number of parts: dividing each part's sum by the rows of the whole batch
makes accumulation a question of memory only (the mean of the parts' means would be another number as soon as they
differ in size). Clipping sees the whole gradient. Nothing here reads files or prints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from encoders.heads import SequenceClassifier
from encoders.precision import Precision, autocast
from encoders.training import schedule
from finetune.averaging import WeightAverage
from finetune.batches import Indices, epoch_batches, parts
from finetune.collapse import AFTER, FEWEST_STEPS, Collapsed, has_collapsed
from finetune.config import TrainingConfig
from finetune.events import Evaluation, Figures, Progress, Step, Watch
from finetune.layers import optimiser_groups
from finetune.losses import class_weights, summed_divergence, summed_loss
from finetune.packed import pack
from finetune.resume import State, generator_states, progress_state, restore_progress, set_generator_states
from labelled.metrics import is_better
from labelled.rows import EncodedRows


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
    save: Callable[[State], None] | None = None,
    resume: State | None = None,
    stopping: Callable[[], bool] = lambda: False,
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
        save: takes a state from which ``resume`` goes on; called after evaluations, every ``config.save_minutes`` and
            before stopping on demand. The state shares memory with the model: write it before returning.
        resume: such a state; the run then goes on as if it had not been interrupted, bit for bit on one process.
        stopping: whether somebody wants the run to stop after this step.

    Raises:
        Collapsed: the loss is not a finite number, or half of the steps taught nothing and ``config.retries`` is on.
        KeyboardInterrupt: ``stopping`` said so; the state is saved.
    """
    epochs, metric, rate = config.epochs, config.metric, config.learning_rate
    assert epochs, "the config must be resolved"
    assert metric, "the config must be resolved"
    assert rate, "the config must be resolved"
    device = model.classifier.weight.device
    lengths = data.lengths
    targets = torch.from_numpy(data.targets).to(device)
    weights = None
    if config.class_weights == "balanced":
        weights = class_weights(data.targets, model.config.labels, config.problem_type).to(device)
    steps_per_epoch = math.ceil(len(lengths) / config.batch_size)
    total = steps_per_epoch * epochs
    groups = optimiser_groups(model, rate=rate, weight_decay=config.weight_decay, layer_decay=config.layer_decay)
    optimizer = AdamW(groups, lr=rate, fused=True)
    rates = schedule(
        optimizer,
        total_steps=total,
        warmup_steps=round(config.warmup * total),
        kind=config.schedule,
        power=config.power,
    )
    average = WeightAverage(model, config.ema_decay) if config.ema_decay else None
    looks = {round(steps_per_epoch * look / config.evals_per_epoch) for look in range(1, config.evals_per_epoch + 1)}
    stale = 0
    if resume is not None:
        model.load_state_dict(resume["model"])
        optimizer.load_state_dict(resume["optimizer"])
        rates.load_state_dict(resume["rates"])
        if average:
            average.restore(resume["average"])
        restore_progress(progress, resume["progress"])
        stale = resume["stale"]
        set_generator_states(resume["generators"])
    saved_at = time.monotonic()

    def save_state() -> None:
        nonlocal saved_at
        if save is not None:
            save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "rates": rates.state_dict(),
                    "average": average.state() if average else None,
                    "progress": progress_state(progress),
                    "stale": stale,
                    "generators": generator_states(),
                }
            )
        saved_at = time.monotonic()

    def objective(rows: Indices) -> torch.Tensor:
        """Summed loss of rows; with R-Drop each goes through the model twice, side by side in one packed row."""
        passes = 2 if config.r_drop else 1
        with autocast(device, precision):
            logits = model(**pack([data.texts[index] for index in rows for _ in range(passes)], device))
        loss = summed_loss(
            logits,
            targets[rows].repeat_interleave(passes, dim=0),
            config.problem_type,
            weights=weights,
            smoothing=config.label_smoothing,
            focal_gamma=config.focal_gamma,
        )
        if not config.r_drop:
            return loss
        return loss / 2 + config.r_drop * summed_divergence(logits[::2], logits[1::2], config.problem_type)

    def gradients(batch: Indices) -> float:
        """Add the gradient of a batch's mean loss; returns the mean loss."""
        mean = 0.0
        for part in parts(batch, config.accumulate):
            loss = objective(part) / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            mean += loss.item()
        return mean

    done = progress.steps
    for epoch in range(done // steps_per_epoch, epochs):
        for number, batch in enumerate(epoch_batches(lengths, config.batch_size, seed=config.seed, epoch=epoch), 1):
            if epoch * steps_per_epoch + number <= done:
                continue
            started = time.perf_counter()
            model.train()
            used_rate = float(max(rates.get_last_lr()))
            loss = gradients(batch)
            norm = clip_grad_norm_(model.parameters(), config.clip_norm or math.inf).item()
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Collapsed(
                    f"the loss became {loss} (gradient norm {norm}) at step {progress.steps + 1}; "
                    f"pass a --learning-rate below {rate:.1e}."
                )
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
            if average:
                average.update()
            seconds = time.perf_counter() - started
            tokens = sum(lengths[index] for index in batch)
            progress.steps += 1
            progress.tokens += tokens
            progress.train_seconds += seconds
            progress.losses.append(loss)
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
            if number in looks:
                progress.epochs = epoch + (number == steps_per_epoch)
                with average.applied() if average else nullcontext():
                    figures = evaluate()
                    better = not figures or is_better(figures, progress.best.figures if progress.best else None, metric)
                    evaluation = Evaluation(
                        step=progress.steps,
                        epoch=epoch + 1,
                        figures=figures,
                        kept=better,
                        train_loss=sum(progress.losses) / len(progress.losses),
                    )
                    progress.losses = []
                    progress.evaluations.append(evaluation)
                    if better:
                        progress.best = evaluation
                        keep(progress)
                stale = 0 if better else stale + 1
                watch.evaluated(evaluation)
                if (
                    config.retries
                    and progress.steps >= max(AFTER * total, FEWEST_STEPS)
                    and all(has_collapsed(evaluation.figures) for evaluation in progress.evaluations)
                ):
                    raise Collapsed("every dev text gets the same class after half of the steps.")
                if config.patience and stale >= config.patience:
                    progress.stopped_early = progress.steps < total
                    return
                save_state()
            elif stopping() or time.monotonic() - saved_at >= 60 * config.save_minutes:
                save_state()
            if stopping():
                raise KeyboardInterrupt
