"""One training run from checked inputs to a checkpoint on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contract.encoding import TextEncoder
from contract.errors import Interrupted
from contract.storage import write_json
from encoders.checkpoint import FORMAT, save_checkpoint
from encoders.precision import Precision, choose_precision, training_device
from encoders.training import MetricLog, count_parameters, seed_everything
from finetune.config import TrainingConfig
from finetune.inputs import Inputs
from finetune.loop import Evaluation, Figures, Progress, Step, train
from finetune.progress import TrainingBar, counting, say
from finetune.record import look_of, run_record
from finetune.scorer import score_texts
from finetune.start import Start
from finetune.torch_scorer import TorchScorer
from labelled.metrics import evaluate_logits
from labelled.reader import DataOptions
from labelled.rows import EncodedRows, encode_rows, targets_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """What a run has to tell."""

    progress: Progress
    config: TrainingConfig
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    """Things to know before the checkpoint is used."""


def run_training(
    start: Start, config: TrainingConfig, options: DataOptions, *, out: Path, log: Path | None = None
) -> Finished:
    """Train and keep the best checkpoint in ``out``, whole at every moment.

    Args:
        start: model and data.
        config: as the user gave it; resolved here.
        options: how the data was read, for the record.
        out: the checkpoint folder; see ``check_checkpoint``.
        log: JSON lines of every step and evaluation; None writes none.

    Raises:
        Interrupted: Ctrl-C; the message says what is on disk.
        Failure: the loss is not finite.
        UsageError: an option does not fit the model or the machine.
    """
    model, inputs = start.model, start.inputs
    shape = model.config
    config = config.resolved(
        from_scratch=start.from_scratch,
        hidden_size=shape.hidden_size,
        max_length=start.text_encoder.max_length,
        rows=len(inputs.train),
    )
    device = training_device()
    precision = choose_precision(config.dtype, device, shape.hidden_size)
    assert config.max_length, "the config is resolved"
    encoder = TextEncoder(
        start.text_encoder.tokenizer,
        max_length=config.max_length,
        pad_token_id=shape.pad_token_id,
        type_vocab_size=shape.type_vocab_size,
    )
    with counting("tokenising", len(inputs.train) + len(inputs.dev)) as advance:
        texts = encode_rows(encoder, inputs.train, advance)
        dev_texts = encode_rows(encoder, inputs.dev, advance)
    rows = EncodedRows(texts, targets_of(inputs.train, inputs.labels, config.problem_type))
    dev = EncodedRows(dev_texts, targets_of(inputs.dev, inputs.labels, config.problem_type))
    _introduce(start, config, rows, dev, device, precision)

    model.to(device)
    scorer = TorchScorer(model, encoder, name=start.source, precision=precision)
    progress = Progress()

    def evaluate() -> Figures:
        if not dev.texts:
            return {}
        return evaluate_logits(score_texts(scorer, dev.texts), dev.targets, scorer.labels, config.problem_type)

    def record() -> dict[str, Any]:
        return run_record(start, config, options, progress, device, precision)

    def keep(progress: Progress) -> None:
        save_checkpoint(out, model, encoder.tokenizer, max_length=encoder.max_length, record=record())

    assert config.metric, "the config is resolved"
    assert config.epochs, "the config is resolved"
    # generators advance with the drawing of weights; dropout must not depend on where the weights came from
    seed_everything(config.seed)
    try:
        with TrainingBar(config.metric, config.epochs) as bar, _Logged(bar, log) as watch:
            train(
                model,
                rows,
                config,
                precision=precision,
                evaluate=evaluate,
                keep=keep,
                watch=watch,
                progress=progress,
            )
    except KeyboardInterrupt:
        raise Interrupted(_interrupted(progress, config.metric, out)) from None
    write_json(out / "robal.json", {"format": FORMAT} | record())
    return Finished(progress=progress, config=config, labels=inputs.labels.names, notes=_notes(inputs, rows, progress))


class _Logged:
    """Passes on what happens and writes it down as JSON lines."""

    def __init__(self, watch: TrainingBar, path: Path | None) -> None:
        self._watch = watch
        if path is not None:
            path.unlink(missing_ok=True)
        self._log = MetricLog(path) if path is not None else None

    def __enter__(self) -> _Logged:
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is not None:
            self._log.close()

    def stepped(self, step: Step) -> None:
        """See ``loop.Watch``."""
        self._watch.stepped(step)
        if self._log is not None:
            self._log.write(
                step=step.number,
                epoch=step.epoch,
                loss=step.loss,
                learning_rate=step.learning_rate,
                gradient_norm=step.gradient_norm,
                rows=step.rows,
                tokens=step.tokens,
                seconds=round(step.seconds, 6),
            )

    def evaluated(self, evaluation: Evaluation) -> None:
        """See ``loop.Watch``."""
        self._watch.evaluated(evaluation)
        if self._log is not None:
            self._log.write(**look_of(evaluation))


def _introduce(
    start: Start,
    config: TrainingConfig,
    rows: EncodedRows,
    dev: EncodedRows,
    device: torch.device,
    precision: Precision,
) -> None:
    inputs = start.inputs
    used, unique = count_parameters(start.model)
    shared = f", used as {used:,}" if used != unique else ""
    say(f"{start.source}: {unique:,} parameters{shared}, on {device.type} in {precision}")
    origin = "its own file" if inputs.dev_file else "set aside from train"
    say(f"{len(rows.texts)} training rows, {len(dev.texts)} dev rows ({origin}), columns {inputs.train_file.columns}")
    for file in (inputs.train_file, inputs.dev_file):
        if file is not None and file.problems.total:
            say(f"left out {file.problems.total} rows of {file.path}; the first: {file.problems.shown[0]}")
    if cut := rows.truncated + dev.truncated:
        say(f"{cut} texts are longer than {config.max_length} tokens and lose their end")
    if seen := inputs.seen_dev_rows:
        say(f"{seen} dev texts are also training texts: the dev figures are better than on new texts")
    say(
        f"up to {config.epochs} epochs of batches of {config.batch_size}, learning rate {config.learning_rate:.2g}, "
        f"best by dev {config.metric}"
    )


def _notes(inputs: Inputs, rows: EncodedRows, progress: Progress) -> tuple[str, ...]:
    notes = []
    figures = progress.best.figures if progress.best else {}
    if figures.get("predicted_classes") == 1 and len(inputs.labels.names) > 1:
        notes.append(
            "The model gives every dev text the same class: it has not learned. Try a learning rate three times lower, "
            "more epochs or another --seed."
        )
    if not figures:
        notes.append("There were no dev rows: the checkpoint is that of the last epoch and has no figures.")
    return tuple(notes)


def _interrupted(progress: Progress, metric: str, out: Path) -> str:
    at = f"interrupted after {progress.steps} steps"
    if progress.best is None:
        return f"{at}, before the first evaluation: no checkpoint was written, {out} is as it was before."
    figure = f" (dev {metric} {progress.best.figures[metric]:.4f})" if progress.best.figures else ""
    return f"{at}; {out} holds the best checkpoint so far, that of step {progress.best.step}{figure}."
