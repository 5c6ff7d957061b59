"""What training starts from: a preset with random weights and a new tokenizer, or a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.encoding import TextEncoder
from contract.errors import CheckpointError
from encoders.checkpoint import load_classifier, open_checkpoint
from encoders.heads import SequenceClassifier
from encoders.presets import PRESETS, preset
from encoders.training import seed_everything
from finetune.config import TrainingConfig
from finetune.inputs import Inputs, with_labels
from finetune.progress import say
from finetune.tokenizer import Kind, train_tokenizer
from labelled.labels import LabelSet, recorded_renames


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What training starts from."""

    model: SequenceClassifier
    text_encoder: TextEncoder
    inputs: Inputs
    """With the classes in the order of the model's logits."""
    from_scratch: bool
    source: str
    """Preset or folder, as the user named it."""


def from_preset(name: str, inputs: Inputs, config: TrainingConfig, kind: Kind) -> Start:
    """A named shape with random weights and a tokenizer that is learned from the training rows."""
    shape = preset(name)
    say(f"{name}: random weights; learning a {kind} tokenizer from {len(inputs.train)} texts")
    tokenizer = train_tokenizer(inputs.train, family=shape.model_type, kind=kind, vocab_size=shape.vocab_size)
    shape = replace(
        shape, vocab_size=tokenizer.get_vocab_size(), labels=inputs.labels.names, problem_type=config.problem_type
    )
    seed_everything(config.seed)
    model = SequenceClassifier(shape)
    encoder = TextEncoder(
        tokenizer,
        max_length=shape.max_length,
        pad_token_id=shape.pad_token_id,
        type_vocab_size=shape.type_vocab_size,
    )
    return Start(model=model, text_encoder=encoder, inputs=inputs, from_scratch=True, source=name)


def from_folder(folder: Path, inputs: Inputs, config: TrainingConfig, *, new_head: bool) -> Start:
    """A model folder: its head is kept if it knows the classes of the data, and drawn if it has none or on demand.

    Raises:
        CheckpointError: the folder is no usable model, has no tokenizer, or its head has other classes.
    """
    checkpoint = open_checkpoint(folder)
    if checkpoint.text_encoder is None:
        raise CheckpointError(f"{folder} has no tokenizer files; copy those of the model into it.")
    if not new_head:
        inputs = with_labels(inputs, _known_classes(inputs.labels, checkpoint.config.labels, checkpoint.record))
    seed_everything(config.seed)
    loaded = load_classifier(
        checkpoint,
        labels=inputs.labels.names,
        problem_type=config.problem_type,
        new_head=new_head,
        strict=False,
        seed=config.seed,
    )
    if loaded.new_tensors:
        say(f"{folder}: no values for {', '.join(loaded.new_tensors)}; they start random")
    return Start(
        model=loaded.model,
        text_encoder=checkpoint.text_encoder,
        inputs=inputs,
        from_scratch=False,
        source=str(folder),
    )


def _known_classes(found: LabelSet, known: tuple[str, ...], record: Mapping[str, Any]) -> LabelSet:
    """The checkpoint's classes in its order if it knows all that the data has, else those of the data."""
    renames = found.renames or recorded_renames(record)
    named = {renames.get(name, name) for name in found.names}
    return LabelSet(known, renames) if named <= set(known) else found


def open_start(source: str, inputs: Inputs, config: TrainingConfig, *, new_head: bool, kind: Kind) -> Start:
    """What ``--model`` names: a preset if it is one's name, else a folder."""
    if source in PRESETS:
        return from_preset(source, inputs, config, kind)
    if not Path(source).is_dir():
        raise CheckpointError(
            f"--model {source} is neither a folder nor a preset; the presets are {', '.join(PRESETS)}."
        )
    return from_folder(Path(source), inputs, config, new_head=new_head)
