"""How far each layer moves its input: the figure that ALBERT's paper opens its ablation with.

For every real token, the distance |output - input| and the angle between input and output of each layer, averaged. The
first input is that of the first block (after embeddings and projection).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from encoders.encoder import Encoder
from pretrain.micro import Batcher


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSteps:
    """One number for each executed block."""

    distance: tuple[float, ...]
    """Mean L2 distance between input and output vector of a token."""
    cosine: tuple[float, ...]
    """Mean cosine of the angle between them."""
    degrees: tuple[float, ...]
    """Mean angle."""


@torch.no_grad()
def layer_steps(encoder: Encoder, batcher: Batcher, samples: int) -> LayerSteps:
    """Measure an encoder on the first samples of a view, in a fixed random order, masks included.

    Args:
        encoder: in evaluation mode.
        batcher: makes packed micro-batches.
        samples: how many samples to look at.
    """
    assert batcher.packed, "every vector of a packed row is a real token"
    view = batcher.view
    ids = view.order(0)(np.arange(min(samples, view.samples)))
    sums: torch.Tensor | None = None
    tokens = 0
    for micro in batcher.load(ids, 0):
        hidden: list[torch.Tensor] = []
        encoder(micro.input_ids, None, micro.token_type_ids, packing=micro.packing, collect=hidden)
        rows = []
        for before, after in itertools.pairwise(hidden):
            first, second = before[0].double(), after[0].double()  # (tokens, hidden)
            cosine = torch.cosine_similarity(first, second, dim=-1).clamp(-1, 1)
            rows.append(
                torch.stack(((second - first).norm(dim=-1).sum(), cosine.sum(), cosine.arccos().rad2deg().sum()))
            )
        block_sums = torch.stack(rows)  # (blocks, 3)
        sums = block_sums if sums is None else sums + block_sums
        tokens += micro.tokens
    assert sums is not None
    means: list[list[float]] = (sums / tokens).T.tolist()
    return LayerSteps(distance=tuple(means[0]), cosine=tuple(means[1]), degrees=tuple(means[2]))
