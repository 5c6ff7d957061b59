"""Layouts of several labels, with the matrices that are the right answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.errors import DataError
from labelled.labels import LabelSet
from labelled.reader import DataOptions, Dataset, read_dataset
from labelled.rows import targets_of

Write = Callable[[str, str | bytes], Path]


def read(path: Path, **options: object) -> Dataset:
    return read_dataset(path, DataOptions(**options), "multi_label_classification")  # type: ignore[arg-type]


def matrix(data: Dataset, renames: dict[str, str] | None = None) -> tuple[tuple[str, ...], list[list[int]]]:
    labels = LabelSet.from_data(data, renames)
    targets = targets_of(data.rows, labels, "multi_label_classification")
    assert targets.dtype == np.float32, "the loss takes floats"
    return labels.names, targets.astype(int).tolist()


def refused(path: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "classes"),
    [
        ("B14_multihot_string.csv", {"multi_hot": True}, ("0", "1", "2")),
        ("B14_names.jsonl", {}, ("politics", "sport", "tech")),
        ("B14_columns.csv", {"label_column": "toxic,insult,threat"}, ("toxic", "insult", "threat")),
    ],
)
def test_b14_three_layouts(cases: Path, name: str, options: dict[str, object], classes: tuple[str, ...]) -> None:
    want: dict[str, Any] = json.loads((cases / "expected_data.json").read_text("utf-8"))[name]
    assert matrix(read(cases / name, **options)) == (classes, want["y"])


def test_b14_a_layout_that_was_not_named_is_refused_with_the_flag(cases: Path) -> None:
    message = refused(cases / "B14_multihot_string.csv")
    assert "3 of 3 rows" in message
    assert "[0, 1, 0] says 0 or 1 for each class; pass --multi-hot" in message
    assert "--label-column" in refused(cases / "B14_columns.csv")


@pytest.mark.parametrize("written", ["[0, 1, 1]", "[0 1 1]", "[0. 1. 1.]", "[False, True, True]", "[0.0, 1.0, 1.0]"])
def test_lists_of_0_and_1_as_json_python_and_numpy_write_them(write: Write, written: str) -> None:
    path = write("a.csv", f'text,labels\nx,"{written}"\ny,"[1, 0, 0]"\n')
    assert matrix(read(path, multi_hot=True)) == (("0", "1", "2"), [[0, 1, 1], [1, 0, 0]])
    assert matrix(read(path, multi_hot=True), {"0": "a", "1": "b", "2": "c"})[0] == ("a", "b", "c")
    assert "--multi-hot" in refused(path)
    lines = '{"text": "x", "labels": [0, 1, 1]}\n{"text": "y", "labels": [true, false, false]}\n'
    assert matrix(read(write("a.jsonl", lines), multi_hot=True))[1] == [[0, 1, 1], [1, 0, 0]]
    assert "--multi-hot" in refused(write("a.jsonl", lines))


def test_lists_that_do_not_fit_are_reported_by_row(write: Write) -> None:
    path = write("a.csv", 'text,labels\nw,"[0, 1]"\nx,"[0, 1, 1]"\ny,"[0, 2]"\nz,sport\n')
    message = refused(path, multi_hot=True)
    assert "line 3 (row 2): the label has 3 numbers where 2 were expected" in message
    assert "line 4 (row 3): the label '[0, 2]' holds something other than 0 and 1" in message
    assert "line 5 (row 4): the label 'sport' is not a list" in message


def test_names_and_numbers_in_written_lists(write: Write) -> None:
    lines = ['x,"[""sport"", ""law""]"', "y,\"['law']\"", "z,[]", "w,[draft", 'v,"[3, 17]"']
    data = read(write("a.csv", "text,label\n" + "\n".join(lines)))
    assert [row.labels for row in data.rows] == [("sport", "law"), ("law",), (), ("[draft",), ("3", "17")]
    code = "text,label\nx,\"[__import__('os')]\"\n"
    assert [row.labels for row in read(write("b.csv", code)).rows] == [("[__import__('os')]",)], "only literals count"


def test_columns_hold_0_or_1_in_any_usual_spelling(write: Write) -> None:
    path = write("a.csv", "text,a,b,c\nx,1,0,true\ny,FALSE,1.0,0.0\n")
    data = read(path, label_column="c, a")
    assert (data.columns, data.classes) == (("text", "c", "a"), ("c", "a"))
    assert matrix(data) == (("c", "a"), [[1, 1], [0, 0]])
    message = refused(write("b.csv", "text,a,b\nx,1,\ny,2,0\n"), label_column="a,b")
    assert "line 2 (row 1): 'b' is ''; 0 or 1 was expected" in message
    assert "line 3 (row 2): 'a' is '2'; 0 or 1 was expected" in message
    assert "no column 'd'" in refused(path, label_column="a,d")
    named = write("c.csv", 'text,"a,b"\nx,sport\n')
    assert read(named, label_column="a,b").rows[0].labels == ("sport",), "a column of that very name comes first"
