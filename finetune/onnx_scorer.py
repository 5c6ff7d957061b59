"""A bundle as a scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from contract.encoding import EncodedText, TextEncoder
from contract.errors import BundleError
from contract.manifest import Manifest, load_manifest, load_text_encoder
from contract.scores import Array
from finetune.trained_on import training_files
from labelled.labels import recorded_renames


class OnnxScorer:
    """Scores with one graph of a bundle on the CPU.

    Args:
        session: the loaded graph.
        manifest: of the bundle.
        text_encoder: of the bundle.
    """

    def __init__(self, session: onnxruntime.InferenceSession, manifest: Manifest, text_encoder: TextEncoder) -> None:
        self.name = manifest.name
        self.labels = manifest.labels
        self.problem_type = manifest.problem_type
        self.text_encoder = text_encoder
        self.renames: Mapping[str, str] = recorded_renames(manifest.provenance)
        record = manifest.provenance.get("checkpoint") or {}
        self.calibration = manifest.calibration
        self.trained_on: Mapping[str, str] = training_files(record)
        self._session = session
        self._inputs = tuple(spec.name for spec in manifest.inputs)
        self._output = manifest.outputs[0].name

    @classmethod
    def open(cls, folder: Path, precision: str) -> OnnxScorer:
        """Load and verify a bundle. Raises BundleError if it is broken or lacks the precision."""
        manifest = load_manifest(folder)
        graph = manifest.graph(precision)
        try:
            session = onnxruntime.InferenceSession(folder / graph.file, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a different bare class for each way of being broken
            raise BundleError(f"{folder / graph.file} cannot be loaded by onnxruntime ({error}).") from None
        return cls(session, manifest, load_text_encoder(folder, manifest))

    def logits(self, texts: Sequence[EncodedText]) -> Array:
        """See ``Scorer.logits``."""
        batch = self.text_encoder.pad(texts)
        (logits,) = self._session.run([self._output], {name: batch[name] for name in self._inputs})
        return np.asarray(logits, dtype=np.float32)
