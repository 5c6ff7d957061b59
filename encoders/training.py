"""What both training loops share about an encoder: seeds, parameter groups, schedules, a metric log, counts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from encoders.encoder import Encoder


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy and PyTorch (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer: matrices with decay; biases and layer norms without, as in BERT.

    A parameter that several layers share is in one group once.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


def rate_fraction(update: float, *, total: float, warmup: float, power: float) -> float:
    """Learning rate of an update as a fraction of the peak: linear warm-up, then polynomial decay to 0.

        update / warmup                              up to the warm-up's end: never 0, and 1 exactly at its end
        ((total - update) / (total - warmup)) ^ power    after it: continues from 1 without a step, 0 at the end

    (Google's ALBERT decays from step 0 and overwrites the warm-up, so its rate drops where the warm-up ends.)

    Args:
        update: which update, counted from 1; or how much of a budget will be spent after it, such as seconds.
        total: of the whole run, in the same unit.
        warmup: the part of it that warms up.
        power: exponent of the decay: 1 is linear, 0 stays at the peak.
    """
    if update <= warmup:
        return update / warmup
    return float((max(total - update, 0.0) / max(total - warmup, 1e-9)) ** power)


def schedule(
    optimizer: Optimizer,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    kind: Literal["linear", "polynomial", "constant"] = "linear",
    power: float = 2.0,
) -> LambdaLR:
    """Linear warm-up to the optimizer's learning rate, then decay to 0; see ``rate_fraction``.

    Call ``step()`` after each update. Update 1 is the first, and the last one, ``total_steps``, uses 0.

    Args:
        optimizer: its ``lr`` is the peak.
        total_steps: number of updates.
        warmup_steps: how many of them warm up.
        kind: ``linear`` is power 1; ``constant`` stays at the peak.
        power: exponent of the polynomial decay.
    """
    exponent = {"linear": 1.0, "polynomial": power, "constant": 0.0}[kind]

    def fraction(finished: int) -> float:
        return rate_fraction(finished + 1, total=total_steps, warmup=warmup_steps, power=exponent)

    return LambdaLR(optimizer, fraction)


class MetricLog:
    """Measurements as JSON lines, each on disk as soon as it is written. Appends to an existing file.

    Use as a context manager: ``with MetricLog(path) as log: log.write(step=1, loss=0.7)``.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, **values: Any) -> None:
        """One line."""
        self._file.write(json.dumps(values, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> MetricLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """(used, unique): parameters counted once per execution of their layer, and counted once each.

    The two differ where an encoder shares layers: used is the size of the unshared network that does the same work. The
    masked-LM head's use of the word embeddings is not counted again.
    """
    unique = sum(parameter.numel() for parameter in model.parameters())
    used = unique
    for encoder in (module for module in model.modules() if isinstance(module, Encoder)):
        for block in encoder.schedule:
            used += _size(encoder.attention[block.attention]) + _size(encoder.ffn[block.ffn])
        used -= _size(encoder.attention) + _size(encoder.ffn)
    return used, unique


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
