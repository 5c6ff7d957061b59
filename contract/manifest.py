"""The bundle's manifest: what is in the folder, what it expects, what was checked. See docs/bundle-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from contract.encoding import TextEncoder
from contract.errors import BundleError, listing
from contract.scores import PROBLEM_TYPES, Calibration, ProblemType
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

    def resolve(self, precision: str) -> str:
        """The precision itself, or for ``auto`` int8 where its accuracy was checked, else fp32, else the first."""
        if precision != "auto":
            return precision
        have = {graph.precision: graph for graph in self.graphs}
        if "int8" in have and "accuracy" in have["int8"].checks:
            return "int8"
        return "fp32" if "fp32" in have else self.graphs[0].precision

    @property
    def calibration(self) -> Calibration:
        """What the training of the checkpoint found out about its scores."""
        return Calibration.from_record(self.provenance.get("checkpoint") or {})

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
            missing or of the wrong type, a file name leads out of the folder, or a file is missing or edited.
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


class _Fields:
    """Typed access to one JSON object; every problem is reported with the file and the field's path in it."""

    def __init__(self, value: Any, path: Path, at: str = "") -> None:
        if not isinstance(value, dict):
            raise _unexpected(path, at, value, dict)
        self._value, self._path = value, path
        self._prefix = f"{at}." if at else ""

    def take(self, key: str, *kinds: type) -> Any:
        at = self._prefix + key
        if key not in self._value:
            raise BundleError(f"{self._path}: the field {at} is missing; export the checkpoint again.")
        return _checked(self._path, at, self._value[key], *kinds)

    def take_list(self, key: str, *kinds: type) -> tuple[Any, ...]:
        items = enumerate(self.take(key, list))
        return tuple(_checked(self._path, f"{self._prefix}{key}[{i}]", item, *kinds) for i, item in items)

    def take_map(self, key: str, kind: type) -> dict[str, Any]:
        items = self.take(key, dict).items()
        return {name: _checked(self._path, f"{self._prefix}{key}[{name!r}]", item, kind) for name, item in items}

    def take_objects(self, key: str) -> list[_Fields]:
        return [_Fields(item, self._path, f"{self._prefix}{key}[{i}]") for i, item in enumerate(self.take(key, list))]


def _checked(path: Path, at: str, value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or isinstance(value, bool):  # JSON's true is an int to Python, never to us
        raise _unexpected(path, at, value, *kinds)
    return value


def _unexpected(path: Path, at: str, value: Any, *kinds: type) -> BundleError:
    expected = " or ".join(kind.__name__ for kind in kinds)
    return BundleError(f"{path}: {at} is {value!r}; expected {expected}. Export the checkpoint again.")


def _parse(raw: dict[str, Any], path: Path) -> Manifest:
    """Build the dataclasses from a manifest of a known format version."""
    fields = _Fields(raw, path)
    inputs, outputs = (
        tuple(
            TensorSpec(
                name=item.take("name", str), dtype=item.take("dtype", str), axes=item.take_list("axes", str, int)
            )
            for item in fields.take_objects(key)
        )
        for key in ("inputs", "outputs")
    )
    manifest = Manifest(
        format_version=fields.take("format_version", int),
        robal_version=fields.take("robal_version", str),
        name=fields.take("name", str),
        family=fields.take("family", str),
        problem_type=fields.take("problem_type", str),
        labels=fields.take_list("labels", str),
        max_length=fields.take("max_length", int),
        pad_token_id=fields.take("pad_token_id", int),
        type_vocab_size=fields.take("type_vocab_size", int),
        inputs=inputs,
        outputs=outputs,
        graphs=tuple(
            Graph(
                precision=item.take("precision", str),
                file=item.take("file", str),
                weights=item.take_list("weights", str),
                opset=item.take("opset", int),
                size_bytes=item.take("size_bytes", int),
                checks=item.take("checks", dict),
            )
            for item in fields.take_objects("graphs")
        ),
        parameters=fields.take("parameters", int),
        unique_parameters=fields.take("unique_parameters", int),
        files=fields.take_map("files", str),
        metrics=fields.take("metrics", dict),
        provenance=fields.take("provenance", dict),
    )
    if problem := _contradiction(manifest):
        raise BundleError(f"{path}: {problem}; export the checkpoint again.")
    return manifest


def _contradiction(manifest: Manifest) -> str | None:
    """The first thing that fields of the right types still get wrong, as the middle of a sentence."""
    labels, precisions = manifest.labels, [graph.precision for graph in manifest.graphs]
    if manifest.problem_type not in PROBLEM_TYPES:
        return f"problem_type is {manifest.problem_type!r}; expected one of {listing(PROBLEM_TYPES)}"
    if not labels or len(set(labels)) != len(labels):
        return f"labels must be distinct and at least one; found {listing(labels)}"
    if not manifest.outputs or manifest.outputs[0].axes[-1:] != (len(labels),):
        return f"there are {len(labels)} labels and outputs of another size"
    if manifest.max_length < 1:
        return f"max_length is {manifest.max_length}; expected at least 1"
    if not precisions:
        return "there is no graph"
    for precision in precisions:
        if precisions.count(precision) > 1:
            return f"there are two graphs of precision {precision!r}"
    read = {name for graph in manifest.graphs for name in (graph.file, *graph.weights)} | {TOKENIZER_NAME}
    if unlisted := read - set(manifest.files):
        return f"there is no sha256 for {listing(unlisted)}"
    for name in manifest.files:
        if not _is_plain(name):
            return f"files lists {name!r}, which is not a plain file name"
    return None


def _is_plain(name: str) -> bool:
    """Whether a name stays inside the folder on every system, and is not the manifest's own."""
    return name not in ("", ".", "..", MANIFEST_NAME) and not set(name) & set("/\\\0")
