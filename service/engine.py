"""The model behind the service: arrays in, logits out. One interface, one real engine.

An engine is called from one thread at a time and may block; the service keeps it off the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from contract.encoding import Ids
from contract.errors import BundleError, EngineFailure, listing
from contract.manifest import Manifest
from service.scheduler import Logits

if TYPE_CHECKING:
    import onnxruntime as ort


class Engine(Protocol):
    """Computes logits."""

    def run(self, batch: Mapping[str, Ids]) -> Logits:
        """Logits of a padded batch.

        Args:
            batch: ``input_ids``, ``attention_mask`` (1 = real token) and ``token_type_ids``, each (batch, seq) int64.

        Returns:
            (batch, labels) float32.
        """

    def close(self) -> None:
        """Give the memory back; ``run`` fails from now on."""


class OnnxEngine:
    """One onnxruntime session on the CPU.

    What is set, and what it costs:

    - Threads are counted explicitly: the default is one per core of the host, whatever a container may use.
      They do not spin while they wait, because tokenisation and HTTP run on the same cores.
    - Memory patterns are off: one is kept for every shape ever seen, and each batch of texts is another shape.
    - The memory arena stays on. It keeps the memory of the largest batch it has seen, and the scheduler's budget of
      positions bounds that; without it each call would cost about a twentieth more processor time.

    Args:
        folder: the bundle.
        manifest: its manifest.
        precision: which of its graphs.
        threads: threads of one call, at least 1.

    Raises:
        BundleError: no such precision, a file that onnxruntime cannot load, or tensors that are not the manifest's.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, precision: str, threads: int) -> None:
        import onnxruntime as ort  # here, because the supervising process imports this module and never computes

        path = folder / manifest.graph(precision).file
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_cpu_mem_arena = True
        options.enable_mem_pattern = False
        options.log_severity_level = 4  # only what ends the process: its errors reach the caller as exceptions
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions have no common public base
            raise BundleError(f"{path} cannot be loaded by onnxruntime {ort.__version__} ({error}).") from error
        self._inputs = [tensor.name for tensor in session.get_inputs()]
        outputs = [tensor.name for tensor in session.get_outputs()]
        if known := set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids"}:
            raise BundleError(f"{path} wants the inputs {listing(known)}, which no text encoding gives.")
        if "logits" not in outputs:
            raise BundleError(f"{path} has the outputs {listing(outputs)}; 'logits' was expected.")
        self._labels = len(manifest.labels)
        self._session: ort.InferenceSession | None = session

    def run(self, batch: Mapping[str, Ids]) -> Logits:
        """Logits (batch, labels); see ``Engine``."""
        if self._session is None:
            raise EngineFailure("the engine is closed.")
        (logits,) = self._session.run(["logits"], {name: batch[name] for name in self._inputs})
        expected = (len(batch["input_ids"]), self._labels)
        if logits.shape != expected:
            raise EngineFailure(f"the graph gave logits {logits.shape}; {expected} was expected.")
        return np.asarray(logits, dtype=np.float32)

    def close(self) -> None:
        """Drop the session."""
        self._session = None
