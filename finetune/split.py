"""A dev set out of the training rows: stratified, seeded, and never the same text on both sides.

A random split of data with repeated texts measures memory. So rows are grouped by their text (case and white space
aside) and a group goes to one side as a whole. Every class keeps at least one group in train, where it can be learned.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from contract.scores import ProblemType
from finetune.repeats import same_text
from labelled.reader import Row

QUANTILES = 10
"""Regression targets are stratified by this many bins of equal size."""


def split_rows(
    rows: Sequence[Row], fraction: float, seed: int, problem_type: ProblemType
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Divide rows into (train, dev), each in the order of the file.

    Args:
        rows: all labelled rows.
        fraction: the wanted share of dev in each class, between 0 and 1.
        seed: the same rows and seed give the same split.
        problem_type: classes are single labels, sets of labels, or quantiles of a number.
    """
    generator = random.Random(seed)
    strata: dict[object, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    home: dict[str, object] = {}
    classes: dict[str, set[str]] = defaultdict(set)  # of each text: more than one where the file contradicts itself
    for index, (row, stratum) in enumerate(zip(rows, _strata(rows, problem_type), strict=True)):
        key = same_text(row)
        # a text with two labels belongs to the class that it is first seen in
        strata[home.setdefault(key, stratum)][key].append(index)
        classes[key].update(row.labels)
    in_train = Counter(label for labels in classes.values() for label in labels)
    dev: set[int] = set()
    for groups in strata.values():
        for key in _draw({key: len(group) for key, group in groups.items()}, fraction, generator):
            if all(in_train[label] > 1 for label in classes[key]):
                in_train.subtract(classes[key])
                dev.update(groups[key])
    return (
        tuple(row for index, row in enumerate(rows) if index not in dev),
        tuple(row for index, row in enumerate(rows) if index in dev),
    )


def _draw(sizes: dict[str, int], fraction: float, generator: random.Random) -> list[str]:
    """Texts whose rows make up about ``fraction`` of one class, at least one text if two exist."""
    if len(sizes) < 2 or fraction <= 0:
        return []
    keys = list(sizes)
    generator.shuffle(keys)
    wanted = max(1, round(fraction * sum(sizes.values())))
    taken: list[str] = []
    for key in keys:
        if sizes[key] <= wanted:
            taken.append(key)
            wanted -= sizes[key]
    return taken or [min(keys, key=sizes.__getitem__)]


def _strata(rows: Sequence[Row], problem_type: ProblemType) -> list[object]:
    if problem_type != "regression":
        return [tuple(sorted(row.labels)) for row in rows]
    values = np.array([row.value for row in rows])
    borders = np.quantile(values, np.linspace(0, 1, QUANTILES + 1)[1:-1])
    return list(np.searchsorted(borders, values, side="right").tolist())
