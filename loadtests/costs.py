"""What a forward pass costs, by arithmetic on the shape in a bundle's ``config.json``.

A multiply-add is two operations, and only matrix products count: norms, activations and lookups are a few per cent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def blocks(config: Mapping[str, Any]) -> int:
    """Transformer blocks that are computed; ALBERT's groups hold several (Lan et al., 2020)."""
    return int(config["num_hidden_layers"]) * int(config.get("inner_group_num", 1))


def block_parameters(config: Mapping[str, Any]) -> int:
    """Numbers in the matrices of one block: four projections of the attention, two of the feed-forward layer."""
    hidden, ffn = int(config["hidden_size"]), int(config["intermediate_size"])
    return 4 * hidden * hidden + 2 * hidden * ffn


def flops_per_token(config: Mapping[str, Any], *, length: float = 0.0) -> float:
    """Operations per token in blocks and the embedding projection.

    Args:
        config: the shape.
        length: tokens of the sequence, each of which a token attends to; 0 leaves scores and weighted sums out.
    """
    hidden, narrow = int(config["hidden_size"]), int(config.get("embedding_size", config["hidden_size"]))
    projection = 2.0 * narrow * hidden if narrow != hidden else 0.0
    return blocks(config) * (2.0 * block_parameters(config) + 4.0 * length * hidden) + projection
