"""Which stored part each executed block uses: ALBERT's cross-layer sharing (section 3.1 and table 4 of the paper).

A block is two parts, attention and feed-forward, each with its layer norm. Six layers in two groups, for each kind of
``layer_sharing`` (numbers are indices into the stored parts):

    layer        0  1  2  3  4  5
    group        0  0  0  1  1  1
    "all"        attention 0 0 0 1 1 1    ffn 0 0 0 1 1 1
    "attention"  attention 0 0 0 1 1 1    ffn 0 1 2 3 4 5
    "ffn"        attention 0 1 2 3 4 5    ffn 0 0 0 1 1 1
    "none"       attention 0 1 2 3 4 5    ffn 0 1 2 3 4 5

With ``inner_group_num`` = M, each layer executes M blocks in sequence, and each index above stands for M parts. Pure
functions of the configuration; ``encoder.py`` executes the schedule and ``weights.py`` stores it.
"""

from __future__ import annotations

from typing import NamedTuple

from encoders.config import EncoderConfig


class Block(NamedTuple):
    """Indices of the two stored parts that make up a block."""

    attention: int
    ffn: int


def schedule(config: EncoderConfig) -> tuple[Block, ...]:
    """The executed blocks in order: ``num_hidden_layers`` x ``inner_group_num`` of them."""
    blocks = []
    for layer in range(config.num_hidden_layers):
        # as the reference implementations divide layers into groups, rounding included
        group = int(layer / (config.num_hidden_layers / config.num_hidden_groups))
        for inner in range(config.inner_group_num):
            shared = group * config.inner_group_num + inner
            own = layer * config.inner_group_num + inner
            blocks.append(
                Block(
                    attention=shared if config.layer_sharing in ("all", "attention") else own,
                    ffn=shared if config.layer_sharing in ("all", "ffn") else own,
                )
            )
    return tuple(blocks)


def stored_blocks(config: EncoderConfig) -> tuple[Block, ...]:
    """The blocks that a Hugging Face file holds, in its order.

    ALBERT's files hold the blocks of each group once. All others hold one block per execution, so that a part which is
    shared in a way that they cannot express appears as several equal copies.
    """
    return tuple(dict.fromkeys(schedule(config))) if config.stores_groups else schedule(config)
