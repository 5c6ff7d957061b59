"""What is written beside the weights when a run is complete: calibration, report and model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.errors import CheckpointError
from contract.scores import Calibration
from contract.storage import read_json, write_atomic, write_json
from encoders.precision import Precision
from finetune.events import Progress
from finetune.evidence import gather
from finetune.html_report import render
from finetune.inputs import Inputs
from finetune.model_card import model_card
from finetune.scorer import score_texts
from finetune.torch_scorer import TorchScorer
from labelled.rows import EncodedRows


def describe(
    out: Path, record: dict[str, Any], progress: Progress, inputs: Inputs, dev: EncodedRows, precision: Precision
) -> None:
    """Measure the kept checkpoint on its dev rows, and complete its folder.

    Args:
        out: the checkpoint folder; ``robal.json`` is completed, ``report.html`` (if there are dev rows) and
            ``README.md`` are written.
        record: of the run, now that it is complete.
        progress: of the run that was kept.
        inputs: the data.
        dev: its dev rows, encoded.
        precision: in which dev rows were scored in training.
    """
    whole = read_json(out / "robal.json", CheckpointError)
    record = whole | record | {"created": whole["created"], "calibration": Calibration().as_record()}
    if dev.texts:
        scorer = TorchScorer.open(out, precision)
        logits = score_texts(scorer, dev.texts)
        evidence = gather(logits, dev.targets, inputs.dev, dev.lengths, scorer.labels, scorer.problem_type)
        record["calibration"] = evidence.calibration.as_record()
        record["metrics"] |= evidence.as_record()
        write_atomic(out / "report.html", render(record, evidence, progress))
    write_atomic(out / "README.md", model_card(record))
    write_json(out / "robal.json", record)
