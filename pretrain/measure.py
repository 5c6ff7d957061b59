"""What the experiments want to know of a pretrained model beside its loss."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from contract.errors import UsageError
from contract.storage import read_json
from encoders.checkpoint import load_masked_lm, load_pretraining, open_checkpoint
from pretrain.distributed import World
from pretrain.evaluation import evaluate, heldout_of
from pretrain.layers import layer_steps
from pretrain.layout import PAIR_FORMATS
from pretrain.settings import Settings
from pretrain.store import Store

HELDOUT_TOKENS = 1 << 15
"""Looked at by each of a run's measurements."""
LAYER_SAMPLES = 128


def measure(checkpoint: Path, settings: Settings, store: Store, device: torch.device) -> dict[str, Any]:
    """Held-out figures, both sentence tasks where there are pairs, and the layers' steps.

    Returns:
        ``heldout``: the run's own figures; ``cross``: accuracy on ``nsp`` and ``sop``; ``layers``: see ``LayerSteps``.
        What cannot be measured (no pairs, nothing held out, not trained) is left out.
    """
    figures: dict[str, Any] = {}
    heldout = read_json(checkpoint / "robal.json", UsageError).get("metrics", {}).get("heldout")
    if heldout is None:
        return figures
    figures["heldout"] = heldout
    world = World(rank=0, size=1, device=device)
    cross = sentence_accuracies(checkpoint, settings, store, world)
    if cross:
        figures["cross"] = cross
    view = settings.recipe.view(settings.seed)
    held = heldout_of(
        store,
        view,
        tokens=HELDOUT_TOKENS,
        micro_tokens=settings.micro_tokens,
        packed=True,
        with_types=settings.config.type_vocab_size > 1,
        world=world,
    )
    assert held is not None, "a run with held-out figures has a held-out split"
    load = load_pretraining if settings.sentence_task else load_masked_lm
    model = load(open_checkpoint(checkpoint)).model.to(device)
    figures["layers"] = asdict(layer_steps(model.encoder, held.batcher, min(held.samples, LAYER_SAMPLES)))
    return figures


def sentence_accuracies(checkpoint: Path, settings: Settings, store: Store, world: World) -> dict[str, float]:
    """Accuracy of a model's sentence head on each sentence task, whichever it was trained on.

    A model without a sentence head gets an untrained one: its accuracies show what chance gives.
    """
    view = settings.recipe.view(settings.seed)
    if view.format not in PAIR_FORMATS or settings.config.family.sentence_task is None:
        return {}
    model = load_pretraining(open_checkpoint(checkpoint), strict=False, seed=settings.seed).model.to(world.device)
    found = {}
    for objective in ("nsp", "sop"):
        held = heldout_of(
            store,
            replace(view, objective=objective),
            tokens=HELDOUT_TOKENS,
            micro_tokens=settings.micro_tokens,
            packed=True,
            with_types=settings.config.type_vocab_size > 1,
            world=world,
        )
        if held is not None:
            figures = evaluate(model, held, world, settings.precision)
            if "pair_accuracy" in figures:
                found[objective] = figures["pair_accuracy"]
    return found
