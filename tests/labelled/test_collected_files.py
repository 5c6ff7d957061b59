"""Files that broke other tools, with the right answers beside them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract.errors import DataError
from labelled.labels import LabelSet
from labelled.reader import DataOptions, Dataset, read_dataset

ROOT = Path(__file__).parents[2]


def read(path: Path, **options: object) -> Dataset:
    return read_dataset(path, DataOptions(**options), "single_label_classification")  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def answers(cases: Path) -> dict[str, dict[str, object]]:
    return json.loads((cases / "expected_data.json").read_text("utf-8"))  # type: ignore[no-any-return]


OPTIONS: dict[str, dict[str, object]] = {
    "B01_bom.csv": {},
    "B01_bom_quoted_header.csv": {},
    "B01_bom_noheader.tsv": {"header": False, "text_column": "1", "label_column": "0"},
    "B01_bom.jsonl": {},
    "B01_bom_inside_text.csv": {},
    "B02_gbk.csv": {"encoding": "gbk"},
    "B02_latin1.csv": {"encoding": "latin-1"},
    "B02_utf16.csv": {"encoding": "utf-16"},
    "B03_sst2_like.tsv": {},
    "B03_cola_like_noheader.tsv": {"header": False, "text_column": "3", "label_column": "1"},
    "B06_one_based.csv": {},
    "B06_minus_plus.csv": {},
    "B06_gaps.csv": {},
    "B07_train.csv": {},
    "B07_singleton.csv": {},
    "B09_float_labels.csv": {},
    "B09_leading_zero.csv": {},
    "B09_bools.csv": {},
    "B15_long_field.csv": {},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_readable_files(cases: Path, answers: dict[str, dict[str, object]], name: str) -> None:
    want = answers[name]
    data = read(cases / name, **OPTIONS[name])
    classes = LabelSet.from_data(data, least=1).names
    if "labels" in want:
        assert sorted(classes) == sorted(want["labels"])
    if "num_labels" in want:
        assert len(classes) == want["num_labels"]
    if "rows" in want:
        assert len(data.rows) == want["rows"]
    if "columns" in want and want["columns"] is not None:
        assert list(data.columns) == want["columns"]
    for key, position in (("first_text", 0), ("second_text", 1), ("last_text", -1)):
        if key in want:
            assert data.rows[position].text == want[key]
    if "chars_first" in want:
        assert len(data.rows[0].text) == want["chars_first"]


def test_the_order_of_numeric_labels_is_by_number(cases: Path) -> None:
    assert LabelSet.from_data(read(cases / "B06_gaps.csv")).names == ("0", "3", "17", "900")


def test_a_mark_inside_a_text_is_data(cases: Path) -> None:
    assert read(cases / "B01_bom_inside_text.csv").rows[0].text == "\ufeffstarts with a real U+FEFF"


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("B02_one_bad_byte.csv", ["line 3", f"offset {len(b'text,label') + 1 + len(b'first good row,pos') + 1 + 7}"]),
        ("B02_gbk.csv", ["--encoding"]),
        ("B02_latin1.csv", ["--encoding"]),
        ("B02_utf16.csv", ["--encoding utf-16"]),
        ("B05_null_words.csv", ["2 of 10 rows", "(row 9)", "(row 10)"]),
        ("B05_missing_label.csv", ["2 of 4 rows", "(row 2)", "(row 4)"]),
        (
            "B09_mixed.jsonl",
            ["line 3", "line 4", "line 5", "line 7", "number 12345", "no label", "no 'text'", "a list"],
        ),
        ("B13_ragged.csv", ["line 3", "line 4", "line 5", "line 7", "3 columns", "1 column ", "text is empty"]),
        ("B13_pairs.tsv", ["2 of 6 rows", "(row 4)", "(row 5)"]),
    ],
)
def test_unusable_rows_are_reported_with_their_place(cases: Path, name: str, places: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read(cases / name)
    for place in (name, *places):
        assert place in str(caught.value)


@pytest.mark.parametrize(
    ("name", "texts", "labels"),
    [
        ("B05_null_words.csv", ["null", "NA", "None", "nan", "N/A", "inf", "TRUE", "1e5"], None),
        ("B05_missing_label.csv", None, {"0", "1"}),
        ("B09_mixed.jsonl", ["id as number", "id as string", "extra key"], {"0", "1"}),
        ("B13_ragged.csv", ["good film"], {"pos"}),
        (
            "B13_pairs.tsv",
            [
                ("How old is it?", "What is its age?"),
                ("Only one side", ""),
                ("", "only the other side"),
                ("None", "null"),
            ],
            {"0", "1"},
        ),
    ],
)
def test_the_rest_of_such_files_is_read_when_asked(
    cases: Path, name: str, texts: list[str] | None, labels: set[str] | None
) -> None:
    data = read(cases / name, skip_bad_rows=True)
    if texts is not None:
        assert [row.text for row in data.rows] == texts
    if labels is not None:
        assert set(data.label_counts()) == labels


def test_a_label_that_train_never_had_is_named_with_file_and_row(cases: Path) -> None:
    classes = LabelSet.from_data(read(cases / "B07_train.csv"))
    with pytest.raises(DataError) as caught:
        classes.check(read(cases / "B07_dev.csv"), "the training file")
    for part in ("B07_dev.csv", "'culture'", "1 row", "line 3 (row 2)"):
        assert part in str(caught.value)


def test_reading_does_not_depend_on_the_locale(cases: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from labelled.reader import *; "
        "rows = iter(RowReader(Path(sys.argv[1]), DataOptions(encoding=sys.argv[2]), None)); "
        "sys.stdout.buffer.write(next(rows).text.encode())"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    for name, encoding, expected in (
        ("B02_gbk.csv", "gbk", "这家店很好"),
        ("B01_bom.csv", "utf-8", "hello there"),
    ):
        command = [sys.executable, "-c", code, str(cases / name), encoding]
        result = subprocess.run(command, env=environment, capture_output=True, check=True)
        assert result.stdout.decode() == expected
