"""What can be exported: a trained checkpoint, or the shape of a preset with random weights."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contract.encoding import TextEncoder
from contract.errors import CheckpointError, UsageError
from contract.manifest import MANIFEST_NAME
from contract.tokenizer_files import load_tokenizer
from encoders.checkpoint import load_classifier, open_checkpoint
from encoders.config import EncoderConfig
from encoders.heads import SequenceClassifier
from encoders.initialise import initialise
from encoders.presets import PRESETS, preset
from export.accuracy import LabelledTexts, read_labelled
from labelled.labels import LabelSet, recorded_renames, unnamed
from labelled.reader import DataOptions

PERTURBATION = 0.05
"""Standard deviation of what is added to random models' biases and norms, which start constant and never stay so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A model and what has to go with it."""

    model: SequenceClassifier
    """In evaluation mode, float32."""
    text_encoder: TextEncoder
    metrics: Mapping[str, Any]
    """Accuracy figures of the training."""
    provenance: Mapping[str, Any]
    """What made it."""

    def read_labelled(self, path: Path, options: DataOptions, renames: Mapping[str, str]) -> LabelledTexts:
        """A labelled file for this model; without ``renames``, those of its training."""
        config = self.model.config
        return read_labelled(
            path,
            options,
            labels=LabelSet(config.labels, renames or recorded_renames(self.provenance) or unnamed(config.labels)),
            problem_type=config.problem_type,
            text_encoder=self.text_encoder,
        )


def from_checkpoint(folder: Path) -> Source:
    """A checkpoint of robal, or any Hugging Face folder of a BERT, RoBERTa or ALBERT sequence classifier.

    Raises:
        CheckpointError: weights, head, configuration or tokenizer are missing or contradict each other.
        UsageError: it is the name of a preset, or a bundle.
    """
    if not folder.exists() and str(folder) in PRESETS:
        raise UsageError(
            f"{str(folder)!r} is a preset: a shape without weights. Train it with `robal finetune --model {folder}`, "
            "or export it for latency measurements with --random-weights SEED --tokenizer FOLDER."
        )
    if (folder / MANIFEST_NAME).is_file():
        raise UsageError(f"{folder} is a bundle already; give the checkpoint that it was made from.")
    checkpoint = open_checkpoint(folder)
    if checkpoint.text_encoder is None:
        raise CheckpointError(
            f"{folder} has no tokenizer (tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model); "
            "a bundle cannot turn text into ids without one."
        )
    record = dict(checkpoint.record)
    return Source(
        model=load_classifier(checkpoint).model,
        text_encoder=checkpoint.text_encoder,
        metrics=record.pop("metrics", {}),
        provenance={"source": folder.resolve().name, "checkpoint": record},
    )


def from_preset(name: str, *, seed: int, tokenizer_folder: Path) -> Source:
    """A preset's shape with seeded random weights, for measurements of time and memory only.

    Args:
        name: one of ``encoders.presets.PRESETS``.
        seed: decides the weights.
        tokenizer_folder: a checkpoint or bundle whose tokenizer is borrowed.

    Raises:
        UsageError: there is no such preset, or the tokenizer has ids that the model lacks.
    """
    if name not in PRESETS and (close := difflib.get_close_matches(name, PRESETS, n=1)):
        raise UsageError(f"there is no preset {name!r}; did you mean {close[0]!r}?")
    config = preset(name)
    text_encoder = _borrow(tokenizer_folder, config)
    with torch.device("meta"):  # the weights are drawn once, below
        model = SequenceClassifier(config)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    initialise(model, config, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=PERTURBATION)
    return Source(
        model=model.eval(),
        text_encoder=text_encoder,
        metrics={},
        provenance={
            "note": "random weights: latency only",
            "preset": name,
            "seed": seed,
            "tokenizer": tokenizer_folder.resolve().name,
        },
    )


def _borrow(folder: Path, config: EncoderConfig) -> TextEncoder:
    if not folder.is_dir():
        raise UsageError(f"--tokenizer {folder} is not a folder; give a checkpoint or a bundle.")
    tokenizer = load_tokenizer(folder)
    if tokenizer is None:
        raise UsageError(f"--tokenizer {folder} has no tokenizer files; give a checkpoint or a bundle.")
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise UsageError(
            f"the tokenizer in {folder} has ids up to {highest} and the preset has {config.vocab_size} embeddings; "
            "take a tokenizer with fewer words."
        )
    return TextEncoder(
        tokenizer,
        max_length=config.max_length,
        pad_token_id=config.pad_token_id,
        type_vocab_size=config.type_vocab_size,
    )
