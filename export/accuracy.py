"""The accuracy gate: is the 8-bit graph as good as the fp32 graph on real labelled texts?

Both graphs answer the same texts. What counts is the drop of the metric (accuracy; for regression the correlation),
with a bootstrap interval over texts, and the share of texts that keep their label. A drop that the interval cannot tell
from none still fails beyond the limit: the limit is on the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from contract.encoding import EncodedText, TextEncoder, padded
from contract.scores import THRESHOLD, ProblemType, sigmoid
from export.verify import Logits
from labelled.labels import LabelSet
from labelled.metrics import correlation
from labelled.reader import DataOptions, read_dataset
from labelled.rows import encode_rows, targets_of

MAX_DROP = 0.005
"""Of the metric: half a point."""
MIN_AGREEMENT = 0.99
"""Share of texts with the same label in both."""
RESAMPLES = 2000
BATCH_TOKENS = 2048

Answer = Callable[[Sequence[EncodedText]], Logits]
"""Encoded texts to logits (texts, labels)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTexts:
    """What accuracy is measured on."""

    texts: tuple[EncodedText, ...]
    targets: npt.NDArray[Any]
    """See ``labelled.rows.targets_of``."""
    problem_type: ProblemType
    fingerprint: dict[str, Any]


def read_labelled(
    path: Path, options: DataOptions, *, labels: LabelSet, problem_type: ProblemType, text_encoder: TextEncoder
) -> LabelledTexts:
    """Read a labelled file for a model.

    Raises:
        DataError: the file cannot be used, or has labels that the model does not know.
    """
    dataset = read_dataset(path, options, problem_type)
    labels.check(dataset, "the model")
    return LabelledTexts(
        texts=encode_rows(text_encoder, dataset.rows),
        targets=targets_of(dataset.rows, labels, problem_type),
        problem_type=problem_type,
        fingerprint={key: value for key, value in dataset.fingerprint().items() if key != "label_counts"},
    )


def answers(
    texts: Sequence[EncodedText],
    answer: Answer,
    advance: Callable[[int], None] = lambda texts: None,
    *,
    mixed: bool = False,
) -> Logits:
    """Logits (texts, labels) of all texts, in batches of like lengths.

    Args:
        texts: encoded.
        answer: the graph.
        advance: called with the number of texts done since the last call.
        mixed: in batches of random lengths, as a service meets them.
    """
    order = np.argsort([len(text.input_ids) for text in texts], kind="stable")
    if mixed:
        order = np.random.default_rng(0).permutation(order)
    rows: list[tuple[int, npt.NDArray[np.float32]]] = []
    batch: list[int] = []
    width = 0

    def flush() -> None:
        rows.extend(zip(batch, answer([texts[index] for index in batch]), strict=True))
        advance(len(batch))
        batch.clear()

    for index in order.tolist():
        width = max(width, len(texts[index].input_ids))
        if batch and (len(batch) + 1) * width > BATCH_TOKENS:
            flush()
            width = len(texts[index].input_ids)
        batch.append(index)
    flush()
    return np.stack([row for _, row in sorted(rows, key=lambda item: item[0])])


def answering(session: onnxruntime.InferenceSession, pad_token_id: int) -> Answer:
    """A loaded graph as a function of encoded texts."""
    names = [tensor.name for tensor in session.get_inputs()]

    def answer(texts: Sequence[EncodedText]) -> Logits:
        batch = padded(texts, pad_token_id)
        (logits,) = session.run(None, {name: batch[name] for name in names})
        return np.asarray(logits)

    return answer


def compare(found: Logits, expected: Logits, data: LabelledTexts, *, mixed: Logits, seed: int = 0) -> dict[str, Any]:
    """Figures of one graph beside another's on the same texts.

    Args:
        found: logits (texts, labels) of the 8-bit graph.
        expected: those of the fp32 graph.
        data: the texts.
        mixed: logits of the 8-bit graph for the same texts beside others.
        seed: of the bootstrap.

    Returns:
        ``metric``, its value ``before`` and ``after``, the ``drop`` with its 95 % interval ``drop_interval``,
        ``agreement``, ``changed_beside_others`` (texts whose label depends on their batch),
        ``max_abs_logit_difference``, ``texts`` and ``data``.
    """
    metric, score = _metric(data)
    generator = np.random.default_rng(seed)
    drops = []
    for _ in range(RESAMPLES):
        rows = generator.integers(0, len(expected), len(expected))
        drops.append(score(expected, rows) - score(found, rows))
    everything = np.arange(len(expected))
    before, after = score(expected, everything), score(found, everything)
    low, high = np.quantile(drops, (0.025, 0.975))
    return {
        "metric": metric,
        "before": before,
        "after": after,
        "drop": before - after,
        "drop_interval": [float(low), float(high)],
        "agreement": float(np.mean(_alike(found, expected, data))),
        "changed_beside_others": int((~_alike(mixed, found, data)).sum()),
        "max_abs_logit_difference": float(np.abs(found - expected).max()),
        "texts": len(expected),
        "data": data.fingerprint,
    }


def is_good_enough(figures: dict[str, Any]) -> bool:
    """Whether the figures of ``compare`` are within the limits."""
    enough = figures["drop"] <= MAX_DROP and figures["agreement"] >= MIN_AGREEMENT
    return bool(enough and figures["changed_beside_others"] == 0)


def _metric(data: LabelledTexts) -> tuple[str, Callable[[Logits, npt.NDArray[np.int64]], float]]:
    targets = data.targets
    if data.problem_type == "regression":
        return "pearson", lambda logits, rows: correlation(
            logits[rows, 0].astype(float), targets[rows, 0].astype(float)
        )
    if data.problem_type == "multi_label_classification":
        return "accuracy", lambda logits, rows: float(
            np.mean(((sigmoid(logits[rows]) >= THRESHOLD) == (targets[rows] > 0)).all(axis=1))
        )
    return "accuracy", lambda logits, rows: float(np.mean(logits[rows].argmax(axis=1) == targets[rows]))


def _alike(found: Logits, expected: Logits, data: LabelledTexts) -> npt.NDArray[np.bool_]:
    """On which texts a user would act alike; of a regression, within a twentieth of how much texts differ."""
    if data.problem_type == "regression":
        return np.asarray(np.abs(found[:, 0] - expected[:, 0]) <= np.std(data.targets) / 20)
    if data.problem_type == "multi_label_classification":
        return np.asarray(((sigmoid(found) >= THRESHOLD) == (sigmoid(expected) >= THRESHOLD)).all(axis=1))
    return np.asarray(found.argmax(axis=1) == expected.argmax(axis=1))
