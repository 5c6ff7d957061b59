"""A checkpoint, or a model in training, as a scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from contract.encoding import EncodedText, TextEncoder
from contract.errors import CheckpointError
from contract.scores import Array, Calibration
from encoders.checkpoint import load_classifier, open_checkpoint
from encoders.heads import SequenceClassifier
from encoders.precision import Precision, autocast, training_device
from finetune.packed import pack
from finetune.trained_on import training_files
from labelled.labels import recorded_renames


class TorchScorer:
    """Scores with a PyTorch module where its weights are.

    Args:
        model: is put into evaluation mode at each call.
        text_encoder: of the model.
        name: for messages.
        renames: see ``Scorer``.
        calibration: see ``Scorer``.
        trained_on: see ``Scorer``.
        precision: arithmetic of the forward pass.
    """

    def __init__(
        self,
        model: SequenceClassifier,
        text_encoder: TextEncoder,
        *,
        name: str,
        renames: Mapping[str, str] | None = None,
        calibration: Calibration | None = None,
        trained_on: Mapping[str, str] | None = None,
        precision: Precision = "fp32",
    ) -> None:
        self.name = name
        self.labels = model.config.labels
        self.problem_type = model.config.problem_type
        self.text_encoder = text_encoder
        self.renames: Mapping[str, str] = renames or {}
        self.calibration = calibration or Calibration()
        self.trained_on: Mapping[str, str] = trained_on or {}
        self._model = model
        self._precision = precision

    @classmethod
    def open(cls, folder: Path, precision: Precision = "fp32") -> TorchScorer:
        """Load a checkpoint. Raises CheckpointError if it is not a complete classifier with a tokenizer."""
        checkpoint = open_checkpoint(folder)
        if checkpoint.text_encoder is None:
            raise CheckpointError(f"{folder} has no tokenizer files; copy those of the model into it.")
        model = load_classifier(checkpoint).model.to(training_device())
        renames = recorded_renames(checkpoint.record)
        return cls(
            model,
            checkpoint.text_encoder,
            name=folder.absolute().name,
            renames=renames,
            calibration=Calibration.from_record(checkpoint.record),
            trained_on=training_files(checkpoint.record),
            precision=precision,
        )

    @torch.inference_mode()
    def logits(self, texts: Sequence[EncodedText]) -> Array:
        """See ``Scorer.logits``. Only real tokens are computed."""
        self._model.eval()
        device = self._model.classifier.weight.device
        with autocast(device, self._precision):
            logits = self._model(**pack(texts, device))
        return np.asarray(logits.float().cpu().numpy())
