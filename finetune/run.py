"""One training run from checked inputs to a checkpoint on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contract.encoding import TextEncoder
from contract.errors import Interrupted
from encoders.checkpoint import save_checkpoint
from encoders.precision import Precision, choose_precision, training_device
from encoders.signals import StopRequest
from encoders.training import count_parameters
from finetune.collapse import Collapsed
from finetune.config import TrainingConfig
from finetune.describe import describe
from finetune.events import Figures, Progress
from finetune.inputs import Inputs
from finetune.layers import freeze
from finetune.loop import train
from finetune.metric_log import Logged
from finetune.progress import TrainingBar, counting, say
from finetune.record import run_identity, run_record
from finetune.resume import State, read_state, write_state
from finetune.scorer import score_texts
from finetune.start import Start
from finetune.targets import state_path
from finetune.torch_scorer import TorchScorer
from finetune.tries import Tries, check_recipes, prepare
from labelled.fit import fit_of
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
    start: Start,
    config: TrainingConfig,
    options: DataOptions,
    *,
    out: Path,
    log: Path | None = None,
    resume: bool = False,
) -> Finished:
    """Train and keep the best checkpoint in ``out``, whole at every moment.

    Args:
        start: model and data.
        config: as the user gave it; resolved here.
        options: how the data was read, for the record.
        out: the checkpoint folder; see ``check_checkpoint``.
        log: JSON lines of every step and evaluation; None writes none.
        resume: go on with the run whose state lies beside ``out``, if one does.

    Raises:
        Interrupted: Ctrl-C; the message says what is on disk.
        Failure: the loss is not finite, also at a lower learning rate.
        UsageError: an option does not fit the model, the machine or the run to go on with.
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
    assert config.metric, "the config is resolved"
    assert config.epochs, "the config is resolved"
    encoder = TextEncoder(
        start.text_encoder.tokenizer,
        max_length=config.max_length,
        pad_token_id=shape.pad_token_id,
        type_vocab_size=shape.type_vocab_size,
    )
    check_recipes(model, config)
    with counting("tokenising", len(inputs.train) + len(inputs.dev)) as advance:
        texts = encode_rows(encoder, inputs.train, advance)
        dev_texts = encode_rows(encoder, inputs.dev, advance)
    rows = EncodedRows(texts, targets_of(inputs.train, inputs.labels, config.problem_type))
    dev = EncodedRows(dev_texts, targets_of(inputs.dev, inputs.labels, config.problem_type))
    _introduce(start, config, rows, dev, device, precision)

    model.to(device)
    scorer = TorchScorer(model, encoder, name=start.source, precision=precision)
    identity = run_identity(start, config, encoder.tokenizer)
    saved = state_path(out)
    state = read_state(saved, identity) if resume and saved.exists() else None
    if state is None:
        saved.unlink(missing_ok=True)
    tries = Tries.restored(config, state)
    if state is not None:
        say(f"going on after step {state['progress']['steps']} of the run in {saved}")
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()} if tries.may_repeat else {}

    def evaluate() -> Figures:
        if not dev.texts:
            return {}
        return evaluate_logits(score_texts(scorer, dev.texts), dev.targets, scorer.labels, config.problem_type)

    def record(progress: Progress) -> dict[str, Any]:
        made = run_record(start, tries.config, options, progress, device, precision)
        return made | ({"seeds": tries.results} if config.seeds > 1 else {})

    def keep(progress: Progress) -> None:
        if tries.is_champion(progress):
            save_checkpoint(out, model, encoder.tokenizer, max_length=encoder.max_length, record=record(progress))

    def save(state: State) -> None:
        write_state(saved, state | {"identity": identity, "tries": tries.state()})

    progress = Progress()
    try:
        with TrainingBar(config.metric, config.epochs) as bar, StopRequest() as request:
            while True:
                if state is None:
                    prepare(model, tries.config, initial if tries.repeats else None, from_scratch=start.from_scratch)
                else:
                    freeze(model, config.freeze_layers)
                after = state["progress"]["steps"] if state else 0
                try:
                    with Logged(bar, tries.log_path(log), after) as watch:
                        train(
                            model,
                            rows,
                            tries.config,
                            precision=precision,
                            evaluate=evaluate,
                            keep=keep,
                            watch=watch,
                            progress=progress,
                            save=save,
                            resume=state,
                            stopping=lambda: request.made,
                        )
                except Collapsed as collapse:
                    if not tries.config.retries:
                        raise
                    tries.lower()
                    say(
                        f"{collapse} Trying once more with --learning-rate {tries.config.learning_rate:.2g} and --seed "
                        f"{tries.config.seed}."
                    )
                else:
                    tries.finish(progress)
                    if not tries.next_seed():
                        break
                    say(f"{tries.summary(config.metric)}; now --seed {tries.config.seed}")
                state, progress = None, Progress()
    except KeyboardInterrupt:
        raise Interrupted(_interrupted(progress, config.metric, out, saved)) from None
    champion = tries.champion
    with counting("measuring", None):
        describe(out, record(champion), champion, inputs, dev, precision)
    saved.unlink(missing_ok=True)
    notes = _notes(inputs, champion)
    if config.seeds > 1:
        notes = (*notes, tries.summary(config.metric))
    return Finished(progress=champion, config=tries.config, labels=inputs.labels.names, notes=notes)


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
        lost = rows.cut_tokens + dev.cut_tokens
        say(f"{cut} texts are longer than {config.max_length} tokens and lose their end, {lost:,} tokens together")
    if warning := fit_of(start.text_encoder, [row.text for row in inputs.train]).warning:
        say(f"warning: {start.source} does not fit the texts: {warning}")
    if inputs.repeats.alike or inputs.repeats.contradicting:
        remedy = "repeats are left out" if config.drop_repeats else "--drop-repeats leaves repeats out"
        say(f"{inputs.train_file.path}: {inputs.repeats}; {remedy}")
    if seen := inputs.seen_dev_rows:
        say(f"{seen} dev texts are also training texts: the dev figures are better than on new texts")
    say(
        f"up to {config.epochs} epochs of batches of {config.batch_size}, learning rate {config.learning_rate:.2g}, "
        f"best by dev {config.metric}"
    )


def _notes(inputs: Inputs, progress: Progress) -> tuple[str, ...]:
    notes = []
    figures = progress.best.figures if progress.best else {}
    if figures.get("predicted_classes") == 1 and len(inputs.labels.names) > 1:
        notes.append(
            "The model gives every dev text the same class: it has not learned. Try another --learning-rate, more "
            "epochs or another --seed."
        )
    if not figures:
        notes.append("There were no dev rows: the checkpoint is that of the last epoch and has no figures.")
    return tuple(notes)


def _interrupted(progress: Progress, metric: str, out: Path, saved: Path) -> str:
    at = f"interrupted after {progress.steps} steps"
    if progress.best is None:
        kept = f"{at}, before the first evaluation: no checkpoint was written, {out} is as it was before"
    else:
        figure = f" (dev {metric} {progress.best.figures[metric]:.4f})" if progress.best.figures else ""
        kept = f"{at}; {out} holds the best checkpoint so far, that of step {progress.best.step}{figure}"
    return f"{kept}. The same command with --resume goes on." if saved.exists() else f"{kept}."
