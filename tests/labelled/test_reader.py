import json
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import DataError, UsageError
from contract.scores import ProblemType
from labelled.reader import DataOptions, Dataset, RowReader, read_dataset

Write = Callable[[str, str | bytes], Path]


def read(path: Path, problem_type: ProblemType = "single_label_classification", **options: object) -> Dataset:
    return read_dataset(path, DataOptions(**options), problem_type)  # type: ignore[arg-type]


def texts(data: Dataset) -> list[object]:
    return [row.text for row in data.rows]


def labels(data: Dataset) -> list[tuple[str, ...]]:
    return [row.labels for row in data.rows]


def refused(path: Path, problem_type: ProblemType = "single_label_classification", **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read(path, problem_type, **options)
    return str(caught.value)


# ---- formats


def test_csv_is_quoted_and_may_hold_line_breaks(write: Write) -> None:
    data = read(write("a.csv", 'text,label\r\n"one, ""two""\nthree",x\r\nplain,y\r\n'))
    assert texts(data) == ['one, "two"\nthree', "plain"]
    assert [(row.row, row.line) for row in data.rows] == [(1, 2), (2, 4)]


def test_tsv_quotes_are_text_and_only_lf_ends_a_line(write: Write) -> None:
    data = read(write("a.tsv", 'text\tlabel\r\n" opens\tx\r\nsep\u2028 nel\x85 ff\x0c\ty\r\nlast"\tx'))
    assert texts(data) == ['" opens', "sep\u2028 nel\x85 ff\x0c", 'last"']


def test_quoting_can_be_set_against_the_extension(write: Write) -> None:
    assert texts(read(write("a.tsv", 'text\tlabel\n"a\tb"\tx\n'), quoted=True)) == ["a\tb"]
    assert texts(read(write("a.csv", 'text,label\n"a,x\n'), quoted=False)) == ['"a']


def test_a_quote_that_never_closes_is_not_half_of_the_file(write: Write) -> None:
    path = write("a.csv", 'text,label\nfine,x\n"open,y\nlost,x\n')
    assert "line 3" in refused(path)
    assert "line 3" in refused(path, skip_bad_rows=True), "skipping would drop the rest of the file as one row"


def test_other_delimiters(write: Write) -> None:
    path = write("a.csv", "text;label\nwell, yes;x\n")
    assert texts(read(path, delimiter=";")) == ["well, yes"]
    assert "--delimiter ';'" in refused(path)
    with pytest.raises(UsageError, match="one character"):
        read(path, delimiter="ab")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_without_a_header_columns_are_positions(write: Write, name: str) -> None:
    mark = "," if name.endswith("csv") else "\t"
    path = write(name, f"first{mark}x\nsecond{mark}y\n")
    assert texts(read(path, header=False)) == ["first", "second"]
    swapped = read(path, header=False, text_column="1", label_column="0")
    assert texts(swapped) == ["x", "y"]
    assert labels(swapped) == [("first",), ("second",)]
    assert "--no-header" in refused(path)


def test_jsonl_keeps_numbers_as_written(write: Write) -> None:
    lines = ['{"text": "a", "label": 1}', '{"text": "b", "label": "1"}', '{"text": "c", "label": 1.0}']
    lines += ['{"text": "d", "label": true}', '{"text": "e", "label": 12345678901234567890}', ""]
    data = read(write("a.jsonl", "\n".join(lines)))
    assert labels(data) == [("1",), ("1",), ("1.0",), ("true",), ("12345678901234567890",)]


def test_a_json_array_gets_advice(write: Write) -> None:
    assert "one object per line" in refused(write("a.json", '[{"text": "a", "label": "b"}]'))


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "Text": pa.array(["a", "b", None, "d"]),
            "label": pa.array([7, 8, 9, None], pa.int64()),
            "meta": [{"x": 1}] * 4,
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    message = refused(tmp_path / "a.parquet")
    assert "row 3: the text is missing" in message
    assert "row 4: no label" in message
    data = read(tmp_path / "a.parquet", skip_bad_rows=True)
    assert (texts(data), labels(data), data.problems.total) == (["a", "b"], [("7",), ("8",)], 2)
    categories = pa.table({"text": ["a", "b"], "label": pa.array(["x", "y"]).dictionary_encode()})
    pq.write_table(categories, tmp_path / "b.parquet")
    assert labels(read(tmp_path / "b.parquet")) == [("x",), ("y",)]


def test_a_broken_parquet_file_is_named(write: Write, tmp_path: Path) -> None:
    assert "cannot be read as Parquet" in refused(write("a.parquet", "not at all"))
    pq.write_table(pa.table({"text": ["a" * 5000], "label": ["b"]}), tmp_path / "b.parquet", compression="none")
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[4:30] = b"\xff" * 26
    (tmp_path / "b.parquet").write_bytes(data)
    assert "Parquet" in refused(tmp_path / "b.parquet")


text_cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t\x00"), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(text_cells, st.sampled_from(["x", "y", "007", "None"])), min_size=1, max_size=5))
def test_any_text_survives_every_format(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    columns = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    json_lines = "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows)
    (folder / "a.jsonl").write_text(json_lines, newline="")
    tsv = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    (folder / "a.tsv").write_bytes(tsv.encode())
    quoted = "".join('"' + text.replace('"', '""') + f'",{label}\n' for text, label in rows)
    (folder / "a.csv").write_bytes(("text,label\n" + quoted).encode())
    for name in ("a.parquet", "a.jsonl", "a.tsv", "a.csv"):
        data = read(folder / name)
        assert [(row.text, row.labels) for row in data.rows] == [(text, (label,)) for text, label in rows], name


# ---- columns


def test_usual_names_are_found_in_order_and_without_case(write: Write) -> None:
    data = read(write("a.csv", "title, SENTENCE ,Category\nt,s,x\n"))
    assert data.columns == ("SENTENCE", "Category")
    assert texts(data) == ["s"]


def test_an_unnamed_index_column_is_never_taken(write: Write) -> None:
    path = write("a.csv", ",words,label\n0,hello,x\n")
    assert "''" in refused(path)
    assert texts(read(path, text_column="words")) == ["hello"]


def test_a_missing_column_is_answered_with_those_that_exist(write: Write) -> None:
    path = write("a.csv", "words,label\nhello,x\n")
    message = refused(path)
    assert "'words'" in message
    assert "--text-column" in message
    assert "no column 'sentence'" in refused(path, text_column="sentence")
    assert "--label-column" in refused(write("b.csv", "text,thing\na,b\n"))


def test_two_columns_of_one_name_are_refused(write: Write) -> None:
    assert "2 columns called 'text'" in refused(write("a.csv", "text,text,label\na,b,c\n"))


def test_pairs_are_found_and_keep_two_sides(write: Write) -> None:
    data = read(write("a.tsv", "premise\thypothesis\tlabel\na\tb\tx\na\t\tx\n\tb\tx\n"))
    assert texts(data) == [("a", "b"), ("a", ""), ("", "b")]
    assert "text is empty" in refused(write("b.tsv", "premise\thypothesis\tlabel\n\t \tx\n"))
    single = read(write("a.tsv", "premise\thypothesis\tlabel\na\tb\tx\n"), text_column="hypothesis")
    assert texts(single) == ["b"]


def test_texts_alone_need_no_label_column(write: Write) -> None:
    reader = RowReader(write("a.txt", "one\ntwo\n"), DataOptions(header=False), None)
    assert [row.text for row in reader] == ["one", "two"]


# ---- rows


def test_all_bad_rows_are_reported_at_once_and_can_be_skipped(write: Write) -> None:
    path = write("a.csv", "text,label\n" + "ok,x\n" + ",x\n" * 12)
    message = refused(path)
    assert "12 of 13 rows" in message
    assert "line 3 (row 2): the text is empty" in message
    assert "and 2 more" in message
    data = read(path, skip_bad_rows=True)
    assert (len(data.rows), data.problems.total, data.fingerprint()["skipped_rows"]) == (1, 12, 12)
    assert "no usable row" in refused(write("b.csv", "text,label\n,x\n"), skip_bad_rows=True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("text,label\n", "a header and no rows"),
        ("\ufeff", "is empty"),
    ],
)
def test_files_without_rows(write: Write, content: str, expected: str) -> None:
    assert expected in refused(write("a.csv", content))


def test_files_that_are_none(tmp_path: Path, write: Write) -> None:
    assert "does not exist" in refused(tmp_path / "none.csv")
    assert "is a folder" in refused(tmp_path)
    assert "extension '.doc'" in refused(write("a.doc", "x"))
    with pytest.raises(UsageError, match="klingon"):
        read(write("a.csv", "text,label\na,b\n"), encoding="klingon")
    with pytest.raises(UsageError, match="base64"):
        read(write("a.csv", "text,label\na,b\n"), encoding="base64")


def test_half_a_surrogate_pair_is_reported(write: Write) -> None:
    assert "surrogate" in refused(write("a.jsonl", r'{"text": "cut \ud83d", "label": "x"}'))


def test_words_that_look_like_nothing_are_labels_but_nan_and_blank_are_missing(write: Write) -> None:
    data = read(write("a.csv", "text,label\na,None\nb,null\nc,NA\nd,-100\n"))
    assert labels(data) == [("None",), ("null",), ("NA",), ("-100",)]
    message = refused(write("b.csv", "text,label\na,\nb,nan\nc, \nd,NaN\n"))
    assert message.count("line") == 4


# ---- tasks


def test_several_labels(write: Write) -> None:
    lines = ['{"text": "a", "label": ["x", "y", "x"]}', '{"text": "b", "label": []}', '{"text": "c", "label": "x"}']
    data = read(write("a.jsonl", "\n".join(lines)), "multi_label_classification")
    assert labels(data) == [("x", "y"), (), ("x",)]
    split = read(write("a.csv", "text,label\na,x| y\nb,\n"), "multi_label_classification", label_separator="|")
    assert labels(split) == [("x", "y"), ()]
    assert "--task multi_label" in refused(write("b.jsonl", lines[0]))
    assert "no label" in refused(write("c.jsonl", '{"text": "a", "label": null}'), "multi_label_classification")


def test_numbers(write: Write) -> None:
    data = read(write("a.csv", "text,score\na,1.5\nb,-2\nc,1e-3\n"), "regression")
    assert [row.value for row in data.rows] == [1.5, -2.0, 1e-3]
    message = refused(write("b.csv", "text,score\na,high\nb,nan\nc,inf\n"), "regression")
    assert message.count("is not a number") == 3
    json_lines = '{"text": "a", "label": 2}\n{"text": "b", "label": "2.5"}\n'
    assert math.isclose(sum(row.value for row in read(write("a.jsonl", json_lines), "regression").rows), 4.5)


# ---- encodings


def test_a_wrong_byte_is_located(write: Write) -> None:
    path = write("a.csv", b"text,label\n" + b"good,x\n" * 5000 + b"bad \xff byte,y\n")
    message = refused(path)
    offset = path.read_bytes().index(b"\xff")
    assert f"{path}, line 5002" in message
    assert f"offset {offset}" in message
    assert "--encoding" in message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030", "utf-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_encodings_and_one_leading_mark(write: Write, encoding: str, name: str) -> None:
    content = {
        "a.csv": 'text,label\r\n"店, \ufeff",x\r\n',
        "a.tsv": "text\tlabel\n店, \ufeff\tx\n",
        "a.jsonl": '{"text": "店, \ufeff", "label": "x"}\n',
    }[name]
    for mark in ("", "\ufeff") if not encoding.endswith(("sig", "16", "32")) else ("",):
        data = read(write(name, (mark + content).encode(encoding)), encoding=encoding)
        assert texts(data) == ["店, \ufeff"]
        assert labels(data) == [("x",)]


def test_a_utf_16_file_is_recognised_in_the_message(write: Write) -> None:
    assert "--encoding utf-16" in refused(write("a.csv", "text,label\na,b\n".encode("utf-16")))
