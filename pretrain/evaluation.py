"""The held-out split: masked-token loss, perplexity and accuracy, and how well pairs are told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from contract.errors import DataError
from encoders.heads import Model
from encoders.precision import Precision, autocast
from pretrain.distributed import World
from pretrain.micro import Batcher, summed
from pretrain.samples import NO_LABEL
from pretrain.store import HELDOUT, Store
from pretrain.views import View, ViewSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Heldout:
    """The part of the held-out split that is looked at, the same each time, with the same masks.

    Args:
        batcher: makes its micro-batches.
        samples: how many samples are looked at.
    """

    batcher: Batcher
    samples: int


def heldout_of(
    store: Store, view: ViewSettings, *, tokens: int, micro_tokens: int, packed: bool, with_types: bool, world: World
) -> Heldout | None:
    """Choose samples of the held-out split.

    Args:
        store: with or without held-out documents.
        view: format, objective and masking.
        tokens: how many tokens to look at, about.
        micro_tokens: as in training, and so are the rest.
        packed: without padding.
        with_types: whether the model knows segment types.
        world: shares the work.

    Returns:
        None if nothing is held out, or too little for the objective.
    """
    try:
        held = View(store, view, HELDOUT)
    except DataError:
        return None
    wanted = math.ceil(tokens * held.samples / max(1, held.tokens))
    batcher = Batcher(view=held, micro_tokens=micro_tokens, packed=packed, with_types=with_types, device=world.device)
    return Heldout(batcher=batcher, samples=min(wanted, held.samples))


@torch.no_grad()
def evaluate(model: Model, heldout: Heldout, world: World, precision: Precision) -> dict[str, float]:
    """Figures of a model on held-out samples; all ranks share the work and get the same figures.

    Returns:
        ``mlm_loss`` in nats, ``perplexity``, ``mlm_accuracy``, and ``pair_accuracy`` if the samples have pairs.
    """
    batcher = heldout.batcher
    ids = batcher.view.order(0)(np.arange(heldout.samples))[world.rank :: world.size]
    micros = batcher.load(ids, 0)
    # sliced models exchange weights in every forward pass, so each rank makes as many
    micros += [batcher.empty()] * (world.largest(len(micros)) - len(micros))
    was_training = model.training
    model.eval()
    sums = [0.0] * 6
    for micro in micros:
        with autocast(world.device, precision):
            result = summed(model, micro, counting=True)
        pairs = int((micro.pair_labels != NO_LABEL).sum())
        right = (float(result.right_words), float(result.right_pairs))
        parts = (float(result.words), right[0], len(micro.targets), float(result.pairs), right[1], pairs)
        sums = [total + part for total, part in zip(sums, parts, strict=True)]
    model.train(was_training)
    words, right_words, masked, pair_loss, right_pairs, pairs_total = world.total_floats(sums)
    loss = words / max(masked, 1.0)
    figures = {"mlm_loss": loss, "perplexity": math.exp(min(loss, 700.0)), "mlm_accuracy": right_words / max(masked, 1)}
    if pairs_total:
        figures |= {"pair_loss": pair_loss / pairs_total, "pair_accuracy": right_pairs / pairs_total}
    return figures
