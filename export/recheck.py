"""A bundle's gates once more, on any machine: what ``robal verify`` and ``robal inspect`` do. Needs no torch.

There is no PyTorch model here, so the fp32 graph's logits have nothing to be compared with: that was done when the
bundle was made, and its files are the same to the bit (their sha256). It is the reference for the int8 graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from contract.errors import BundleError, GateFailed, UsageError, listing
from contract.manifest import Graph, Manifest, load_manifest, load_text_encoder
from contract.storage import read_json
from export import verify
from export.accuracy import answering, answers, compare, is_good_enough, read_labelled
from export.words import accuracy_in_words
from labelled.labels import LabelSet, recorded_renames, unnamed
from labelled.reader import DataOptions

Advance = Callable[[str, int, int], None]
"""Called with (what is going on, steps done, steps in all)."""


def recheck(
    folder: Path,
    *,
    data: Path | None = None,
    options: DataOptions | None = None,
    advance: Advance = lambda *_: None,
) -> tuple[Manifest, list[Graph]]:
    """Take every graph of a bundle through its gates again.

    Args:
        folder: the bundle.
        data: a labelled file on which the graphs are compared; None leaves the accuracy out.
        options: how the file is read.
        advance: receives the progress.

    Returns:
        The manifest, and its graphs with the figures of now.

    Raises:
        BundleError: the bundle is broken or was edited.
        GateFailed: a graph does not pass.
        DataError: the labelled file does not fit.
        UsageError: a labelled file is given, and the bundle does not have both graphs to compare on it.
    """
    manifest = load_manifest(folder)
    precisions = {graph.precision for graph in manifest.graphs}
    if data is not None and not {"fp32", "int8"} <= precisions:
        raise UsageError(
            f"--eval compares int8 with fp32, and {folder} has {listing(sorted(precisions))} only; "
            "`robal evaluate` gives the figures of one graph."
        )
    blocks = read_json(folder / "config.json", BundleError).get("num_hidden_layers")
    if not isinstance(blocks, int):
        raise BundleError(f"{folder / 'config.json'} has no num_hidden_layers; export the checkpoint again.")
    grid = verify.Grid(
        vocab_size=min(load_text_encoder(folder, manifest).tokenizer.get_vocab_size(), _words(folder)),
        pad_token_id=manifest.pad_token_id,
        type_vocab_size=manifest.type_vocab_size,
        max_length=manifest.max_length,
        inputs=tuple(spec.name for spec in manifest.inputs),
    )
    sessions = {graph.precision: verify.open_session(folder / graph.file) for graph in manifest.graphs}
    found = [
        replace(
            graph,
            checks=_checks(
                folder, manifest, graph, blocks, grid, sessions[graph.precision], sessions.get("fp32"), advance
            ),
        )
        for graph in manifest.graphs
    ]
    if data is None:
        return manifest, found
    encoder = load_text_encoder(folder, manifest)
    renames = recorded_renames(manifest.provenance) or unnamed(manifest.labels)
    labelled = read_labelled(
        data,
        options or DataOptions(),
        labels=LabelSet(manifest.labels, renames),
        problem_type=manifest.problem_type,
        text_encoder=encoder,
    )

    def logits(precision: str, *, mixed: bool = False) -> verify.Logits:
        done = 0

        def step(texts: int) -> None:
            nonlocal done
            done += texts
            advance(f"answering with {precision}", done, len(labelled.texts))

        answer = answering(sessions[precision], manifest.pad_token_id)
        return answers(labelled.texts, answer, step, mixed=mixed)

    figures = compare(logits("int8"), logits("fp32"), labelled, mixed=logits("int8", mixed=True))
    if not is_good_enough(figures):
        raise GateFailed(f"int8 is not as good as fp32 on {data}: {accuracy_in_words(figures)}.")
    return manifest, [
        replace(graph, checks={**graph.checks, "accuracy": figures}) if graph.precision == "int8" else graph
        for graph in found
    ]


def _checks(
    folder: Path,
    manifest: Manifest,
    graph: Graph,
    blocks: int,
    grid: verify.Grid,
    session: onnxruntime.InferenceSession,
    reference: onnxruntime.InferenceSession | None,
    advance: Advance,
) -> dict[str, Any]:
    """Figures of one graph's gates; the reference is the fp32 graph, if there is one and this is another."""
    precision, steps = graph.precision, len(grid.shapes)
    advance(f"checking {precision}", 0, steps)
    kept = graph.checks.get("kept_in_fp32", ())
    checks = verify.check_storage(folder, graph.file, graph.weights, manifest.unique_parameters, precision=precision)
    checks |= verify.check_operators(folder, graph.file, blocks=blocks, precision=precision, kept=kept)
    verify.check_interface(session, manifest.inputs, manifest.outputs)
    checks |= verify.check_independence(session, grid, precision=precision)
    if reference is None or reference is session:
        return checks

    def expected(inputs: verify.Inputs) -> verify.Logits:
        (logits,) = reference.run(None, dict(inputs))
        return np.asarray(logits)

    return checks | verify.check_values(
        session,
        expected,
        grid,
        lambda done: advance(f"checking {precision}", done, steps),
        precision=precision,
    )


def operator_counts(folder: Path, graph: Graph) -> Counter[str]:
    """How often each ONNX operator occurs in a graph."""
    try:
        proto = onnx.load(folder / graph.file, load_external_data=False)
    except Exception as error:  # protobuf's exceptions have no common public base
        raise BundleError(f"{folder / graph.file} is not an ONNX file ({error}).") from None
    return Counter(node.op_type for node in proto.graph.node)


def _words(folder: Path) -> int:
    """Rows of the word table, from the configuration."""
    words: Any = read_json(folder / "config.json", BundleError).get("vocab_size")
    if not isinstance(words, int):
        raise BundleError(f"{folder / 'config.json'} has no vocab_size; export the checkpoint again.")
    return words
