"""The bundle folder: graph, weights, tokenizer, configuration and manifest, all of them or none.

Everything is written into a folder beside the target and checked there; only what passed every gate takes the target's
place. See docs/bundle-format.md.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from contract.errors import UsageError
from contract.manifest import MANIFEST_NAME, Graph, Manifest, save_manifest
from contract.storage import recover_folder, replace_folder, sha256_file, write_json
from contract.tokenizer_files import save_tokenizer
from encoders.config import EncoderConfig
from encoders.heads import SequenceClassifier
from encoders.training import count_parameters
from export import ops, verify
from export.accuracy import LabelledTexts
from export.graph import classifier_graph, input_specs, output_specs
from export.int8 import Int8Graph
from export.remedies import hold_accuracy
from export.sources import Source

FILES = {"fp32": ("model.onnx", "model.onnx_data"), "int8": ("model_int8.onnx", "model_int8.onnx_data")}
"""Graph and weights of each precision. Optimum's names, so that it finds the first by itself."""
PRECISIONS = tuple(FILES)

Advance = Callable[[str, int, int], None]
"""Called with (what is going on, steps done, steps in all)."""


def check_target(out: Path, *, overwrite: bool) -> None:
    """Refuse a target that would be lost, before any work is done.

    Raises:
        UsageError: it exists and may not be overwritten, is something else than a bundle, or cannot be written at all.
    """
    recover_folder(out)
    ground = next(parent for parent in out.absolute().parents if parent.exists())
    if not ground.is_dir() or not os.access(ground, os.W_OK):
        raise UsageError(f"--out {out} cannot be written: {ground} is not a folder that you may write to.")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MANIFEST_NAME).is_file():
        raise UsageError(f"{out} exists and is not a bundle, so it will not be overwritten; choose another --out.")
    if not overwrite:
        raise UsageError(f"{out} exists; choose another --out or add --overwrite.")


def write_bundle(
    source: Source,
    out: Path,
    *,
    name: str,
    precisions: Sequence[str] = ("fp32",),
    labelled: LabelledTexts | None = None,
    advance: Advance = lambda *_: None,
    seed: int = 0,
) -> Manifest:
    """Export, check and write a bundle.

    Args:
        source: what to export.
        out: the folder; an existing one is replaced in the last step.
        name: the model's name, as the service reports it.
        precisions: which graphs, of ``PRECISIONS``.
        labelled: real texts on which int8 is compared with fp32; without them its accuracy stays unchecked.
        advance: receives the progress.
        seed: decides the token ids that the values are compared on.

    Raises:
        GateFailed: a graph is not the model, or int8 is not good enough; nothing was written.
    """
    model, config = source.model, source.model.config
    used, unique = count_parameters(model)
    inputs, outputs = input_specs(config), output_specs(config)
    grid = verify.Grid(
        vocab_size=config.vocab_size,
        pad_token_id=config.pad_token_id,
        type_vocab_size=config.type_vocab_size,
        max_length=source.text_encoder.max_length,
        inputs=tuple(spec.name for spec in inputs),
        seed=seed,
    )
    reference = _remembered(_reference(model))
    with replace_folder(out) as folder:
        write_json(folder / "config.json", _hf_config(config))
        save_tokenizer(
            folder,
            source.text_encoder.tokenizer,
            max_length=source.text_encoder.max_length,
            type_vocab_size=config.type_vocab_size,
        )

        def graph(precision: str, kept: frozenset[str] = frozenset()) -> Graph:
            """Write one graph and take it through its gates."""
            file, weights = FILES[precision]
            steps = len(grid.shapes)
            advance(f"writing the {precision} graph", 0, steps)
            kind = ops.Graph if precision == "fp32" else partial(Int8Graph, keep=kept)
            classifier_graph(model, kind).save(
                folder, graph_file=file, weights_file=weights, inputs=inputs, outputs=outputs
            )
            checks = verify.check_storage(folder, file, [weights], unique, precision=precision)
            checks |= verify.check_operators(
                folder, file, blocks=config.num_hidden_layers, precision=precision, kept=sorted(kept)
            )
            session = verify.open_session(folder / file)
            verify.check_interface(session, inputs, outputs)
            checks |= verify.check_values(
                session,
                reference,
                grid,
                lambda done: advance(f"comparing {precision} logits", done, steps),
                precision=precision,
            )
            checks |= verify.check_independence(session, grid, precision=precision)
            checks["probe"] = verify.probe(session, grid)
            return Graph(
                precision=precision,
                file=file,
                weights=(weights,),
                opset=ops.OPSET,
                size_bytes=sum((folder / part).stat().st_size for part in (file, weights)),
                checks=checks,
            )

        graphs = [graph(precision) for precision in precisions]
        if labelled is not None and "int8" in precisions:
            at = precisions.index("int8")
            graphs[at] = hold_accuracy(
                source, labelled, folder, graphs[at], rewrite=partial(graph, "int8"), advance=advance
            )
        manifest = Manifest(
            robal_version=version("robal"),
            name=name,
            family=config.model_type,
            problem_type=config.problem_type,
            labels=config.labels,
            max_length=source.text_encoder.max_length,
            pad_token_id=config.pad_token_id,
            type_vocab_size=config.type_vocab_size,
            inputs=inputs,
            outputs=outputs,
            graphs=tuple(graphs),
            parameters=used,
            unique_parameters=unique,
            files={path.name: sha256_file(path) for path in sorted(folder.iterdir())},
            metrics=source.metrics,
            provenance={**source.provenance, "export": _tools()},
        )
        save_manifest(folder, manifest)
    return manifest


def _hf_config(config: EncoderConfig) -> dict[str, Any]:
    """``config.json``, for optimum and other readers of Hugging Face folders.

    They build no layers from it, so the plain family name is right even where transformers has no class for the shape.
    """
    return config.to_hf() | {
        "model_type": config.model_type,
        "architectures": [config.family.architectures["SequenceClassifier"]],
    }


def _reference(model: SequenceClassifier) -> Callable[[verify.Inputs], verify.Logits]:
    """The native module as a function of numpy arrays."""

    def logits(inputs: verify.Inputs) -> verify.Logits:
        with torch.inference_mode():
            found = model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        return np.asarray(found.numpy())

    return logits


def _remembered(reference: Callable[[verify.Inputs], verify.Logits]) -> Callable[[verify.Inputs], verify.Logits]:
    """The same function, computing each input once: the graphs of all precisions are compared on the same cases."""
    known: dict[bytes, verify.Logits] = {}

    def logits(inputs: verify.Inputs) -> verify.Logits:
        key = b"".join(array.tobytes() + str(array.shape).encode() for array in inputs.values())
        if key not in known:
            known[key] = reference(inputs)
        return known[key]

    return logits


def _tools() -> Mapping[str, str]:
    """What made the bundle, and when."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onnx": onnx.__version__,
    }
