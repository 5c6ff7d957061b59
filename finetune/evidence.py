"""What is known about a trained model from its dev rows: intervals, calibration, slices and mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contract.scores import Array, Calibration, ProblemType, scores_from_logits
from finetune.calibration import Targets, calibration_error, fit, reliability
from finetune.intervals import bootstrap, figure_of_rows
from labelled.reader import Row

MOST_MISTAKES = 25
"""Shown in the report."""
LENGTH_GROUPS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """A dev row whose answer is not its label; a confident one is a hard case or a wrong label."""

    line: int
    """Row number in its file."""
    text: str
    label: str
    answer: str
    score: float
    """Calibrated score of the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Of one model on its dev rows."""

    intervals: dict[str, tuple[float, float]]
    """The middle 95 % of each figure; see ``intervals.bootstrap``."""
    calibration: Calibration
    bins: tuple[list[dict[str, float]], list[dict[str, float]]]
    """Reliability before and after calibration; empty for regression."""
    lengths: tuple[tuple[str, int, dict[str, float]], ...]
    """Tokens, rows and figures of groups of rows by length."""
    mistakes: tuple[Mistake, ...]
    """Most confident first; for one label only."""

    @property
    def calibration_errors(self) -> tuple[float, float] | None:
        """Expected calibration error before and after; on the rows that it was fitted on."""
        return (calibration_error(self.bins[0]), calibration_error(self.bins[1])) if self.bins[0] else None

    def as_record(self) -> dict[str, Any]:
        """What joins ``metrics`` in ``robal.json``."""
        errors = self.calibration_errors
        return {"intervals_95": {name: list(ends) for name, ends in self.intervals.items()}} | (
            {"calibration_error": {"before": errors[0], "after": errors[1]}} if errors else {}
        )


def gather(
    logits: Array,
    targets: Targets,
    rows: Sequence[Row],
    lengths: Sequence[int],
    labels: Sequence[str],
    problem_type: ProblemType,
) -> Evidence:
    """Everything that the dev rows tell.

    Args:
        logits: (rows, labels), at least one row.
        targets: see ``labelled.rows.targets_of``.
        rows: the texts.
        lengths: their tokens.
        labels: in the order of the logits.
        problem_type: regression has intervals and lengths only.
    """
    figure = figure_of_rows(logits, targets, problem_type)
    calibration = fit(logits, targets, labels, problem_type)
    before: list[dict[str, float]] = []
    after: list[dict[str, float]] = []
    mistakes: tuple[Mistake, ...] = ()
    if problem_type != "regression":
        before = reliability(scores_from_logits(logits, problem_type), targets, problem_type)
        after = reliability(calibration.scores(logits, problem_type), targets, problem_type)
    if problem_type == "single_label_classification":
        mistakes = _mistakes(calibration.scores(logits, problem_type), targets, rows, labels)
    sizes = np.asarray(lengths)
    groups = []
    for part in np.array_split(np.argsort(sizes, kind="stable"), min(LENGTH_GROUPS, len(sizes))):
        groups.append((f"{sizes[part].min()} to {sizes[part].max()}", len(part), figure(part)))
    return Evidence(
        intervals=bootstrap(figure, len(targets)),
        calibration=calibration,
        bins=(before, after),
        lengths=tuple(groups),
        mistakes=mistakes,
    )


def _mistakes(scores: Array, targets: Targets, rows: Sequence[Row], labels: Sequence[str]) -> tuple[Mistake, ...]:
    answers = scores.argmax(axis=1)
    wrong = np.flatnonzero(answers != targets)
    found = wrong[np.argsort(-scores[wrong, answers[wrong]], kind="stable")][:MOST_MISTAKES]
    return tuple(
        Mistake(
            line=rows[index].row,
            text=text if isinstance(text := rows[index].text, str) else " | ".join(text),
            label=labels[targets[index]],
            answer=labels[answers[index]],
            score=float(scores[index, answers[index]]),
        )
        for index in found.tolist()
    )
