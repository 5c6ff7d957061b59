"""Everything of a training run that can be wrong before a model is touched: files and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from contract.errors import DataError, UsageError
from contract.scores import ProblemType
from finetune.repeats import Repeats, find_repeats, same_text, without_repeats
from finetune.split import split_rows
from labelled.labels import LabelSet
from labelled.reader import DataOptions, Dataset, Row, read_dataset

REGRESSION_LABEL = "score"
"""Name of the one output of a regression model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Checked data of a training run."""

    train_file: Dataset
    dev_file: Dataset | None
    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    """From the dev file, or set aside from the training file, or none."""
    labels: LabelSet
    repeats: Repeats
    """In the training file."""

    @property
    def seen_dev_rows(self) -> int:
        """Dev rows whose text is also a training text, case and white space aside."""
        trained = {same_text(row) for row in self.train}
        return sum(same_text(row) in trained for row in self.dev)


def read_inputs(
    train: Path,
    dev: Path | None,
    options: DataOptions,
    *,
    problem_type: ProblemType,
    renames: Mapping[str, str],
    dev_fraction: float,
    seed: int,
    drop_repeats: bool = False,
) -> Inputs:
    """Read and check all files of a run; set dev rows aside if there is no dev file.

    With ``drop_repeats`` training rows that repeat another, or whose text is among the dev rows, are left out.

    Raises:
        DataError: see ``RowReader`` and ``LabelSet``.
    """
    for path in (train, dev):
        if path is not None and not path.exists():
            raise DataError(f"{path} does not exist.")
    train_file = read_dataset(train, options, problem_type)
    if problem_type == "regression":
        if renames:
            raise UsageError("--label-names renames classes; --task regression has none.")
        labels = LabelSet((REGRESSION_LABEL,))
    else:
        labels = LabelSet.from_data(train_file, renames)
    dev_file = None if dev is None else read_dataset(dev, options, problem_type)
    if dev_file is None:
        rows, held_out = split_rows(train_file.rows, dev_fraction, seed, problem_type)
    else:
        labels.check(dev_file, str(train))
        rows, held_out = train_file.rows, dev_file.rows
    return Inputs(
        train_file=train_file,
        dev_file=dev_file,
        train=without_repeats(rows, held_out) if drop_repeats else rows,
        dev=held_out,
        labels=labels,
        repeats=find_repeats(train_file.rows),
    )


def with_labels(inputs: Inputs, labels: LabelSet) -> Inputs:
    """The same data with the classes in a checkpoint's order."""
    return replace(inputs, labels=labels)
