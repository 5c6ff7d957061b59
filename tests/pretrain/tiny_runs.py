"""Stores and runs of a few seconds: real text through ``prepare``, one small layer, a handful of steps."""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pretrain.recipes import named
from pretrain.resume import RunFolder
from pretrain.run import Finished, pretrain
from pretrain.settings import Settings, ShapeChanges, Upkeep, shape_for, with_changes
from pretrain.store import Store, open_store
from tests.pretrain.stores import TEXT, prepared

NO_DROPOUT = ShapeChanges(layers=1, dropout=0.0)


@lru_cache
def corpus(documents: int = 60, seed: int = 0) -> str:
    """Documents of one to twelve sentences in random order, between blank lines."""
    random = np.random.default_rng(seed)
    sentences = [text.strip() for text in TEXT]
    return "\n\n".join(
        "\n".join(
            f"{sentences[index]} {random.integers(1000)}"
            for index in random.integers(len(sentences), size=random.integers(1, 13))
        )
        for _ in range(documents)
    )


def tiny_store(folder: Path, kind: str = "wordpiece", **changes: Any) -> Store:
    """With a tenth of the documents held out; the same text gives the same store."""
    prepared(folder, corpus(), kind, **{"heldout": 0.1, **changes})
    return open_store(folder / "store")


def tiny_settings(store: Store, shape: str = "mini-albert", **changes: Any) -> Settings:
    """Eight steps of about 128 tokens; ``changes`` are fields of ``Settings``, ``Recipe`` or ``ShapeChanges``."""
    values: dict[str, Any] = {"steps": 8, "batch_size": 4, "window": 32, "warmup_steps": 2, **changes}
    shaping = {
        name: values.pop(name) for name in ("layers", "dropout", "embedding_size", "layer_sharing") if name in values
    }
    config = shape_for(store, shape, replace(NO_DROPOUT, **shaping))
    sizes: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    if config.model_type != "albert":
        sizes |= {"embedding_size": 32, "embedding_projection": False}
    config = replace(config, **sizes)
    own = {name: values.pop(name) for name in ("seed", "minutes", "micro_tokens", "packed", "start") if name in values}
    defaults: dict[str, Any] = {"seed": 5, "minutes": None, "micro_tokens": 256, "packed": True, "start": shape}
    return Settings(
        **(defaults | own),
        config=config,
        recipe=with_changes(named(shape).recipe, **values),
        precision="fp32",
        compiled=False,
        store=store.fingerprint,
    )


def go(
    store: Store, settings: Settings, out: Path, *, go_on: bool = False, overwrite: bool = False, **upkeep: Any
) -> Finished:
    care = Upkeep(**{"save_minutes": 0.0, "ledger_ids": True, **upkeep})
    return pretrain(settings, care, store, out, device=torch.device("cpu"), go_on=go_on, overwrite=overwrite)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ledger(out: Path) -> list[dict[str, Any]]:
    return lines(RunFolder(out).ledger)


def metrics(out: Path, kind: str = "step") -> list[dict[str, Any]]:
    return [line for line in lines(RunFolder(out).metrics) if line["kind"] == kind]
