"""The gates: an exported graph is compared with what it was made from, and a difference stops the export.

In the order in which a failure would explain the next one:

1. storage: the ONNX checker passes, every unique weight is stored once, the files are hardly larger than the weights;
2. operators: as many of each kind as the layers ask for; in 8 bits, every weight product is an 8-bit product, and no
   pair of weights can saturate one;
3. interface: input and output names, types and axes are the declared ones, axes with the declared names are dynamic;
4. values: logits equal the reference's on a grid of batch sizes, lengths and padding patterns;
5. independence: a text's logits are the same alone as beside other texts.

Each returns its figures for the manifest and raises ``GateFailed`` with the figure that failed. Nothing here shares
code with the emitter or with the service: onnx and onnxruntime read the files as anyone else's program would. Nor does
anything here need torch, so that ``robal verify`` runs where the service does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from contract.errors import GateFailed, listing
from contract.machine import processor
from contract.manifest import TensorSpec
from export.quantize import INT16_MAX, SCALES, largest_pair_product

Inputs = Mapping[str, npt.NDArray[np.int64]]
Logits = npt.NDArray[np.float32]

MAX_LOGIT_DIFFERENCE = 1e-4
LARGE_LOGIT = 10.0
"""Float32 has seven digits: where a logit exceeds this, the limit grows in proportion (regression on large numbers)."""
MAX_RELATIVE_DIFFERENCE = 0.5
"""Of 8-bit logits: root mean square of the difference, over that of how much texts differ. A broken graph has about
1.4; how much is too much for a task is for the accuracy gate to say."""
MAX_BATCH_DIFFERENCE = {"fp32": 1e-5, "int8": 1e-4}
"""Between a text alone and the same text beside others; float32 sums in another order, 8-bit rounding may follow."""
MAX_SIZE_RATIO = {"fp32": 1.05, "int8": 0.28}
"""Of the files to four bytes for each unique parameter."""
GRAPH_ALLOWANCE_BYTES = 128 * 1024
"""Room for the list of nodes, which grows with the layers and not with the weights; matters for tiny models only."""
MAX_VERSIONS = {"IR version": 10, "opset": 22}
"""What the oldest onnxruntime that robal runs on (1.22) is sure to read."""
PROBE_SHAPE = (4, 12)
"""Texts and tokens that a service computes when it starts, to see that its processor gives the same logits."""
BATCHES = (1, 3, 8)
LENGTHS = (1, 2, 5, 17)
"""Tested lengths beside the model's longest."""


def check_storage(
    folder: Path, graph_file: str, weight_files: Sequence[str], unique_parameters: int, *, precision: str = "fp32"
) -> dict[str, Any]:
    """Every unique weight once, nothing else of size, valid ONNX.

    Args:
        folder: where the files are.
        graph_file: name of the ONNX file.
        weight_files: names of its external weight files.
        unique_parameters: parameters of the model that the graph was made from, each counted once.
        precision: decides how large the files may be.
    """
    try:
        onnx.checker.check_model(str(folder / graph_file), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GateFailed(f"the ONNX checker refuses the exported graph: {_one_line(error)}.") from None
    proto = onnx.load(folder / graph_file, load_external_data=False)
    graph = proto.graph
    opset = max(entry.version for entry in proto.opset_import)
    for kind, found in (("IR version", proto.ir_version), ("opset", opset)):
        if found > MAX_VERSIONS[kind]:
            raise GateFailed(
                f"the graph has {kind} {found} and onnxruntime 1.22 reads up to {MAX_VERSIONS[kind]}: it would not "
                "load on every machine that robal serves on."
            )
    stored = [tensor for tensor in graph.initializer if tensor.external_data and not tensor.name.endswith(SCALES)]
    parameters = sum(int(np.prod(tensor.dims)) for tensor in stored)
    if parameters != unique_parameters:
        raise GateFailed(
            f"the graph stores {parameters:,} parameters and the model has {unique_parameters:,} unique ones: "
            "a shared weight was copied, or one is missing."
        )
    # Behind one of these, quantizers and optimizers no longer recognise a shared weight and copy it.
    names = {tensor.name for tensor in stored}
    hidden = {name for node in graph.node if node.op_type in ("Identity", "Transpose") for name in node.input} & names
    if hidden:
        raise GateFailed(f"weights reach their uses through Identity or Transpose: {listing(hidden)}.")
    size = sum((folder / name).stat().st_size for name in (graph_file, *weight_files))
    kept = sum(4 * int(np.prod(t.dims)) for t in stored if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1)
    limit = int(MAX_SIZE_RATIO[precision] * 4 * unique_parameters) + GRAPH_ALLOWANCE_BYTES
    if precision != "fp32":
        limit += kept  # layers that stay in float32 on purpose; the next gate wants them named
    if size > limit:
        raise GateFailed(
            f"the graph and its weights take {size:,} bytes; {4 * unique_parameters:,} bytes of unique parameters "
            f"allow {limit:,}."
        )
    return {
        "ir_version": proto.ir_version,
        "stored_weights": len(stored),
        "stored_parameters": parameters,
        "size_over_unique_parameters": round(size / (4 * unique_parameters), 4),
    }


def check_operators(
    folder: Path, graph_file: str, *, blocks: int, precision: str, kept: Sequence[str] = ()
) -> dict[str, Any]:
    """As many operators of each kind as the layers ask for, and weight products in the arithmetic that was asked for.

    Args:
        folder: where the files are.
        graph_file: name of the ONNX file.
        blocks: layers that are executed.
        precision: ``fp32`` or ``int8``.
        kept: linear layers that stay in float32 on purpose.
    """
    proto = onnx.load(folder / graph_file, load_external_data=False)
    counts = Counter(node.op_type for node in proto.graph.node)
    found = {
        "LayerNormalization": counts["LayerNormalization"],
        "activation": counts["Gelu"] + counts["Relu"],
        "Softmax": counts["Softmax"],
    }
    wanted = {"LayerNormalization": 2 * blocks + 1, "activation": blocks, "Softmax": blocks}
    for kind, number in wanted.items():
        if found[kind] != number:
            raise GateFailed(f"the graph has {found[kind]} {kind} operators and {blocks} blocks ask for {number}.")
    stored = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.external_data}
    products = [node for node in proto.graph.node if node.op_type in ("MatMul", "MatMulInteger")]
    weights = [node.input[1] for node in products if node.input[1] in stored]
    figures: dict[str, Any] = {"operators": len(proto.graph.node), "weight_products": len(weights)}
    if precision == "fp32":
        return figures
    eight_bit = [name for name in weights if stored[name].data_type == onnx.TensorProto.INT8]
    extra = {name.removesuffix(".weight") for name in weights if name not in eight_bit} - set(kept)
    if extra:
        raise GateFailed(f"{len(extra)} linear layers are not in 8 bits: {listing(extra)}.")
    worst = 0
    for name in set(eight_bit):
        values = onnx.numpy_helper.to_array(stored[name], str(folder))
        worst = max(worst, largest_pair_product(values))
        if worst > INT16_MAX:
            raise GateFailed(
                f"two products of {name} can add up to {worst:,}; processors without VNNI hold up to {INT16_MAX:,}."
            )
    return figures | {
        "coverage": len(eight_bit) / len(weights),
        "kept_in_fp32": sorted(kept),
        "largest_pair_product": worst,
    }


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """The graph in onnxruntime, on the CPU, with the fusions that it applies by itself."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch computes in between
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no public base class
        raise GateFailed(f"onnxruntime cannot load the exported graph: {_one_line(error)}.") from None


def check_interface(
    session: onnxruntime.InferenceSession, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    """Names, types and axes are exactly the declared ones, none missing and none more."""
    for kind, declared, found in (("input", inputs, session.get_inputs()), ("output", outputs, session.get_outputs())):
        want = {spec.name: (f"tensor({spec.dtype.replace('float32', 'float')})", spec.axes) for spec in declared}
        have = {tensor.name: (tensor.type, tuple(tensor.shape)) for tensor in found}
        if want.keys() != have.keys():
            raise GateFailed(f"the graph's {kind}s are {listing(have)}; declared are {listing(want)}.")
        for name, expected in want.items():
            if have[name] != expected:
                raise GateFailed(f"the graph's {kind} {name!r} is {have[name]}; declared is {expected}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """The shapes and padding patterns on which logits are compared."""

    vocab_size: int
    pad_token_id: int
    type_vocab_size: int
    max_length: int
    inputs: tuple[str, ...]
    seed: int = 0

    @property
    def shapes(self) -> list[tuple[int, int, str]]:
        """(batch, seq, pattern) of each case. The longest length has one pattern: it is most of the time."""
        shapes = []
        for seq in (*(length for length in LENGTHS if length < self.max_length), self.max_length):
            patterns = ("full", "ragged", "left", "scattered") if 1 < seq < self.max_length else ("ragged",)
            shapes += [(batch, seq, pattern) for batch in BATCHES for pattern in patterns]
        return shapes

    def __iter__(self) -> Iterator[tuple[str, Inputs]]:
        """(what it is, inputs) of each case; the same at each iteration."""
        generator = np.random.default_rng(self.seed)
        for batch, seq, pattern in self.shapes:
            yield f"batch {batch}, length {seq}, {pattern}", self.case(generator, batch, seq, pattern)

    def case(self, generator: np.random.Generator, batch: int, seq: int, pattern: str) -> Inputs:
        """Random inputs of one shape and padding pattern."""
        ids = generator.choice(np.delete(np.arange(self.vocab_size), self.pad_token_id), (batch, seq))
        mask = np.ones_like(ids)
        if pattern == "ragged":  # from a full row down to a single token
            mask = (np.arange(seq) < np.linspace(seq, 1, batch).astype(np.int64)[:, None]).astype(np.int64)
            ids[mask == 0] = self.pad_token_id
        elif pattern == "left":
            mask[:, : seq // 2] = 0
            ids[mask == 0] = self.pad_token_id
        elif pattern == "scattered":  # padding anywhere, half of it over real ids
            mask[:, :-1] = generator.integers(0, 2, (batch, seq - 1))
            ids[(mask == 0) & (generator.random(ids.shape) < 0.5)] = self.pad_token_id
        case = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": generator.integers(0, self.type_vocab_size, (batch, seq)),
        }
        return {name: case[name] for name in self.inputs}


def check_values(
    session: onnxruntime.InferenceSession,
    reference: Callable[[Inputs], Logits],
    grid: Grid,
    advance: Callable[[int], None] = lambda done: None,
    *,
    precision: str = "fp32",
) -> dict[str, Any]:
    """Logits equal the reference's in every case of the grid; 8-bit ones are close on the whole.

    Args:
        session: the exported graph.
        reference: the model it was made from: inputs -> logits (batch, labels).
        grid: the cases.
        advance: called after each case with the number of cases done.
        precision: ``fp32`` or ``int8``.
    """
    worst = largest = 0.0
    pairs = []
    for done, (name, inputs) in enumerate(grid, 1):
        expected = reference(inputs)
        if not np.isfinite(expected).all():
            raise GateFailed(
                f"at {name} the model itself gives logits that are no finite numbers: its training diverged, or its "
                "weights are damaged; train it again."
            )
        found = _run(session, inputs, name)
        if found.shape != expected.shape:
            raise GateFailed(f"at {name} the graph gives logits {found.shape} and the model {expected.shape}.")
        difference = float(np.abs(found - expected).max())
        scale = float(np.abs(expected).max())
        limit = MAX_LOGIT_DIFFERENCE * max(1.0, scale / LARGE_LOGIT)
        if not difference <= (limit if precision == "fp32" else np.inf):  # written so that NaN fails
            raise GateFailed(
                f"at {name} the graph's logits differ from the model's by {difference:.3g}; the limit is {limit:.3g}."
            )
        worst, largest = max(worst, difference), max(largest, scale)
        pairs.append((found, expected))
        advance(done)
    figures = {
        "max_abs_logit_difference": worst,
        "max_abs_logit": largest,
        "cases": len(grid.shapes),
        "batch_sizes": sorted({batch for batch, _, _ in grid.shapes}),
        "lengths": sorted({seq for _, seq, _ in grid.shapes}),
        "onnxruntime": onnxruntime.__version__,
    }
    if precision == "fp32":
        return figures | {"logit_difference_limit": MAX_LOGIT_DIFFERENCE}
    relative = relative_difference(*(np.concatenate(column) for column in zip(*pairs, strict=True)))
    if not relative <= MAX_RELATIVE_DIFFERENCE:
        raise GateFailed(
            f"the 8-bit logits differ from the model's by {relative:.2f} of what texts differ by; the limit is "
            f"{MAX_RELATIVE_DIFFERENCE}."
        )
    return figures | {"relative_logit_difference": round(relative, 4)}


def relative_difference(found: Logits, expected: Logits) -> float:
    """Root mean square of the difference of (texts, labels) logits over that of how much texts differ."""
    spread = float(np.sqrt(np.mean((expected - expected.mean(axis=0)) ** 2)))
    return float(np.sqrt(np.mean((found - expected) ** 2))) / max(spread, 1e-12)


def check_independence(session: onnxruntime.InferenceSession, grid: Grid, *, precision: str) -> dict[str, Any]:
    """A text's logits are the same alone, without padding, as beside longer and shorter texts."""
    worst = 0.0
    for name, inputs in grid:
        if not name.endswith("ragged") or f"length {grid.max_length}," in name:
            continue
        together = _run(session, inputs, name)
        for row, length in enumerate(inputs["attention_mask"].sum(axis=1)):
            alone = _run(session, {key: array[row : row + 1, :length] for key, array in inputs.items()}, name)
            scale = max(1.0, float(np.abs(alone).max()) / LARGE_LOGIT)
            worst = float(np.maximum(worst, np.abs(alone - together[row]).max() / scale))  # NaN stays NaN, and fails
    limit = MAX_BATCH_DIFFERENCE[precision]
    if not worst <= limit:
        raise GateFailed(
            f"a text's logits depend on the texts beside it: they change by {worst:.3g}; the limit is {limit:.3g}."
        )
    return {"max_batch_difference": worst}


def probe(session: onnxruntime.InferenceSession, grid: Grid) -> dict[str, Any]:
    """Texts with their logits on this processor, for ``probe`` in the manifest: another processor can compare.

    Returns:
        ``input_ids`` and ``token_type_ids`` (texts, seq), the ``logits`` (texts, labels), and the ``processor``.
    """
    texts, seq = PROBE_SHAPE
    generator = np.random.default_rng(grid.seed)
    case = dict(grid.case(generator, texts, min(seq, grid.max_length), "full"))
    logits = _run(session, case, "the probe")
    shown: dict[str, Any] = {name: case[name].tolist() for name in ("input_ids", "token_type_ids") if name in case}
    return {**shown, "logits": logits.tolist(), "processor": processor()}


def _run(session: onnxruntime.InferenceSession, inputs: Inputs, name: str) -> Logits:
    try:
        (logits,) = session.run(None, dict(inputs))
    except Exception as error:  # onnxruntime's exceptions share no public base class
        raise GateFailed(f"at {name} onnxruntime cannot run the exported graph: {_one_line(error)}.") from None
    return np.asarray(logits)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
