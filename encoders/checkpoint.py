"""The checkpoint folder: a Hugging Face model folder plus ``robal.json``, which says what made it.

    config.json            EncoderConfig.to_hf
    model.safetensors      tensors under Hugging Face's names
    tokenizer.json, tokenizer_config.json, special_tokens_map.json
    robal.json             command, data fingerprints, seed, metrics

``open_checkpoint`` reads everything but the weights; the ``load_*`` functions build a model from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from contract.encoding import TextEncoder
from contract.errors import CheckpointError, listing
from contract.scores import ProblemType
from contract.storage import read_json, recover_folder, replace_folder, write_json
from contract.tokenizer_files import Tokenizer, load_tokenizer, save_tokenizer, stored_max_length
from encoders.config import GENERIC_LABELS, EncoderConfig
from encoders.heads import MaskedLanguageModel, PretrainingModel, SequenceClassifier
from encoders.initialise import initialise
from encoders.weight_files import SAFETENSORS, read_names, read_tensors, write_tensors
from encoders.weights import canonical, detect_family, fill, to_hf

FORMAT = 1
"""Version of ``robal.json``."""

Model = TypeVar("Model", bound=nn.Module)


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
class Loaded(Generic[Model]):
    """A model with weights, and what did not match."""

    model: Model
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
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json, so it is not a model folder.")
    raw = read_json(folder / "config.json", CheckpointError)
    family = detect_family(read_names(folder), raw.get("model_type"))
    config = EncoderConfig.from_hf(raw | {"model_type": family})
    record = read_json(folder / "robal.json", CheckpointError) if (folder / "robal.json").exists() else {}
    if record.get("format", FORMAT) > FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {record['format']} and this robal reads up to {FORMAT}; upgrade robal."
        )
    return Checkpoint(folder=folder, config=config, text_encoder=_text_encoder(folder, config), record=record)


def _text_encoder(folder: Path, config: EncoderConfig) -> TextEncoder | None:
    tokenizer = load_tokenizer(folder)
    if tokenizer is None:
        return None
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has ids up to {highest} and the embedding has {config.vocab_size} rows "
            f"(0 to {config.vocab_size - 1}); the tokenizer belongs to another model."
        )
    return TextEncoder(
        tokenizer,
        max_length=min(config.max_length, stored_max_length(folder) or config.max_length),
        pad_token_id=config.pad_token_id,
        type_vocab_size=config.type_vocab_size,
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
    config = checkpoint.config
    if labels is not None or problem_type is not None:
        config = replace(
            config, labels=tuple(labels or config.labels), problem_type=problem_type or config.problem_type
        )
    loaded = _load(
        SequenceClassifier, checkpoint, config, strict=strict, seed=seed, ignore="classifier." if new_head else None
    )
    generic = checkpoint.config.labels == tuple(f"LABEL_{index}" for index in range(checkpoint.config.num_labels))
    kept = "classifier.weight" not in loaded.new_tensors
    if kept and not generic and config.labels != checkpoint.config.labels:
        raise CheckpointError(
            f"{checkpoint.folder} was trained on the labels {list(checkpoint.config.labels)} and {list(config.labels)} "
            "were asked for; ask for a new head (--new-head) to train one."
        )
    return loaded


def load_masked_lm(checkpoint: Checkpoint, *, strict: bool = True, seed: int = 0) -> Loaded[MaskedLanguageModel]:
    """A masked language model from a checkpoint; see ``load_classifier``."""
    return _load(MaskedLanguageModel, checkpoint, checkpoint.config, strict=strict, seed=seed)


def load_pretraining(checkpoint: Checkpoint, *, strict: bool = True, seed: int = 0) -> Loaded[PretrainingModel]:
    """Encoder, masked-LM head and sentence head from a checkpoint; see ``load_classifier``."""
    return _load(PretrainingModel, checkpoint, checkpoint.config, strict=strict, seed=seed)


def _load(
    build: Callable[[EncoderConfig], Model],
    checkpoint: Checkpoint,
    config: EncoderConfig,
    *,
    strict: bool,
    seed: int,
    ignore: str | None = None,
) -> Loaded[Model]:
    with torch.device("meta"):  # no time spent on drawing weights that the file overwrites
        model = build(config)
    model.to_empty(device="cpu")
    tensors = canonical(read_tensors(checkpoint.folder), config.family)
    if ignore:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(ignore)}
    new, unused = fill(model, config, tensors, str(checkpoint.folder))
    if strict and new:
        raise CheckpointError(
            f"{checkpoint.folder} lacks {listing(new)}; without trained values its answers would be random. "
            "Fine-tune it first."
        )
    initialise(model, config, only=new, generator=torch.Generator().manual_seed(seed))
    return Loaded(model=model.eval(), new_tensors=tuple(new), unused_tensors=tuple(unused))


def save_checkpoint(
    target: Path,
    model: nn.Module,
    tokenizer: Tokenizer,
    *,
    max_length: int,
    record: dict[str, Any],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model folder in one step; an existing one stays whole until then.

    transformers' ``from_pretrained`` finds every tensor it wants and none that it does not know, except for a factorised
    BERT or RoBERTa, which it has no class for: there ``config.json`` names a ``model_type`` that it refuses.

    Args:
        target: the folder.
        model: a ``SequenceClassifier``, ``MaskedLanguageModel`` or ``PretrainingModel``.
        tokenizer: the tokenizer that the model was trained with.
        max_length: most tokens of a text in training; readers keep to it.
        record: what goes into ``robal.json``.
        dtype: type of the stored floats.
    """
    config: EncoderConfig = model.config
    if isinstance(model, PretrainingModel):
        config = replace(config, labels=GENERIC_LABELS)  # the width of ALBERT's sentence head in transformers
    raw = config.to_hf() | {"torch_dtype": str(dtype).removeprefix("torch.")}
    raw["architectures"] = [config.family.architectures[type(model).__name__]]
    with replace_folder(target) as folder:
        write_json(folder / "config.json", raw)
        tensors = to_hf(model, config)
        write_tensors(folder / SAFETENSORS, {name: tensor.to(dtype) for name, tensor in tensors.items()})
        save_tokenizer(folder, tokenizer, max_length=max_length, type_vocab_size=config.type_vocab_size)
        write_json(folder / "robal.json", {"format": FORMAT} | record)
