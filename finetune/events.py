"""What happens in a training run, for those who watch, record or resume it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

Figures = dict[str, Any]


class Watch(Protocol):
    """Who wants to know how it goes."""

    def stepped(self, step: Step) -> None:
        """After each optimiser step."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """After each evaluation, when its checkpoint is on disk."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimiser step."""

    number: int
    """From 1."""
    of: int
    """Steps of the whole run, if it does not stop early."""
    epoch: int
    """From 1."""
    loss: float
    """Mean over the batch."""
    learning_rate: float
    """The one that this step used."""
    gradient_norm: float
    """Before clipping."""
    rows: int
    tokens: int
    """Without padding."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One look at the dev rows."""

    step: int
    epoch: int
    figures: Figures
    kept: bool
    """Whether this is the best one so far and its checkpoint was kept."""
    train_loss: float | None = None
    """Mean of the steps since the evaluation before."""


@dataclass(slots=True)
class Progress:
    """What a run has done so far; also what is left of it after an interruption."""

    steps: int = 0
    epochs: int = 0
    """Whole epochs."""
    tokens: int = 0
    """Trained on, without padding."""
    train_seconds: float = 0.0
    """Spent in optimiser steps, evaluations not counted."""
    losses: list[float] = field(default_factory=list)
    """Of the steps since the last evaluation."""
    best: Evaluation | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    stopped_early: bool = False
