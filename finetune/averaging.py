"""The mean of the weights over the last steps, which is often better than the last weights and never noisier.

An exponential moving average (Polyak and Juditsky 1992), with the decay of its first steps lowered to
(1 + step) / (10 + step), so that the first weights are soon forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Follows a model's trained parameters.

    Args:
        model: whose parameters are averaged, from now on.
        decay: weight of the past in each step, such as 0.999; 0 follows the model without memory.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.means = [parameter.detach().clone() for parameter in self._trained]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters after an optimiser step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for mean, parameter in zip(self.means, self._trained, strict=True):
            mean.lerp_(parameter, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the mean weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for mean, parameter in zip(self.means, self._trained, strict=True):
            kept = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(kept)

    def state(self) -> dict[str, int | list[Tensor]]:
        """What ``restore`` needs to go on."""
        return {"steps": self.steps, "means": self.means}

    def restore(self, state: dict[str, int | list[Tensor]]) -> None:
        """Go on from a ``state``."""
        steps, means = state["steps"], state["means"]
        assert isinstance(steps, int) and isinstance(means, list)  # noqa: PT018
        self.steps = steps
        for mean, saved in zip(self.means, means, strict=True):
            mean.copy_(saved)
