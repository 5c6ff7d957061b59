"""README.md of a checkpoint: what it is, what it was trained on, how good it is and how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_LABELS = 40


def model_card(record: Mapping[str, Any]) -> str:
    """A Hugging Face model card from ``robal.json``; every figure in it is from there.

    Args:
        record: of the checkpoint, with dev figures.
    """
    task, data, training, metrics = record["task"], record["data"], record["training"], record["metrics"]
    figures, config = metrics.get("dev", {}), training["config"]
    labels = task["labels"]
    shown = ", ".join(f"`{label}`" for label in labels[:MOST_LABELS])
    more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    intervals = metrics.get("intervals_95", {})
    lines = []
    for name in ("accuracy", "macro_f1", "micro_f1", "spearman", "pearson", "loss"):
        if name in figures:
            ends = intervals.get(name)
            lines.append(f"| {name} | {figures[name]:.4f} | {f'{ends[0]:.4f} to {ends[1]:.4f}' if ends else ''} |")
    split = data.get("split")
    origin = f"{split['dev_rows']} rows set aside from the training file" if split else data["dev"]["file"]
    calibration = record.get("calibration", {})
    return f"""---
library_name: transformers
pipeline_tag: text-classification
tags: [robal, text-classification]
---
# Text classifier from {training["model"]}

A {task["problem_type"].replace("_", " ")} model, fine-tuned with robal {record["robal_version"]}.

- Labels, in order: {shown}{more}
- Training data: `{data["train"]["file"]}`, {data["train"]["rows"]} rows, sha256 `{data["train"]["sha256"]}`
- Dev data: {origin}
- Recipe: {training["steps"]} steps of {config["batch_size"]} rows, learning rate {config["learning_rate"]:.2g}, seed
  {record["seed"]}, at most {config["max_length"]} tokens; kept: step {metrics.get("step", training["steps"])}

| figure | dev | 95 % interval |
| --- | --- | --- |
{chr(10).join(lines) or "| none | there were no dev rows | |"}

The best checkpoint was chosen on the dev rows, so that new texts give slightly lower figures. `report.html` shows
where the model fails. Scores are calibrated with temperature {calibration.get("temperature", 1.0):g}; `robal.json`
holds it, and transformers does not apply it.

## Limits

It knows texts like those of its training file. Languages, topics and lengths that are not in there were not measured.
It gives one of its labels to any text, also to one that fits none.

## Use

    robal predict FOLDER --data new.csv --out labelled.csv
    robal export FOLDER --out BUNDLE
    robal serve BUNDLE
"""
