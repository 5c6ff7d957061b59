"""The bundle's manifest: what is in the folder, what it expects, what was checked. See docs/bundle-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from contract.encoding import TextEncoder
from contract.errors import BundleError, listing
from contract.scores import PROBLEM_TYPES, ProblemType
from contract.storage import read_json, recover_folder, sha256_file, write_json

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One input or output of a graph; axes are the names of dynamic dimensions or fixed sizes."""

    name: str
    dtype: str
    axes: tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """One ONNX graph of the bundle; a bundle may hold several precisions of the same model."""

    precision: str
    """``fp32``, ``int8``, ..."""
    file: str
    """The ONNX file's name inside the bundle."""
    weights: tuple[str, ...]
    """Names of the external weight files that the graph reads."""
    opset: int
    size_bytes: int
    """Bytes of the graph and its weight files together."""
    checks: Mapping[str, Any] = field(default_factory=dict)
    """Figures of the gates that the graph passed, such as ``max_abs_logit_difference``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Everything a consumer must know before it opens a graph."""

    format_version: int = FORMAT_VERSION
    robal_version: str
    name: str
    """Name of the model, as the service reports it."""
    family: str
    """``bert``, ``roberta`` or ``albert``."""
    problem_type: ProblemType
    labels: tuple[str, ...]
    """Label names; logit i belongs to label i."""
    max_length: int
    """Most tokens of a text, special tokens included."""
    pad_token_id: int
    type_vocab_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    graphs: tuple[Graph, ...]
    parameters: int
    """Parameters counted once for each time a layer uses them."""
    unique_parameters: int
    """Parameters that are stored."""
    files: Mapping[str, str]
    """sha256 of each file of the bundle except the manifest."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Accuracy figures and the data they were measured on."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What made the checkpoint and the bundle."""

    def graph(self, precision: str) -> Graph:
        """The graph of one precision. Raises BundleError with the precisions that exist."""
        for graph in self.graphs:
            if graph.precision == precision:
                return graph
        have = listing(graph.precision for graph in self.graphs)
        raise BundleError(f"the bundle {self.name!r} has no {precision} graph; it has {have}.")


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into a bundle folder in one step."""
    write_json(folder / MANIFEST_NAME, asdict(manifest))


def load_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Read a bundle's manifest and check the folder against it.

    Args:
        folder: the bundle.
        verify: also compare the sha256 of every file.

    Raises:
        BundleError: the folder is missing or not a bundle, its format is newer than this program knows, a field is
            missing or of the wrong type, or a file is missing, surplus to its hash, or edited.
    """
    recover_folder(folder)
    if not folder.is_dir():
        raise BundleError(f"{folder} is not a folder; give a bundle made by `robal export`.")
    if not (folder / MANIFEST_NAME).is_file():
        hint = " It looks like a checkpoint: run `robal export` on it." if (folder / "config.json").exists() else ""
        raise BundleError(f"{folder} has no {MANIFEST_NAME}, so it is not a robal bundle.{hint}")
    raw = read_json(folder / MANIFEST_NAME, BundleError)
    version = raw.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise BundleError(f"{folder / MANIFEST_NAME} has no integer format_version, so it is not a robal bundle.")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{folder} has bundle format {version} and this robal reads up to {FORMAT_VERSION}; upgrade robal."
        )
    if version < 1:
        raise BundleError(f"{folder} has bundle format {version}, which never existed; export the checkpoint again.")
    manifest = _parse(raw, folder / MANIFEST_NAME)
    for name, digest in manifest.files.items():
        path = folder / name
        if Path(name).name != name:
            raise BundleError(f"{folder / MANIFEST_NAME} lists {name!r}, which is not a plain file name.")
        if not path.is_file():
            raise BundleError(f"{folder} lacks the file {name!r} that its manifest lists; copy or export it again.")
        if verify and sha256_file(path) != digest:
            raise BundleError(
                f"{path} was changed after the export (its sha256 is not the manifest's); export the checkpoint again."
            )
    return manifest


def load_text_encoder(folder: Path, manifest: Manifest) -> TextEncoder:
    """The bundle's text encoding, ready for use."""
    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_NAME))
    except Exception as error:  # tokenizers raises bare Exception for every kind of broken file
        raise BundleError(f"{folder / TOKENIZER_NAME} cannot be read as a tokenizer ({error}).") from None
    return TextEncoder(
        tokenizer,
        max_length=manifest.max_length,
        pad_token_id=manifest.pad_token_id,
        type_vocab_size=manifest.type_vocab_size,
    )


def _parse(raw: dict[str, Any], path: Path) -> Manifest:
    """Build the dataclasses; every problem of the file is reported with its field."""

    def take(where: Mapping[str, Any], key: str, kind: type | tuple[type, ...], at: str = "") -> Any:
        value = where.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in _kinds(kind)):
            expected = " or ".join(k.__name__ for k in _kinds(kind))
            raise BundleError(f"{path}: {at}{key} is {value!r}; expected {expected}. Export the checkpoint again.")
        return value

    def tensors(key: str) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(
                name=take(item, "name", str, f"{key}[{i}]."),
                dtype=take(item, "dtype", str, f"{key}[{i}]."),
                axes=tuple(take(item, "axes", list, f"{key}[{i}].")),
            )
            for i, item in enumerate(take(raw, key, list))
        )

    graphs = tuple(
        Graph(
            precision=take(item, "precision", str, f"graphs[{i}]."),
            file=take(item, "file", str, f"graphs[{i}]."),
            weights=tuple(take(item, "weights", list, f"graphs[{i}].")),
            opset=take(item, "opset", int, f"graphs[{i}]."),
            size_bytes=take(item, "size_bytes", int, f"graphs[{i}]."),
            checks=take(item, "checks", dict, f"graphs[{i}]."),
        )
        for i, item in enumerate(take(raw, "graphs", list))
    )
    problem_type = take(raw, "problem_type", str)
    if problem_type not in PROBLEM_TYPES:
        raise BundleError(f"{path}: problem_type is {problem_type!r}; expected one of {listing(PROBLEM_TYPES)}.")
    manifest = Manifest(
        format_version=raw["format_version"],
        robal_version=take(raw, "robal_version", str),
        name=take(raw, "name", str),
        family=take(raw, "family", str),
        problem_type=problem_type,
        labels=tuple(take(raw, "labels", list)),
        max_length=take(raw, "max_length", int),
        pad_token_id=take(raw, "pad_token_id", int),
        type_vocab_size=take(raw, "type_vocab_size", int),
        inputs=tensors("inputs"),
        outputs=tensors("outputs"),
        graphs=graphs,
        parameters=take(raw, "parameters", int),
        unique_parameters=take(raw, "unique_parameters", int),
        files=take(raw, "files", dict),
        metrics=take(raw, "metrics", dict),
        provenance=take(raw, "provenance", dict),
    )
    if not manifest.labels or len(set(manifest.labels)) != len(manifest.labels):
        raise BundleError(f"{path}: labels must be distinct and at least one; found {listing(manifest.labels)}.")
    unlisted = {name for g in graphs for name in (g.file, *g.weights)} | {TOKENIZER_NAME}
    if unlisted := unlisted - set(manifest.files):
        raise BundleError(f"{path}: no sha256 for {listing(unlisted)}; export the checkpoint again.")
    return manifest


def _kinds(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)
