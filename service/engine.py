"""The model behind the service: encoded texts in, logits out. One interface, one real engine.

An engine may block, so the service keeps it off the event loop; it may be called from as many threads at once as it
has instances.

The graph computes real tokens only, whatever the padding of its inputs (``export/graph.py``); what still grows with
padding is the rectangle of attention. So texts of a call are sorted by length and cut into groups, and the memory of a
call is bounded by the size of a group and not by the traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.encoding import EncodedText, padded
from contract.errors import BundleError, EngineFailure, UsageError, listing
from contract.machine import processor
from contract.manifest import Graph, Manifest

if TYPE_CHECKING:
    import onnxruntime as ort

Logits: TypeAlias = npt.NDArray[np.float32]

GROUP_TOKENS = 1024
"""Most real tokens of one run of the graph, one longer text aside. From a few hundred on, more make nothing faster."""
MAX_PADDING_SHARE = 0.5
"""Most of a group's rectangle that may be padding: only attention works on it, a small part of the arithmetic."""
MAX_PROBE_DIFFERENCE = 0.5
"""As the limit of 8-bit logits at the export: a graph that saturates is beyond 1, rounding is far below."""
SMALLEST_SPREAD = 1e-3
"""Of logits, for models that give all texts the same."""


PROVIDERS = {"cpu": "CPUExecutionProvider", "openvino": "OpenVINOExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""What can compute a graph, by our name for it: onnxruntime's names. All but the first come with other wheels of it."""


class Engine(Protocol):
    """Computes logits."""

    instances: int
    """How many calls may run at once."""

    def run(self, texts: Sequence[EncodedText]) -> Logits:
        """Logits (texts, labels) float32, in the order of the texts, each as if it were alone."""

    def close(self) -> None:
        """Give the memory back; ``run`` fails from now on."""


def groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of the texts that run together, longest first; every text is in one group.

    Args:
        lengths: tokens of each text.
    """
    group: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        tokens += lengths[index]
        cells = (len(group) + 1) * lengths[group[0]] if group else 0
        if group and (tokens > GROUP_TOKENS or cells - tokens > MAX_PADDING_SHARE * cells):
            yield group
            group, tokens = [], lengths[index]
        group.append(index)
    if group:
        yield group


def attention_cells(lengths: Sequence[int]) -> int:
    """Cells of the rectangles that ``groups`` makes of texts; those beyond the real tokens are padding."""
    return sum(len(group) * lengths[group[0]] for group in groups(lengths))


def check_probe(engine: Engine, graph: Graph, path: Path) -> None:
    """Compute what the exporting machine computed, and compare: 8-bit arithmetic is not the same on every processor.

    Args:
        engine: the loaded graph.
        graph: its entry in the manifest; a bundle of an older robal has no probe and passes.
        path: of the bundle, for the message.

    Raises:
        BundleError: the logits differ by more than half of what the probe's texts differ by.
    """
    probe = graph.checks.get("probe")
    if probe is None:
        return
    ids = np.array(probe["input_ids"])
    types = np.array(probe.get("token_type_ids", np.zeros_like(ids)))
    expected = np.array(probe["logits"], np.float32)
    found = engine.run([EncodedText(row, kinds, len(row)) for row, kinds in zip(ids, types, strict=True)])
    spread = float(np.sqrt(np.mean((expected - expected.mean(axis=0)) ** 2)))
    difference = float(np.sqrt(np.mean((found - expected) ** 2)))
    if not difference <= MAX_PROBE_DIFFERENCE * max(spread, SMALLEST_SPREAD):  # written so that NaN fails
        raise BundleError(
            f"{path}: the {graph.precision} graph gives other logits here than where it was exported (they differ by "
            f"{difference:.3g}, texts by {spread:.3g}; this is {processor()}, that was {probe.get('processor')}); "
            "export it on this machine, or serve another --precision."
        )


def _integers(path: Path, tensor: Any) -> type[np.int64 | np.int32]:
    """The type that an input of a graph wants."""
    kinds: dict[str, type[np.int64 | np.int32]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    if tensor.type not in kinds:
        raise BundleError(f"{path} wants {tensor.name!r} as {tensor.type}; token ids are int64 or int32.")
    return kinds[tensor.type]


def session_options(threads: int) -> ort.SessionOptions:
    """What onnxruntime is told, and why (``benchmarks/engine_settings.py`` measures the alternatives).

    - Threads are counted explicitly: the default is one per core of the host, whatever a container may use.
      They do not spin while they wait, because tokenisation, HTTP and other instances run on the same cores.
    - Memory patterns are off: one is kept for every shape ever seen, and each batch of texts is another shape.
    - The memory arena is off: it would keep the memory of the largest call for ever, once per instance.
    - Weights are packed for the processor at load time ("prepacking"), which is the default and stays on.
    """
    import onnxruntime as ort  # here, because the supervising process imports this module and never computes

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # only what ends the process: its errors reach the caller as exceptions
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def available_providers() -> list[str]:
    """Our names of the providers in the installed onnxruntime."""
    import onnxruntime as ort  # see session_options

    have = ort.get_available_providers()
    return [name for name, theirs in PROVIDERS.items() if theirs in have]


def check_provider(provider: str) -> None:
    """Raise UsageError if the installed onnxruntime does not have it."""
    if provider not in (have := available_providers()):
        wheel = {"openvino": "onnxruntime-openvino", "cuda": "onnxruntime-gpu"}.get(provider)
        remedy = f"put the package {wheel} in the place of onnxruntime, or " if wheel else ""
        raise UsageError(f"--provider {provider}: this onnxruntime has {listing(have)}; {remedy}give one of these.")


class OnnxEngine:
    """One onnxruntime session, shared by all instances, so that the weights are in memory once.

    Args:
        folder: the bundle.
        manifest: its manifest.
        precision: which of its graphs.
        threads: threads of one call, at least 1.
        instances: calls that may run at once, at least 1.
        provider: one of ``PROVIDERS``; operators that it does not know are computed by the CPU's.

    Raises:
        BundleError: no such precision, a file that onnxruntime cannot load, or tensors that are not the manifest's.
        UsageError: the installed onnxruntime lacks the provider, or it does not start on this machine.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        precision: str,
        threads: int,
        instances: int = 1,
        provider: str = "cpu",
    ) -> None:
        import onnxruntime as ort  # see session_options

        check_provider(provider)
        path = folder / manifest.graph(precision).file
        names = list(dict.fromkeys((PROVIDERS[provider], PROVIDERS["cpu"])))
        try:
            session = ort.InferenceSession(str(path), session_options(threads), providers=names)
        except Exception as error:  # onnxruntime's exceptions have no common public base
            raise BundleError(f"{path} cannot be loaded by onnxruntime {ort.__version__} ({error}).") from error
        if names[0] not in session.get_providers():  # it only warns, and goes on with what it has
            raise UsageError(f"--provider {provider} does not start on this machine; check its driver and libraries.")
        inputs = {tensor.name: tensor for tensor in session.get_inputs()}
        outputs = [tensor.name for tensor in session.get_outputs()]
        if known := inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"}:
            raise BundleError(f"{path} wants the inputs {listing(known)}, which no text encoding gives.")
        if "logits" not in outputs:
            raise BundleError(f"{path} has the outputs {listing(outputs)}; 'logits' was expected.")
        self._inputs = {name: _integers(path, tensor) for name, tensor in inputs.items()}
        self.instances = instances
        self._labels = len(manifest.labels)
        self._pad_token_id = manifest.pad_token_id
        self._session: ort.InferenceSession | None = session

    def run(self, texts: Sequence[EncodedText]) -> Logits:
        """See ``Engine.run``."""
        session = self._session
        if session is None:
            raise EngineFailure("the engine is closed.")
        answers = np.empty((len(texts), self._labels), np.float32)
        for group in groups([len(text.input_ids) for text in texts]):
            batch = padded([texts[index] for index in group], self._pad_token_id)
            (logits,) = session.run(
                ["logits"], {name: batch[name].astype(kind, copy=False) for name, kind in self._inputs.items()}
            )
            expected = (len(group), self._labels)
            if logits.shape != expected:
                raise EngineFailure(f"the graph gave logits {logits.shape}; {expected} was expected.")
            answers[group] = logits
        return answers

    def close(self) -> None:
        """Drop the session, when the calls in progress have ended."""
        self._session = None
