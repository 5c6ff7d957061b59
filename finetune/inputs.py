"""Everything of a training run that can be wrong before a model is touched: files, labels, the target folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from contract.errors import DataError, UsageError
from contract.scores import ProblemType
from contract.storage import recover_folder
from finetune.labels import LabelSet
from finetune.reader import DataOptions, Dataset, Row, read_dataset
from finetune.split import same_text, split_rows

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
) -> Inputs:
    """Read and check all files of a run; set dev rows aside if there is no dev file.

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
    if dev is None:
        rows, held_out = split_rows(train_file.rows, dev_fraction, seed, problem_type)
        return Inputs(train_file=train_file, dev_file=None, train=rows, dev=held_out, labels=labels)
    # the same columns, unless the names are positions or chosen by the user anyway
    dev_file = read_dataset(dev, options, problem_type)
    labels.check(dev_file, str(train))
    return Inputs(train_file=train_file, dev_file=dev_file, train=train_file.rows, dev=dev_file.rows, labels=labels)


def with_labels(inputs: Inputs, labels: LabelSet) -> Inputs:
    """The same data with the classes in a checkpoint's order."""
    return replace(inputs, labels=labels)


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Make sure that a checkpoint may be and can be written to a folder.

    Raises:
        UsageError: it is a file, holds a checkpoint and ``overwrite`` is off, holds anything else, or is not writable.
    """
    recover_folder(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; a folder was expected.")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / "robal.json").is_file():
            raise UsageError(f"--out {folder} is a folder of other things; give a new or empty one.")
        if not overwrite:
            raise UsageError(f"--out {folder} holds a checkpoint; give another folder, or --overwrite to replace it.")
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UsageError(f"--out {folder} cannot be made: {parent} is not a folder that you may write to.")
