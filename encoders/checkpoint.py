"""The checkpoint folder: a Hugging Face model folder plus ``robal.json``, which says what made it.

    config.json            EncoderConfig.to_hf
    model.safetensors      tensors under Hugging Face's names
    tokenizer.json, tokenizer_config.json, special_tokens_map.json
    robal.json             command, data fingerprints, seed, metrics

``open_checkpoint`` reads everything but the weights; the ``load_*`` functions build a model from them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from contract.encoding import TextEncoder
from contract.errors import CheckpointError, listing
from contract.scores import ProblemType
from contract.storage import read_json, recover_folder, replace_folder, write_json
from contract.tokenizer_files import Tokenizer, load_tokenizer, save_tokenizer, stored_max_length
from encoders.config import EncoderConfig, generic_labels
from encoders.heads import MaskedLanguageModel, Model, PretrainingModel, SequenceClassifier
from encoders.initialise import initialise
from encoders.weight_files import SAFETENSORS, read_names, read_tensors, write_tensors
from encoders.weights import canonical, detect_family, fill, to_hf

FORMAT = 1
"""Version of ``robal.json``."""

HEAD = ("classifier.weight", "classifier.bias")
"""The layer whose outputs are the labels."""

AnyModel = TypeVar("AnyModel", bound=Model)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A model folder without its weights."""

    folder: Path
    config: EncoderConfig
    text_encoder: TextEncoder | None
    """None if the folder has no tokenizer files."""
    record: dict[str, Any]
    """``robal.json``; empty for folders that others made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded(Generic[AnyModel]):
    """A model with weights, and what did not match."""

    model: AnyModel
    """In evaluation mode, float32, on the CPU."""
    new_tensors: tuple[str, ...]
    """Parameters that the file lacks, freshly drawn."""
    unused_tensors: tuple[str, ...]
    """Tensors of the file that this model has no use for, such as another head."""


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read a model folder; the weights' names decide the family, the tokenizer files decide the tokenizer.

    Raises:
        CheckpointError: the folder is missing, incomplete or contradicts itself.
    """
    folder = Path(folder)
    recover_folder(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; give a model folder with config.json and model.safetensors.")
    if (folder / "manifest.json").is_file():
        raise CheckpointError(f"{folder} is an exported bundle; give the checkpoint that it was made from.")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json, so it is not a model folder.")
    raw = read_json(folder / "config.json", CheckpointError)
    config = EncoderConfig.from_hf(raw | {"model_type": detect_family(read_names(folder), raw.get("model_type"))})
    record = read_json(folder / "robal.json", CheckpointError) if (folder / "robal.json").exists() else {}
    if record.get("format", FORMAT) not in range(1, FORMAT + 1):
        raise CheckpointError(
            f"{folder} has checkpoint format {record['format']!r} and this robal reads up to {FORMAT}; upgrade robal."
        )
    return Checkpoint(folder=folder, config=config, text_encoder=_text_encoder(folder, config), record=record)


def _text_encoder(folder: Path, config: EncoderConfig) -> TextEncoder | None:
    tokenizer = load_tokenizer(folder)
    if tokenizer is None:
        return None
    _check_vocabulary(tokenizer, config, folder)
    return TextEncoder(
        tokenizer,
        max_length=min(config.max_length, stored_max_length(folder) or config.max_length),
        pad_token_id=config.pad_token_id,
        type_vocab_size=config.type_vocab_size,
    )


def _check_vocabulary(tokenizer: Tokenizer, config: EncoderConfig, folder: Path) -> None:
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has ids up to {highest} and the embedding has {config.vocab_size} rows "
            f"(0 to {config.vocab_size - 1}); the tokenizer belongs to another model."
        )


def load_classifier(
    checkpoint: Checkpoint,
    *,
    labels: Sequence[str] | None = None,
    problem_type: ProblemType | None = None,
    new_head: bool = False,
    strict: bool = True,
    seed: int = 0,
) -> Loaded[SequenceClassifier]:
    """A sequence classifier from a checkpoint.

    Args:
        checkpoint: from ``open_checkpoint``.
        labels: names in the order of the logits; None means those of the checkpoint.
        problem_type: None means that of the checkpoint.
        new_head: draw the last layer anew even if the file has one.
        strict: refuse any missing tensor, as inference must; otherwise a missing head or pooler is drawn and listed.
        seed: decides the drawn tensors.

    Raises:
        CheckpointError: encoder weights are missing, shapes differ, the head knows other labels, or, with ``strict``,
            anything is missing.
    """
    known = checkpoint.config.labels
    config = replace(
        checkpoint.config,
        labels=known if labels is None else tuple(labels),
        problem_type=problem_type or checkpoint.config.problem_type,
    )
    skip = HEAD if new_head else ()
    loaded = _load(SequenceClassifier, checkpoint, config, strict=strict, seed=seed, skip=skip)
    is_kept = not set(HEAD) & set(loaded.new_tensors)
    if is_kept and config.labels != known and known != generic_labels(len(known)):
        raise CheckpointError(
            f"{checkpoint.folder} knows the labels {listing(known)} and {listing(config.labels)} were asked for, in "
            "this order; ask for a new head (--new-head) to train one."
        )
    return loaded


def load_masked_lm(checkpoint: Checkpoint, *, strict: bool = True, seed: int = 0) -> Loaded[MaskedLanguageModel]:
    """A masked language model from a checkpoint; see ``load_classifier``."""
    return _load(MaskedLanguageModel, checkpoint, checkpoint.config, strict=strict, seed=seed)


def load_pretraining(checkpoint: Checkpoint, *, strict: bool = True, seed: int = 0) -> Loaded[PretrainingModel]:
    """Encoder, masked-LM head and sentence head from a checkpoint; see ``load_classifier``."""
    return _load(PretrainingModel, checkpoint, checkpoint.config, strict=strict, seed=seed)


def _load(
    build: Callable[[EncoderConfig], AnyModel],
    checkpoint: Checkpoint,
    config: EncoderConfig,
    *,
    strict: bool,
    seed: int,
    skip: Collection[str] = (),
) -> Loaded[AnyModel]:
    with torch.device("meta"):  # no time is spent on drawing weights that the file overwrites
        model = build(config)
    model.to_empty(device="cpu")
    tensors = canonical(read_tensors(checkpoint.folder), config.family)
    new, unused = fill(model, tensors, checkpoint.folder, skip=skip)
    if strict and new:
        raise CheckpointError(
            f"{checkpoint.folder} lacks {listing(new)}; with random values there its answers would mean nothing. "
            "Fine-tune it first."
        )
    initialise(model, config, only=new, generator=torch.Generator().manual_seed(seed))
    return Loaded(model=model.eval(), new_tensors=new, unused_tensors=unused)


def save_checkpoint(
    target: Path,
    model: Model,
    tokenizer: Tokenizer,
    *,
    max_length: int,
    record: dict[str, Any],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model folder in one step; an existing one stays whole until then.

    transformers' ``from_pretrained`` finds every tensor that it wants and none that it does not know. It has no class
    for a factorised BERT or RoBERTa: there ``config.json`` names a ``model_type`` that it refuses.

    Args:
        target: the folder.
        model: a ``SequenceClassifier``, ``MaskedLanguageModel`` or ``PretrainingModel``.
        tokenizer: the tokenizer that the model was trained with.
        max_length: most tokens of a text in training; readers keep to it.
        record: what goes into ``robal.json`` beside its format and whether transformers can load the folder.
        dtype: type of the stored floats.
    """
    config = model.config
    _check_vocabulary(tokenizer, config, target)
    raw = config.to_hf()
    if isinstance(model, PretrainingModel):
        raw |= {"id2label": None, "label2id": None}  # transformers gives ALBERT's sentence head a row for each label
    raw["architectures"] = [config.family.architectures[type(model).__name__]]
    raw["torch_dtype"] = str(dtype).removeprefix("torch.")
    with replace_folder(target) as folder:
        write_json(folder / "config.json", raw)
        write_tensors(folder / SAFETENSORS, to_hf(model), dtype)
        save_tokenizer(folder, tokenizer, max_length=max_length, type_vocab_size=config.type_vocab_size)
        write_json(folder / "robal.json", {"format": FORMAT, "transformers": config.fits_transformers} | record)
