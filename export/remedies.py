"""What to do when 8 bits cost too much accuracy: keep the linear layers that mind it most in float32, or refuse.

A sweep finds them: with all layers in 8 bits but one, how much closer do the logits come to those of fp32? The answers
on a sample of the texts rank the layers; then the first 1, 2, 4, ... of them are kept until the gate is passed. A layer
that is shared counts, is measured and is kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn

from contract.encoding import EncodedText
from contract.errors import GateFailed
from contract.manifest import Graph
from export import verify
from export.accuracy import MAX_DROP, MIN_AGREEMENT, Answer, LabelledTexts, answering, answers, compare, is_good_enough
from export.graph import classifier_graph, input_specs, output_specs
from export.int8 import Int8Graph
from export.ops import Graph as Emitted
from export.sources import Source
from export.words import accuracy_in_words

SWEEP_TEXTS = 64
"""Texts on which layers are ranked."""
MAX_KEPT_SHARE = 0.25
"""Most linear layers that may stay in float32: beyond that, int8 has nothing left to offer."""


def hold_accuracy(
    source: Source,
    labelled: LabelledTexts,
    folder: Path,
    graph: Graph,
    *,
    rewrite: Callable[[frozenset[str]], Graph],
    advance: Callable[[str, int, int], None],
) -> Graph:
    """The int8 graph with its accuracy figures, rewritten with layers in float32 if it needs them.

    Args:
        source: the model.
        labelled: the texts.
        folder: the bundle in the making.
        graph: the int8 graph in it.
        rewrite: writes and checks it again, with the named layers in float32.
        advance: receives the progress.

    Raises:
        GateFailed: too much accuracy is lost, whatever was kept.
    """
    total = len(labelled.texts)
    done = 0

    def step(texts: int) -> None:
        nonlocal done
        done += texts
        advance("measuring accuracy", min(done, total), total)

    with TemporaryDirectory() as scratch:
        expected = answers(labelled.texts, _in(source, _write(source, Path(scratch), Emitted)), step)
    kept: tuple[str, ...] = ()
    order: list[str] | None = None
    most = int(MAX_KEPT_SHARE * len(_layers(source.model)))
    while True:
        done = 0
        answer = _in(source, folder / graph.file)
        found = answers(labelled.texts, answer, step)
        done = 0
        figures = compare(found, expected, labelled, mixed=answers(labelled.texts, answer, step, mixed=True))
        if is_good_enough(figures):
            return replace(graph, checks={**graph.checks, "accuracy": figures})
        if len(kept) >= most:
            tried = f", also with {len(kept)} linear layers in fp32" if kept else ""
            raise GateFailed(
                f"int8 loses too much{tried}: {accuracy_in_words(figures)}; the limits are a drop of "
                f"{100 * MAX_DROP:g} points and {100 * MIN_AGREEMENT:g} % agreement. Export with --precision fp32."
            )
        if order is None:
            order = sensitive_layers(source, labelled.texts, advance)
        kept = tuple(order[: min(most, max(1, 2 * len(kept)))])
        graph = rewrite(frozenset(kept))


def sensitive_layers(
    source: Source, texts: Sequence[EncodedText], advance: Callable[[str, int, int], None] = lambda *_: None
) -> list[str]:
    """Names of the linear layers, first the one whose staying in float32 brings the logits closest to fp32."""
    stride = max(1, len(texts) // SWEEP_TEXTS)
    sample = texts[::stride][:SWEEP_TEXTS]
    names = _layers(source.model)
    distances = {}
    with TemporaryDirectory() as scratch:
        expected = answers(sample, _in(source, _write(source, Path(scratch), Emitted)))
        for done, name in enumerate(names, 1):
            path = _write(source, Path(scratch), partial(Int8Graph, keep=frozenset({name})))
            found = answers(sample, _in(source, path))
            distances[name] = float(np.sqrt(np.mean((found - expected) ** 2)))
            advance("finding sensitive layers", done, len(names))
    return sorted(names, key=distances.__getitem__)


def _layers(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def _write(source: Source, folder: Path, kind: Callable[[nn.Module], Emitted]) -> Path:
    config = source.model.config
    classifier_graph(source.model, kind).save(
        folder, graph_file="graph.onnx", weights_file="data", inputs=input_specs(config), outputs=output_specs(config)
    )
    return folder / "graph.onnx"


def _in(source: Source, path: Path) -> Answer:
    return answering(verify.open_session(path), source.text_encoder.pad_token_id)
