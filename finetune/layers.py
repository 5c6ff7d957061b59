"""Layers that are treated differently in fine-tuning: slower, frozen or drawn anew, by their depth.

Depth 0 is the embeddings, depth k the k-th executed block, and one more than the last block is the head. A part that
several layers share has no single depth, so all three recipes refuse an encoder that shares layers (ALBERT).
"""

from __future__ import annotations

from typing import Any

from torch.nn import Parameter

from contract.errors import UsageError
from encoders.heads import SequenceClassifier
from encoders.initialise import initialise
from encoders.training import parameter_groups

Depths = dict[str, int]


def depths(model: SequenceClassifier, flag: str) -> Depths:
    """The depth of each parameter by its name.

    Args:
        model: whose parameters are meant.
        flag: the option that needs depths, for the message.

    Raises:
        UsageError: the encoder executes one stored part at several depths.
    """
    blocks = model.encoder.schedule
    attention = {block.attention: depth for depth, block in enumerate(blocks, 1)}
    ffn = {block.ffn: depth for depth, block in enumerate(blocks, 1)}
    if len(attention) < len(blocks) or len(ffn) < len(blocks):
        raise UsageError(
            f"{flag} treats layers by their depth and this {model.config.model_type} encoder shares its layers: one "
            f"stored layer runs at many depths, so it has none. Leave {flag} out."
        )
    found = {}
    for name, _ in model.named_parameters():
        match name.split("."):
            case ["encoder", "embeddings", *_]:
                found[name] = 0
            case ["encoder", "attention", number, *_]:
                found[name] = attention[int(number)]
            case ["encoder", "ffn", number, *_]:
                found[name] = ffn[int(number)]
            case _:
                found[name] = len(blocks) + 1
    return found


def optimiser_groups(
    model: SequenceClassifier, *, rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Parameter groups with their learning rates: ``rate`` x ``layer_decay`` ^ (blocks + 1 - depth).

    The head has the full rate, the last block one factor, the embeddings the most (Clark et al. 2020, ELECTRA; the
    count of factors as in BEiT). A factor of 1 gives the two groups of BERT.
    """
    if layer_decay == 1.0:
        return [group | {"lr": rate} for group in parameter_groups(model, weight_decay)]
    depth_of = depths(model, "--layer-decay")
    by_depth: dict[int, list[Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            by_depth.setdefault(depth_of[name], []).append(parameter)
    top = len(model.encoder.schedule) + 1
    return [
        {
            "params": [parameter for parameter in parameters if (parameter.ndim > 1) == matrices],
            "lr": rate * layer_decay ** (top - depth),
            "weight_decay": weight_decay if matrices else 0.0,
        }
        for depth, parameters in sorted(by_depth.items())
        for matrices in (True, False)
    ]


def freeze(model: SequenceClassifier, layers: int) -> None:
    """Keep the embeddings and the lowest ``layers`` blocks as they are; 0 freezes nothing (Lee et al. 2019)."""
    if layers:
        _check_count(model, "--freeze-layers", layers)
        for name, depth in depths(model, "--freeze-layers").items():
            if depth <= layers:
                model.get_parameter(name).requires_grad_(False)


def redraw_top(model: SequenceClassifier, layers: int) -> None:
    """Draw the highest ``layers`` blocks anew: they hold most of the pretraining task (Zhang et al. 2021, Revisiting
    Few-sample BERT Fine-tuning). 0 changes nothing.
    """  # noqa: D205
    if layers:
        _check_count(model, "--reinit-layers", layers)
        top = len(model.encoder.schedule)
        found = depths(model, "--reinit-layers").items()
        initialise(model, model.config, only={name for name, depth in found if top - layers < depth <= top})


def _check_count(model: SequenceClassifier, flag: str, layers: int) -> None:
    if layers > (top := len(model.encoder.schedule)):
        raise UsageError(f"{flag} is {layers} and the encoder has {top} layers; pass at most {top}.")
