"""How a classifier is trained: every option, its meaning, its default and where the default comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

from contract.errors import UsageError
from contract.scores import ProblemType

TASKS: dict[str, ProblemType] = {
    "single_label": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}
"""Names of ``--task`` and the problem types of the checkpoint."""
METRICS: dict[ProblemType, tuple[str, ...]] = {
    "single_label_classification": ("macro_f1", "accuracy", "loss"),
    "multi_label_classification": ("micro_f1", "macro_f1", "accuracy", "loss"),
    "regression": ("spearman", "pearson", "loss"),
}
"""What a best checkpoint may be chosen by; the first one is the default."""
PRETRAINED_STEPS = 600
"""Fewest optimiser steps on a pretrained encoder. Small sets need more epochs, not a higher learning rate: Mosbach et
al. 2021 (https://arxiv.org/abs/2006.04884) train 20 epochs on the small GLUE sets to get stable results."""
SCRATCH_STEPS = 1000
"""Fewest optimiser steps for an encoder with random weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """Options of one training run. None means: chosen by ``resolved`` from the model and the data.

    Raises:
        UsageError: a value is out of its range.
    """

    task: Literal["single_label", "multi_label", "regression"] = "single_label"
    """What a label is: one class, any number of classes, or a number."""
    epochs: int | None = None
    """Most passes over the training rows. Chosen: so many that a small set gives enough steps, between 3 and 20."""
    learning_rate: float | None = None
    """Highest learning rate. Chosen: 3e-5 x 768 / hidden_size for a pretrained encoder, which gives the published
    values (BERT 2e-5 to 5e-5 at 768, ALBERT xxlarge 5e-6 to 1e-5 at 4096); 1e-4 x 768 / hidden_size for random
    weights, BERT's value for pretraining. Three times that does not leave the plateau at which the small ones begin."""
    batch_size: int = 32
    """Rows of one optimiser step."""
    accumulate: int = 1
    """Parts in which a batch goes through the model one after the other: less memory, the same result."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises from 0 (Mosbach et al. 2021)."""
    schedule: Literal["linear", "polynomial"] = "linear"
    """How the learning rate falls to 0 after the warm-up."""
    power: float = 2.0
    """Exponent of the polynomial schedule; the linear one is 1."""
    weight_decay: float = 0.01
    """Decoupled weight decay, not on biases and layer norms (BERT)."""
    clip_norm: float = 1.0
    """Longest gradient of a step; 0 turns clipping off."""
    max_length: int | None = None
    """Most tokens of a text, special tokens included. Chosen: all that the model has positions for."""
    dev_fraction: float = 0.1
    """Share of the training rows that is set aside when there is no dev file; 0 trains without one."""
    drop_repeats: bool = False
    """Leave out training rows that repeat another one, case and white space aside, and those whose text is in dev."""
    evals_per_epoch: int = 1
    """Evaluations on the dev rows in each epoch, evenly spread."""
    patience: int = 3
    """Evaluations without a better result after which training stops; 0 never stops early."""
    metric: str | None = None
    """What the best checkpoint is chosen by. Chosen: macro_f1, micro_f1 or spearman, by task."""
    layer_decay: float = 1.0
    """Factor of the learning rate from each layer to the one below it; 1 is off, 0.9 to 0.95 usual (Clark et al. 2020,
    https://arxiv.org/abs/2003.10555). Refused where layers are shared."""
    reinit_layers: int = 0
    """Top layers that are drawn anew (Zhang et al. 2021, https://arxiv.org/abs/2006.05987)."""
    freeze_layers: int = 0
    """Lowest layers that stay as they are, the embeddings with them (Lee et al. 2019,
    https://arxiv.org/abs/1911.03090): faster, and enough for many tasks."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567)."""
    r_drop: float = 0.0
    """Weight of the distance of two passes with different dropout (Liang et al. 2021,
    https://arxiv.org/abs/2106.14448: 0.5 to 5). Doubles the work of a step."""
    ema_decay: float = 0.0
    """Weight of the past in the averaged weights that are evaluated and kept; 0 is off, 0.99 to 0.999 usual (Polyak and
    Juditsky 1992)."""
    class_weights: Literal["none", "balanced"] = "none"
    """Whether rare classes count as much as frequent ones. Helps macro F1, costs calibration."""
    focal_gamma: float = 0.0
    """How much less rows count that are right already (Lin et al. 2017, https://arxiv.org/abs/1708.02002: 2)."""
    seeds: int = 1
    """Runs with seed, seed + 1, ...; the best on dev is kept. Small sets differ by points between seeds (Dodge et al.
    2020, https://arxiv.org/abs/2002.06305)."""
    retries: int = 1
    """Runs at a third of the learning rate, with another seed, when one learned nothing. 0 never tries again."""
    save_minutes: float = 5.0
    """Between two saves of the state that --resume goes on from; it is saved after each evaluation too."""
    seed: int = 0
    """Decides the split, new weights, order of rows and dropout."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the matrix products; weights and optimiser stay fp32. Chosen: see ``precision.py``."""

    def __post_init__(self) -> None:
        def require(holds: bool, name: str, expected: str) -> None:
            if not holds:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)!r}; {expected}.")

        for name in ("epochs", "batch_size", "accumulate", "evals_per_epoch", "seeds"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, "a whole number of at least 1 was expected")
        require(self.task in TASKS, "task", f"one of {', '.join(TASKS)} was expected")
        require(
            self.learning_rate is None or 0 < self.learning_rate < 1,
            "learning_rate",
            "a number between 0 and 1 was expected",
        )
        require(self.max_length is None or self.max_length >= 8, "max_length", "at least 8 tokens were expected")
        require(0 <= self.warmup < 1, "warmup", "a share of the steps from 0 up to 1 was expected")
        require(self.schedule in ("linear", "polynomial"), "schedule", "linear or polynomial was expected")
        require(self.power > 0, "power", "a positive number was expected")
        require(self.weight_decay >= 0, "weight_decay", "a number of at least 0 was expected")
        require(self.clip_norm >= 0, "clip_norm", "a number of at least 0 was expected")
        require(0 <= self.dev_fraction <= 0.5, "dev_fraction", "a share between 0 and 0.5 was expected")
        require(self.patience >= 0, "patience", "a whole number of at least 0 was expected")
        require(0 <= self.seed < 2**32, "seed", "a whole number from 0 to 4294967295 was expected")
        require(self.dtype in ("auto", "fp32", "bf16"), "dtype", "auto, fp32 or bf16 was expected")
        for name in ("reinit_layers", "freeze_layers", "retries"):
            require(getattr(self, name) >= 0, name, "a whole number of at least 0 was expected")
        for name in ("r_drop", "focal_gamma", "save_minutes"):
            require(getattr(self, name) >= 0, name, "a number of at least 0 was expected")
        for name in ("label_smoothing", "ema_decay"):
            require(0 <= getattr(self, name) < 1, name, "a number from 0 up to 1 was expected")
        require(0 < self.layer_decay <= 1, "layer_decay", "a factor over 0 and up to 1 was expected")
        require(self.class_weights in ("none", "balanced"), "class_weights", "none or balanced was expected")
        require(
            not (self.focal_gamma and self.label_smoothing),
            "focal_gamma",
            "either it or --label-smoothing was expected: one trusts the labels more, the other less",
        )
        if self.task == "regression":
            for name, off in (("class_weights", "none"), ("focal_gamma", 0), ("label_smoothing", 0), ("r_drop", 0)):
                require(getattr(self, name) == off, name, "--task regression has no classes; leave it out")
        known = METRICS[self.problem_type]
        require(self.metric is None or self.metric in known, "metric", f"one of {', '.join(known)} was expected")

    @property
    def problem_type(self) -> ProblemType:
        """The task under its name in ``config.json``."""
        return TASKS[self.task]

    def resolved(self, *, from_scratch: bool, hidden_size: int, max_length: int, rows: int) -> TrainingConfig:
        """The same options with every None replaced, except ``dtype``, which belongs to the machine.

        Args:
            from_scratch: whether the encoder starts with random weights.
            hidden_size: of the encoder.
            max_length: most tokens that the encoder has positions for.
            rows: training rows.

        Raises:
            UsageError: ``max_length`` is set to more than the encoder has.
        """
        if self.max_length is not None and self.max_length > max_length:
            raise UsageError(
                f"--max-length is {self.max_length} and the model has positions for {max_length} tokens; "
                f"pass at most {max_length}."
            )
        rate = (1e-4 if from_scratch else 3e-5) * 768 / hidden_size
        steps = SCRATCH_STEPS if from_scratch else PRETRAINED_STEPS
        epochs = math.ceil(steps / math.ceil(rows / self.batch_size))
        return replace(
            self,
            learning_rate=self.learning_rate or min(rate, 1e-3 if from_scratch else 1e-4),
            epochs=self.epochs or min(20, max(3, epochs)),
            max_length=self.max_length or max_length,
            metric=self.metric or METRICS[self.problem_type][0],
        )

    def as_record(self) -> dict[str, object]:
        """Plain values for the checkpoint's record."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
