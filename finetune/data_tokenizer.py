"""The tokenizer by which a data check counts tokens."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from contract.encoding import TextEncoder
from contract.errors import CheckpointError
from encoders.checkpoint import open_checkpoint
from encoders.presets import PRESETS, preset
from finetune.progress import say
from finetune.tokenizer import train_tokenizer
from labelled.reader import DataOptions, Row, RowReader

LEARNED_TEXTS = 100_000
"""More texts hardly change a vocabulary and take minutes."""


def tokenizer_of(model: str, train: Path, options: DataOptions, max_length: int | None = None) -> TextEncoder:
    """That of a model folder, or the one that a preset would learn from (the beginning of) the training file.

    Args:
        model: a folder or the name of a preset.
        train: the training file.
        options: how it is read.
        max_length: most tokens of a text, if fewer than the model has positions for.

    Raises:
        CheckpointError: there is neither such a folder nor such a preset, or the folder has no tokenizer.
    """
    if model in PRESETS:
        shape = preset(model)
        outcomes = RowReader(train, options, None).outcomes()
        rows = list(islice((row for row in outcomes if isinstance(row, Row)), LEARNED_TEXTS))
        say(f"{model}: learning a tokenizer from {len(rows)} texts of {train}")
        tokenizer = train_tokenizer(rows, family=shape.model_type, kind="bpe", vocab_size=shape.vocab_size)
        return TextEncoder(
            tokenizer,
            max_length=min(max_length or shape.max_length, shape.max_length),
            pad_token_id=shape.pad_token_id,
            type_vocab_size=shape.type_vocab_size,
        )
    if not Path(model).is_dir():
        raise CheckpointError(
            f"--model {model} is neither a folder nor a preset; the presets are {', '.join(PRESETS)}."
        )
    text_encoder = open_checkpoint(Path(model)).text_encoder
    if text_encoder is None:
        raise CheckpointError(f"{model} has no tokenizer files; copy those of the model into it.")
    if max_length is None or max_length >= text_encoder.max_length:
        return text_encoder
    return TextEncoder(
        text_encoder.tokenizer,
        max_length=max_length,
        pad_token_id=text_encoder.pad_token_id,
        type_vocab_size=text_encoder.type_vocab_size,
    )
