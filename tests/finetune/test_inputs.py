from collections.abc import Callable
from pathlib import Path

import pytest

from contract.errors import DataError, UsageError
from finetune.inputs import Inputs, read_inputs
from finetune.repeats import Repeats, same_text
from labelled.reader import DataOptions

Write = Callable[[str, str | bytes], Path]
TRAIN = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(40))


def read(train: Path, dev: Path | None = None, **options: object) -> Inputs:
    values: dict[str, object] = {
        "problem_type": "single_label_classification",
        "renames": {},
        "dev_fraction": 0.1,
        "drop_repeats": False,
        "seed": 0,
    }
    return read_inputs(train, dev, DataOptions(), **(values | options))  # type: ignore[arg-type]


def test_dev_rows_are_set_aside_or_read(write: Write) -> None:
    train = write("train.csv", TRAIN)
    inputs = read(train)
    assert (len(inputs.train), len(inputs.dev), inputs.seen_dev_rows) == (36, 4, 0)
    dev = write("dev.csv", "text,label\nTEXT  1,a\nnew,b\n")
    inputs = read(train, dev)
    assert (len(inputs.train), len(inputs.dev), inputs.seen_dev_rows) == (40, 2, 1)
    assert len(read(train, dev_fraction=0.0).dev) == 0


def test_b10_repeats_are_counted_and_left_out_on_demand(cases: Path) -> None:
    train, test = cases / "B10_train.csv", cases / "B10_test.csv"
    inputs = read(train, test)
    assert inputs.repeats == Repeats(exact=1, alike=2, contradicting=1)
    assert (len(inputs.train), inputs.seen_dev_rows) == (7, 2)
    dropped = read(train, test, drop_repeats=True)
    assert [row.text for row in dropped.train] == ["meeting moved", "free prize", "free prize"]
    assert dropped.seen_dev_rows == 0
    assert dropped.dev == inputs.dev
    split = read(train, dev_fraction=0.4)
    assert not {same_text(row) for row in split.train} & {same_text(row) for row in split.dev}


def test_every_file_is_checked_before_anything_else(write: Write, tmp_path: Path) -> None:
    train = write("train.csv", TRAIN)
    with pytest.raises(DataError, match=r"dev\.csv has labels that .*train\.csv never had: 'c'"):
        read(train, write("dev.csv", "text,label\nx,c\n"))
    with pytest.raises(DataError, match=r"no\.csv does not exist"):
        read(train, tmp_path / "no.csv")
    with pytest.raises(DataError, match="only the class"):
        read(write("one.csv", "text,label\nx,a\ny,a\n"))


def test_regression_has_one_output_and_no_names(write: Write) -> None:
    train = write("train.csv", "text,score\n" + "".join(f"text {n},{n}\n" for n in range(30)))
    inputs = read(train, problem_type="regression")
    assert (inputs.labels.names, len(inputs.dev)) == (("score",), 10)
    with pytest.raises(UsageError, match="--label-names"):
        read(train, problem_type="regression", renames={"1": "x"})
