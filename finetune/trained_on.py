"""Which files a model was made with, so that nobody takes a figure on them for a figure on new texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract.errors import DataError
from finetune.scorer import Scorer
from labelled.reader import Dataset


def training_files(record: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of each recorded file -> "train" or "dev", from ``robal.json``."""
    data = record.get("data") or {}
    return {data[use]["sha256"]: use for use in ("dev", "train") if "sha256" in (data.get(use) or {})}


def refuse_training_data(scorer: Scorer, dataset: Dataset) -> None:
    """Raises DataError if the model was trained on exactly this file."""
    if scorer.trained_on.get(dataset.sha256) == "train":
        raise DataError(
            f"{dataset.path} is the file that {scorer.name} was trained on: its figures say nothing about new texts. "
            "Give other data, or --training-data to measure it all the same."
        )
