"""First values of weights: N(0, ``initializer_range``), biases 0, layer norms 1 and 0, padding rows 0, as in BERT."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from encoders.config import EncoderConfig


def initialise(
    model: nn.Module,
    config: EncoderConfig,
    *,
    only: Collection[str] | None = None,
    generator: torch.Generator | None = None,
) -> None:
    """Draw the parameters of a model.

    Args:
        model: any module of this room.
        config: gives the standard deviation.
        only: full names of the parameters to draw; None means all.
        generator: None means PyTorch's global one.
    """
    with torch.no_grad():
        for prefix, module in model.named_modules():
            for name, parameter in module.named_parameters(prefix=prefix, recurse=False):
                if only is not None and name not in only:
                    continue
                if name.endswith("bias"):
                    parameter.zero_()
                elif isinstance(module, nn.LayerNorm):
                    parameter.fill_(1.0)
                else:
                    parameter.normal_(0.0, config.initializer_range, generator=generator)
                    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                        parameter[module.padding_idx].zero_()
