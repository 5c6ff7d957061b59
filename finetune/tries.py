"""The runs inside one fine-tuning: several seeds, and a second try at a lower rate when one learned nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from contract.errors import UsageError
from encoders.heads import SequenceClassifier
from encoders.initialise import initialise
from encoders.training import seed_everything
from finetune.collapse import LOWER
from finetune.config import TrainingConfig
from finetune.events import Progress
from finetune.layers import depths, freeze, redraw_top
from finetune.resume import State, progress_state, restore_progress
from labelled.metrics import is_better


class Tries:
    """Which run is on, and which was the best.

    Args:
        config: of the first run, resolved.
    """

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config
        """Of the run that is on."""
        self._first = config
        self._lowered = 0
        self.results: list[dict[str, Any]] = []
        """Seed, learning rate and best figure of each finished run."""
        self.champion = Progress()
        """The finished run with the best figures."""

    @classmethod
    def restored(cls, config: TrainingConfig, state: State | None) -> Tries:
        """As they were when ``state`` was saved; anew without one."""
        tries = cls(config)
        if state is not None:
            saved = state["tries"]
            tries._lowered, tries.results = saved["lowered"], saved["results"]
            restore_progress(tries.champion, saved["champion"])
            tries.config = replace(config, **saved["config"])
        return tries

    def state(self) -> State:
        """As plain values."""
        changing = {name: getattr(self.config, name) for name in ("seed", "learning_rate", "retries")}
        champion = progress_state(self.champion)
        return {"lowered": self._lowered, "results": self.results, "champion": champion, "config": changing}

    @property
    def may_repeat(self) -> bool:
        """Whether the first weights may be needed again."""
        return self._first.seeds > 1 or self._first.retries > 0

    @property
    def repeats(self) -> bool:
        """Whether the run that is on is not the first."""
        return bool(self._lowered or self.results)

    def is_champion(self, progress: Progress) -> bool:
        """Whether a run's best evaluation beats all finished runs."""
        best, metric = self.champion.best, self.config.metric
        assert metric, "the config must be resolved"
        return best is None or (progress.best is not None and is_better(progress.best.figures, best.figures, metric))

    def lower(self) -> None:
        """The next run: the same at a lower learning rate and with new draws."""
        assert self.config.learning_rate, "the config must be resolved"
        self._lowered += 1
        self.config = replace(
            self.config,
            learning_rate=self.config.learning_rate / LOWER,
            seed=self.config.seed + self._first.seeds,
            retries=self.config.retries - 1,
        )

    def finish(self, progress: Progress) -> None:
        """Take in a run that came to its end."""
        figures = progress.best.figures if progress.best else {}
        metric = self.config.metric or ""
        figure = {metric: figures[metric]} if figures else {}
        self.results.append({"seed": self.config.seed, "learning_rate": self.config.learning_rate} | figure)
        if not figures or self.is_champion(progress):
            self.champion = progress

    def next_seed(self) -> bool:
        """Go to the next seed, at the learning rate that worked; False if all were run."""
        if len(self.results) == self._first.seeds:
            return False
        self.config = replace(self.config, seed=self._first.seed + len(self.results))
        return True

    def summary(self, metric: str) -> str:
        """Figures of the finished runs in one line."""
        figures = [result[metric] for result in self.results if metric in result]
        if not figures:
            return f"{len(self.results)} runs without dev figures"
        spread = f", standard deviation {np.std(figures, ddof=1):.4f}" if len(figures) > 1 else ""
        shown = ", ".join(f"{figure:.4f}" for figure in figures)
        best = min(figures) if metric == "loss" else max(figures)
        return (
            f"dev {metric} {best:.4f}, the best of {len(figures)} seeds ({shown}; mean {np.mean(figures):.4f}{spread})"
        )

    def log_path(self, log: Path | None) -> Path | None:
        """Each run after the first has a log of its own."""
        run = len(self.results) + self._lowered
        return log if log is None or not run else log.with_name(f"{log.stem}-run{run + 1}{log.suffix}")


def check_recipes(model: SequenceClassifier, config: TrainingConfig) -> None:
    """Refuse recipes that this model cannot follow, before any work. Raises UsageError with the reason."""
    shape = model.config
    if config.layer_decay < 1:
        depths(model, "--layer-decay")
    dropouts = (shape.hidden_dropout_prob, shape.attention_probs_dropout_prob, shape.head_dropout)
    if config.r_drop and not any(dropouts):
        raise UsageError(
            "--r-drop compares two passes with different dropout and this model has none (ALBERT v2 is published so); "
            "leave it out."
        )
    if config.seeds > 1 and not config.dev_fraction:
        raise UsageError("--seeds keeps the best run on dev rows and --dev-fraction 0 sets none aside.")


def prepare(
    model: SequenceClassifier, config: TrainingConfig, initial: Mapping[str, Tensor] | None, *, from_scratch: bool
) -> None:
    """Make the model ready for its first step: recipes that change weights, and seeded generators.

    Args:
        model: as it was loaded, or as an earlier run left it.
        config: of the run.
        initial: the weights as they were loaded, for a run after the first. The head is drawn anew.
        from_scratch: whether all weights are random; then all are drawn anew.
    """
    # generators advance with the drawing of weights; dropout must not depend on where the weights came from
    seed_everything(config.seed)
    if initial is not None:
        model.load_state_dict(dict(initial))
        initialise(model, model.config, only=None if from_scratch else {"classifier.weight", "classifier.bias"})
    redraw_top(model, config.reinit_layers)
    freeze(model, config.freeze_layers)
    seed_everything(config.seed)
