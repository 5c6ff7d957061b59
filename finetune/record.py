"""What a run writes down: ``robal.json`` and the lines of the metric log."""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from tokenizers import Tokenizer

from encoders.precision import Precision
from finetune.config import TrainingConfig
from finetune.events import Evaluation, Progress
from finetune.start import Start
from labelled.reader import DataOptions


def look_of(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation in one line: the figures that are single numbers."""
    figures = {name: value for name, value in evaluation.figures.items() if isinstance(value, int | float)}
    return {
        "step": evaluation.step,
        "epoch": evaluation.epoch,
        "kept": evaluation.kept,
        "train_loss": evaluation.train_loss,
        "dev": figures,
    }


def run_record(
    start: Start,
    config: TrainingConfig,
    options: DataOptions,
    progress: Progress,
    device: torch.device,
    precision: Precision,
) -> dict[str, Any]:
    """``robal.json`` without its format: what made the checkpoint."""
    inputs, best = start.inputs, progress.best
    data: dict[str, Any] = {"train": inputs.train_file.fingerprint()}
    if inputs.dev_file is not None:
        data["dev"] = inputs.dev_file.fingerprint()
    else:
        data["split"] = {"from": "train", "train_rows": len(inputs.train), "dev_rows": len(inputs.dev)}
    data["options"] = {"encoding": options.encoding, "header": options.header, "quoted": options.quoted}
    return {
        "robal_version": version("robal"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["robal", *sys.argv[1:]]),
        "task": {
            "problem_type": config.problem_type,
            "labels": list(inputs.labels.names),
            "label_names": dict(inputs.labels.renames),
            "pairs": len(inputs.train_file.columns) == 3,
        },
        "data": data,
        "seed": config.seed,
        "training": {
            "model": start.source,
            "from_scratch": start.from_scratch,
            "config": config.as_record(),
            "device": device.type,
            "precision": precision,
            "threads": torch.get_num_threads(),
            "steps": progress.steps,
            "epochs": progress.epochs,
            "stopped_early": progress.stopped_early,
            "train_seconds": round(progress.train_seconds, 3),
            "tokens": progress.tokens,
            "evaluations": [look_of(evaluation) for evaluation in progress.evaluations],
            "versions": {name: version(name) for name in ("torch", "tokenizers", "numpy", "scikit-learn")}
            | {"python": platform.python_version()},
        },
        "metrics": {"dev": best.figures, "step": best.step, "chosen_by": config.metric} if best else {},
    }


def run_identity(start: Start, config: TrainingConfig, tokenizer: Tokenizer) -> dict[str, object]:
    """What must be equal for a run to go on where another one stopped; ``save_minutes`` is free."""
    inputs = start.inputs
    return {
        **{
            f"--{name.replace('_', '-')}": value for name, value in config.as_record().items() if name != "save_minutes"
        },
        "--model": start.source,
        "training file": inputs.train_file.fingerprint()["sha256"],
        "dev file": inputs.dev_file.fingerprint()["sha256"] if inputs.dev_file else None,
        "number of training rows": len(inputs.train),
        "set of classes": list(inputs.labels.names),
        "tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
    }
