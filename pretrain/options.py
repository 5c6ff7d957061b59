"""From what was typed to ``Settings``: names checked, recipe chosen and changed, precision decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from contract.errors import UsageError, listing
from encoders.checkpoint import open_checkpoint
from encoders.config import Sharing
from encoders.precision import choose_precision, training_device
from pretrain.distributed import Parallelism
from pretrain.layout import FORMATS
from pretrain.masking import STYLES, UNITS
from pretrain.recipes import FOR_SHAPE, OptimizerName, Recipe, named
from pretrain.settings import (
    Settings,
    ShapeChanges,
    Upkeep,
    check_objective,
    check_window,
    shape_for,
    shape_of,
    with_changes,
)
from pretrain.store import Store
from pretrain.telemetry import require_tensorboard
from pretrain.views import OBJECTIVES

ALLOWED: dict[str, tuple[str, ...]] = {
    "optimizer": get_args(OptimizerName),
    "format": FORMATS,
    "masking": STYLES,
    "unit": UNITS,
    "objective": ("mlm", *(f"mlm+{name}" for name in OBJECTIVES if name != "mlm")),
}
FLAGS = {"unit": "--masking-unit", "window": "--max-length"}
"""Flags that are not called like the recipe's field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What was typed; None where nothing was."""

    preset: str | None
    model: Path | None
    changes: ShapeChanges
    recipe: str | None
    values: Mapping[str, Any]
    """Fields of the recipe."""
    sequences: int | None
    minutes: float | None
    seed: int
    micro_tokens: int
    dtype: str
    packed: bool
    compiled: bool
    parallel: str
    save_minutes: float
    save_steps: int
    evaluate_steps: int
    spike: float
    ledger_ids: bool
    tensorboard: Path | None


def resolve(choices: Choices, store: Store) -> tuple[Settings, Upkeep, torch.device]:
    """Settings of a run over a store.

    Raises:
        UsageError: a name does not exist, two options contradict each other, or a value is out of range.
        CheckpointError: the model folder cannot be used.
        DataError: its tokenizer is not the store's.
        MissingExtra: TensorBoard is wanted and not installed.
    """
    _check_names(choices)
    if choices.model is not None:
        config = shape_of(store, open_checkpoint(choices.model))
        start, family = str(choices.model), f"mini-{config.model_type}"
    else:
        start = choices.preset or f"mini-{store.family}"
        config, family = shape_for(store, start, choices.changes), start
    values = {name: value for name, value in choices.values.items() if value is not None}
    if "objective" in values:
        values["objective"] = values["objective"].removeprefix("mlm+")
    recipe = named(choices.recipe or FOR_SHAPE[family]).recipe
    if choices.sequences is not None:
        recipe = recipe.scaled(choices.sequences)
    recipe = with_changes(_fitting(recipe, values), **values)
    check_window(recipe, config)
    check_objective(recipe, config)
    recipe.view(choices.seed)  # refuses an objective that the format cannot serve
    if choices.tensorboard is not None:
        require_tensorboard()
    device = training_device()
    settings = Settings(
        start=start,
        config=config,
        recipe=recipe,
        seed=choices.seed,
        minutes=choices.minutes,
        micro_tokens=choices.micro_tokens,
        packed=choices.packed,
        precision=choose_precision(choices.dtype, device, config.hidden_size),
        compiled=choices.compiled,
        store=store.fingerprint,
    )
    parallelism: Parallelism = "fsdp" if choices.parallel == "fsdp" else "ddp"
    upkeep = Upkeep(
        parallelism=parallelism,
        save_steps=choices.save_steps,
        save_minutes=choices.save_minutes,
        evaluate_steps=choices.evaluate_steps,
        spike_nats=choices.spike,
        ledger_ids=choices.ledger_ids,
        tensorboard=choices.tensorboard,
    )
    return settings, upkeep, device


def _fitting(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """A recipe whose format suits an objective that was asked for without a format, and the other way round."""
    if "objective" in values and "format" not in values:
        single = values["objective"] == "mlm"
        return with_changes(recipe, format=recipe.format if single or "pair" in recipe.format else "segment-pair")
    if "format" in values and "objective" not in values and "pair" not in values["format"]:
        return with_changes(recipe, objective="mlm")
    return recipe


def _check_names(choices: Choices) -> None:
    for name, allowed in ALLOWED.items():
        value = choices.values.get(name)
        if value is not None and value not in allowed:
            raise UsageError(f"{FLAGS.get(name, '--' + name)} {value!r} is none of {listing(allowed)}.")
    if choices.parallel not in get_args(Parallelism):
        raise UsageError(f"--parallel {choices.parallel!r} is neither 'ddp' nor 'fsdp'.")
    if choices.dtype not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--dtype {choices.dtype!r} is none of 'auto', 'bf16', 'fp32'.")
    if choices.changes.layer_sharing not in (None, *get_args(Sharing)):
        raise UsageError(f"--sharing {choices.changes.layer_sharing!r} is none of {listing(get_args(Sharing))}.")
    if choices.model is not None and (choices.preset is not None or choices.changes != ShapeChanges()):
        raise UsageError("--model brings its own shape; leave out --preset and what changes a shape.")
    if choices.values.get("steps") is not None and (choices.sequences or choices.minutes):
        raise UsageError("--steps, and --sequences or --minutes, are different budgets; give one.")
    if choices.minutes is not None and choices.minutes <= 0:
        raise UsageError(f"--minutes {choices.minutes} is not above 0.")
    if choices.sequences is not None and choices.sequences < 1:
        raise UsageError(f"--sequences {choices.sequences} is not above 0.")
    if choices.micro_tokens < 1:
        raise UsageError(f"--micro-tokens {choices.micro_tokens} is not above 0.")
