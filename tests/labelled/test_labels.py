from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import DataError, UsageError
from labelled.labels import LabelSet, in_order, parse_renames, recorded_renames
from labelled.reader import Dataset, Problems, Row


def dataset(*labels: str, name: str = "train.csv") -> Dataset:
    rows = tuple(Row(f"text {n}", (label,), 0.0, n, n + 1) for n, label in enumerate(labels, start=1))
    return Dataset(path=Path(name), rows=rows, columns=("text", "label"), problems=Problems(), sha256="")


def test_order_is_by_number_or_by_code_point() -> None:
    assert in_order({"10", "9", "-1", "007", "7", "07"}) == ["-1", "007", "07", "7", "9", "10"]
    assert in_order({"10", "9", "none"}) == ["10", "9", "none"]
    assert in_order(["b", "B", "a"]) == ["B", "a", "b"]


@given(st.sets(st.text(min_size=1)))
def test_order_does_not_depend_on_the_order_of_the_rows(labels: set[str]) -> None:
    assert in_order(sorted(labels)) == in_order(sorted(labels, reverse=True)) == in_order(labels)


def test_renamed_classes_keep_the_order_of_the_files_labels() -> None:
    labels = LabelSet.from_data(dataset("1", "0", "1"), {"0": "safe", "1": "attack"})
    assert labels.names == ("safe", "attack")
    assert [labels.index(name) for name in ("0", "1", "safe", "attack")] == [0, 1, 0, 1]
    swapped = LabelSet.from_data(dataset("0", "1"), {"0": "1", "1": "0"})
    assert swapped.names == ("1", "0")
    assert [swapped.index("0"), swapped.index("1")] == [0, 1], "the files' meaning wins"
    merged = LabelSet.from_data(dataset("a", "b", "c"), {"a": "x", "b": "x"})
    assert (merged.names, merged.index("b"), merged.index("c")) == (("x", "c"), 0, 1)


def test_one_class_and_unknown_renames_are_refused() -> None:
    with pytest.raises(DataError, match=r"train\.csv has only the class 'a' in the column 'label'"):
        LabelSet.from_data(dataset("a", "a"))
    with pytest.raises(DataError, match="renames '2', which is not a label"):
        LabelSet.from_data(dataset("0", "1"), {"2": "x"})


def test_labels_that_are_no_class_are_named_with_file_row_and_count() -> None:
    labels = LabelSet(("a", "b"))
    labels.check(dataset("a", "b"), "the model")
    with pytest.raises(DataError) as caught:
        labels.check(dataset("a", "x", "y", "x", name="dev.csv"), "train.csv")
    for part in ("dev.csv", "train.csv never had", "'x' (2 rows, first line 3 (row 2))", "'y' (1 row, first line 4"):
        assert part in str(caught.value)


def test_renames_on_the_command_line() -> None:
    assert parse_renames("0=benign, 1 = injection") == {"0": "benign", "1": "injection"}
    assert parse_renames(None) == {}
    for wrong in ("0", "0=", "=x", "0=a,0=b", "0=a,,1=b"):
        with pytest.raises(UsageError, match="--label-names"):
            parse_renames(wrong)


def test_renames_are_found_in_a_checkpoints_record_and_in_a_bundles_provenance() -> None:
    task = {"task": {"label_names": {"0": "benign"}}}
    assert recorded_renames(task) == recorded_renames({"source": "x", "checkpoint": task}) == {"0": "benign"}
    assert recorded_renames({}) == recorded_renames({"task": "text", "checkpoint": None}) == {}
