"""LAMB (You et al. 2019, https://arxiv.org/abs/1904.00962): Adam's update, scaled for each tensor by its own size.

    m = b1 m + (1 - b1) g                         u = m^ / (sqrt(v^) + eps) + decay * w
    v = b2 v + (1 - b2) g^2                       w = w - lr * (|w| / |u|) * u

Two variants are published under this name and differ in more than details:

    google    google-research/albert, lamb_optimizer.py    m^ = m and v^ = v: no bias correction. ALBERT was trained
                                                           with it, gradients clipped to norm 1 before.
    nvidia    NVIDIA's NVLAMB (developer.nvidia.com/blog,  m^ and v^ with bias correction, as in the paper. Before,
              "Pretraining BERT with layer-wise adaptive   the gradient is divided by the norm of the whole model's
              learning rates")                             gradient, so that clipping changes nothing.

In both, the ratio is 1 where |w| or |u| is 0 (else a bias that starts at zero would never move), it is not clamped, and
a group of parameters without weight decay (biases, layer norms) takes part in neither decay nor ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

Variant = Literal["google", "nvidia"]


class Lamb(Optimizer):
    """See the module's docstring.

    Args:
        params: parameters or groups of them; a group may say ``adapts=False`` to keep the ratio at 1. Left out, a group
            adapts if it has weight decay.
        lr: learning rate; the ratio scales it for each tensor.
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: decoupled, inside the update whose norm is taken.
        variant: ``google`` or ``nvidia``.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        variant: Variant = "google",
    ) -> None:
        assert variant in ("google", "nvidia"), f"variant={variant!r}"
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapts": None}
        super().__init__(params, defaults)
        self.variant = variant

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update. The gradients themselves are left as they are."""
        assert closure is None, "LAMB has no use for a closure"
        scale = self._scale() if self.variant == "nvidia" else None
        for group in self.param_groups:
            adapts = group["weight_decay"] != 0 if group["adapts"] is None else group["adapts"]
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group, adapts=adapts, scale=scale)

    def _scale(self) -> Tensor:
        """1 / the norm of the whole gradient, or 1 if there is none."""
        gradients = [p.grad.float() for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = get_total_norm(gradients)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        return torch.where(norm > 0, 1 / norm, 1.0)

    def _update(self, parameter: Tensor, group: dict[str, Any], *, adapts: bool, scale: Tensor | None) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            # float32 also for half-precision parameters: squares of small gradients vanish in float16
            state["mean"] = torch.zeros_like(parameter, dtype=torch.float32)
            state["square"] = torch.zeros_like(parameter, dtype=torch.float32)
        state["step"] += 1
        assert parameter.grad is not None
        gradient = parameter.grad.float()
        if scale is not None:
            gradient = gradient * scale
        beta1, beta2 = group["betas"]
        mean, square = state["mean"], state["square"]
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if self.variant == "nvidia":
            mean = mean / (1 - beta1 ** state["step"])
            square = square / (1 - beta2 ** state["step"])
        weights = parameter.float()
        update = mean / (square.sqrt() + group["eps"])
        if group["weight_decay"]:
            update = update + group["weight_decay"] * weights
        if adapts:
            size, length = torch.linalg.vector_norm(weights), torch.linalg.vector_norm(update)
            usable = (size > 0) & (length > 0)
            update = update * torch.where(usable, size / torch.where(usable, length, 1.0), 1.0)
        parameter.sub_((group["lr"] * update).to(parameter.dtype))
