"""What decides the result of a run, and what only decides how it is looked after.

``Settings`` are written to ``run/settings.json`` when a run starts; a resumed run must have the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from contract.errors import CheckpointError, UsageError, listing
from encoders.checkpoint import Checkpoint
from encoders.config import EncoderConfig
from encoders.precision import Precision
from encoders.presets import preset
from pretrain.distributed import Parallelism
from pretrain.recipes import Recipe
from pretrain.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that the weights of a finished run depend on, apart from the store's tokens."""

    start: str
    """Name of a shape with random weights, or a model folder."""
    config: EncoderConfig
    recipe: Recipe
    seed: int
    minutes: float | None
    """Wall-clock budget; None means ``recipe.steps`` updates."""
    micro_tokens: int
    """Tokens that go through the model at once."""
    packed: bool
    precision: Precision
    compiled: bool
    store: str
    """Fingerprint."""

    @property
    def sentence_task(self) -> bool:
        """Whether the objective has a sentence part."""
        return self.recipe.objective != "mlm"

    def as_record(self) -> dict[str, Any]:
        """For JSON; ``differences`` compares two of these."""
        record = asdict(self)
        record["config"] = self.config.to_hf()
        return record


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Names of the entries that differ between two records."""
    names = []
    for name in sorted(ours.keys() | theirs.keys()):
        first, second = ours.get(name), theirs.get(name)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            names += differences(first, second, f"{prefix}{name}.")
        elif first != second:
            names.append(f"{prefix}{name} ({second!r} before, {first!r} now)")
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """What may change from one part of a run to the next."""

    parallelism: Parallelism = "ddp"
    save_steps: int = 0
    """Steps between two checkpoints; 0: by time alone."""
    save_minutes: float = 10.0
    keep: int = 2
    """Checkpoints that are kept while the run lasts."""
    evaluate_steps: int = 0
    """Steps between two looks at the held-out split; 0: at the end alone."""
    heldout_tokens: int = 1 << 17
    """Tokens of the held-out split that are looked at."""
    spike_nats: float = 2.5
    """See ``Alarms``."""
    ledger_ids: bool = False
    """Whether the ledger names every sample, or a digest of them."""
    tensorboard: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeChanges:
    """Departures from a named shape; None keeps its value."""

    layers: int | None = None
    hidden_size: int | None = None
    """Everything as wide as the hidden size, or a multiple or part of it, changes with it."""
    embedding_size: int | None = None
    layer_sharing: str | None = None
    dropout: float | None = None


def changed_shape(base: EncoderConfig, changes: ShapeChanges) -> EncoderConfig:
    """A shape with some of its choices replaced.

    Raises:
        CheckpointError: a change contradicts the shape.
    """
    if changes.hidden_size is not None:
        base = _with_hidden(base, changes.hidden_size)
    given: dict[str, Any] = {
        "num_hidden_layers": changes.layers,
        "embedding_size": changes.embedding_size,
        "layer_sharing": changes.layer_sharing,
        "hidden_dropout_prob": changes.dropout,
        "attention_probs_dropout_prob": changes.dropout,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if "embedding_size" in values:
        # as ALBERT's paper counts: no map where the sizes are equal; transformers' AlbertModel always has one
        values["embedding_projection"] = values["embedding_size"] != base.hidden_size
    return replace(base, **values)


def _with_hidden(base: EncoderConfig, hidden: int) -> EncoderConfig:
    """A narrower or wider shape with the same proportions and heads of the same width, at least one.

    The spread of the first weights goes with 1 / sqrt(hidden), so that products of vectors keep their size.
    """

    def share(size: int) -> int:
        return max(1, size * hidden // base.hidden_size)

    return replace(
        base,
        hidden_size=hidden,
        intermediate_size=share(base.intermediate_size),
        embedding_size=share(base.embedding_size),
        num_attention_heads=share(base.num_attention_heads),
        initializer_range=base.initializer_range * math.sqrt(base.hidden_size / hidden),
    )


def shape_for(store: Store, name: str, changes: ShapeChanges | None = None) -> EncoderConfig:
    """A named shape with the vocabulary of a store.

    Raises:
        UsageError: there is no such shape.
        CheckpointError: a change contradicts the shape.
    """
    base = changed_shape(preset(name), changes or ShapeChanges())
    vocabulary = store.vocabulary
    first = base.family.first_position(vocabulary.pad_id)
    return replace(
        base,
        vocab_size=vocabulary.size,
        pad_token_id=vocabulary.pad_id,
        max_position_embeddings=base.max_length + first,
        type_vocab_size=max(base.type_vocab_size, vocabulary.template.second_type + 1),
    )


def shape_of(store: Store, checkpoint: Checkpoint) -> EncoderConfig:
    """The shape of a model folder that goes on with a store's text.

    Raises:
        CheckpointError: the folder has no tokenizer.
        DataError: its tokenizer is not the one that made the store.
    """
    if checkpoint.text_encoder is None:
        raise CheckpointError(
            f"{checkpoint.folder} has no tokenizer files, so nobody knows what its embeddings stand for."
        )
    store.require_tokenizer(checkpoint.text_encoder.tokenizer, checkpoint.folder)
    return checkpoint.config


def check_window(recipe: Recipe, config: EncoderConfig) -> None:
    """Refuse a window that the positions do not reach.

    Raises:
        UsageError: it is too long.
    """
    if recipe.window > config.max_length:
        raise UsageError(f"--max-length {recipe.window} is more than the {config.max_length} positions of this shape.")


def check_objective(recipe: Recipe, config: EncoderConfig) -> None:
    """Refuse a sentence objective for a family without a sentence head.

    Raises:
        UsageError: it has none.
    """
    if recipe.objective != "mlm" and config.family.sentence_task is None:
        raise UsageError(
            f"--objective mlm+{recipe.objective} needs a sentence head and {config.model_type} has none; "
            "use a bert or albert shape, or --objective mlm."
        )


def with_changes(recipe: Recipe, **changes: Any) -> Recipe:
    """A recipe with the values that are not None; a new number of steps keeps the share of the warm-up.

    Raises:
        UsageError: a value is out of range.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    assert given.keys() <= {field.name for field in fields(Recipe)}
    if "steps" in given and "warmup_steps" not in given:
        recipe = recipe.with_steps(int(given["steps"]))
    recipe = replace(recipe, **given)
    for name, least in (("learning_rate", 0.0), ("batch_size", 0), ("steps", 0), ("window", 0)):
        if not getattr(recipe, name) > least:
            raise UsageError(f"{name}={getattr(recipe, name)} is not above 0.")
    if not 0 <= recipe.warmup_steps <= recipe.steps:
        raise UsageError(f"a warm-up of {recipe.warmup_steps} steps does not fit into {recipe.steps} steps.")
    for name in ("weight_decay", "clip_norm"):
        if getattr(recipe, name) < 0:
            raise UsageError(f"{name}={getattr(recipe, name)} is below 0.")
    return recipe


def listing_of(names: list[str]) -> str:
    """A few differences for a message."""
    return listing([name.replace("'", "") for name in names], limit=4).replace("'", "")
