"""Files cut into units anywhere give the documents that a plain reader finds."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract.errors import DataError, UsageError
from pretrain import documents, sources
from pretrain.documents import read_documents
from pretrain.sources import Reading, Unit, find_corpus

PLAIN = Reading()
lines_st = st.lists(
    st.one_of(
        st.sampled_from(["", " ", "\t", "a", "一二三", "x" * 30, "\ufeffb", "c\r"]),
        st.text("ab é中\u2028\x85", max_size=9),
    ),
    max_size=30,
)


def documents_of(path: Path, step: int, reading: Reading = PLAIN, counts: Counter[str] | None = None) -> list[str]:
    """All documents of a file that is cut into units of ``step`` bytes."""
    counts = Counter() if counts is None else counts
    kind = sources._kind(path)
    assert kind is not None
    size = path.stat().st_size
    found = []
    for start in range(0, size, step):
        unit = Unit(path=path, kind=kind, start=start, end=min(start + step, size), size_bytes=step, modified_ns=0)
        found += list(read_documents(unit, reading, counts))
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(lines=["\ufeff", "b"], step=1, last="")
@given(lines=lines_st, step=st.integers(1, 40), last=st.sampled_from(["", "\n"]))
def test_blank_lines_part_documents_wherever_units_begin(
    tmp_path: Path, lines: list[str], step: int, last: str
) -> None:
    path = tmp_path / "text.txt"
    content = "\n".join(lines) + last
    path.write_bytes(content.encode())
    expected, open_ = [], False
    for line in content.removeprefix("\ufeff").split("\n"):
        if not line.encode().strip():
            open_ = False
        elif open_:
            expected[-1] += "\n" + line
        else:
            expected.append(line)
            open_ = True
    counts: Counter[str] = Counter()
    assert [text.rstrip("\n") for text in documents_of(path, step, counts=counts)] == expected
    assert counts["documents_read"] == len(expected)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(lines=["\ufeffb"], step=1)  # a unit that ends within the byte order mark
@given(lines=lines_st, step=st.integers(1, 40))
def test_a_document_per_line_wherever_units_begin(tmp_path: Path, lines: list[str], step: int) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\n".join(lines).encode())
    expected = [line for line in "\n".join(lines).removeprefix("\ufeff").split("\n") if line.encode().strip()]
    found = documents_of(path, step, Reading(document_per_line=True))
    assert [text.rstrip("\n") for text in found] == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=12), max_size=12), step=st.integers(1, 60), packed=st.booleans())
def test_json_lines(tmp_path: Path, texts: list[str], step: int, packed: bool) -> None:
    content = "".join(json.dumps({"id": 1, "body": text}) + "\n" for text in texts).encode()
    path = tmp_path / ("text.jsonl.gz" if packed else "text.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert documents_of(path, 10**6 if packed else step, Reading(text_field="body")) == texts


def test_parquet_row_groups(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(1000)] + [None, "", "end"]
    table = pa.table({"nested": [{"a": 1, "b": 2}] * len(texts), "text": texts, "n": range(len(texts))})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=300)
    corpus = find_corpus([tmp_path], Reading())
    assert len(corpus.units) == 4
    found = [text for unit in corpus.units for text in read_documents(unit, Reading(), Counter())]
    assert found == [text or "" for text in texts]


@pytest.mark.parametrize("reading", [Reading(), Reading(document_per_line=True)])
@pytest.mark.parametrize("text", ["word " * 100, "字" * 200, "a" * 500, "line\n" * 100])
def test_documents_over_the_limit_are_cut_between_words_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: Reading, text: str
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 64)
    (tmp_path / "t.txt").write_text(text + "\n\nnext", encoding="utf-8")
    counts: Counter[str] = Counter()
    found = documents_of(tmp_path / "t.txt", 7, reading, counts)
    assert "".join(found).replace("\n", "") == text.replace("\n", "") + "next"
    assert max(len(part.encode()) for part in found) <= 64
    assert counts["documents_read"] == len(found)
    if not (reading.document_per_line and "\n" in text):
        assert counts["long_documents_cut"] == len(found) - 2
    if text.startswith("word"):
        assert all(part.startswith("word") for part in found[:-1])


def test_long_records_are_cut_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 64)
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "one line here\n" * 20}))
    found = documents_of(tmp_path / "t.jsonl", 10**6)
    assert "".join(found) == "one line here\n" * 20
    assert max(map(len, found)) <= 64
    monkeypatch.setattr(documents, "MAX_RECORD_BYTES", 100)
    with pytest.raises(DataError, match="is this a JSON-lines file"):
        documents_of(tmp_path / "t.jsonl", 10**6)


def test_a_wrong_byte_is_refused_with_its_place_or_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"first\n\nsecond\nline\n\n" + "naïve café\n\n".encode("latin-1") + b"last")
    with pytest.raises(DataError, match=r"mixed\.txt, line 6, byte 22: 0xef is not UTF-8; convert"):
        documents_of(path, 1000)
    counts: Counter[str] = Counter()
    assert documents_of(path, 5, Reading(bad_files="skip"), counts) == ["first\n", "second\nline\n", "last"]
    assert counts["undecodable_documents"] == 1
    assert counts["documents_read"] == 4


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "has no text in the field 'text'"),
        ('{"text": 3}', "has no text"),
        ("[" * 10**5, "JSON"),
    ],
)
def test_a_broken_record_is_refused_with_its_line_or_skipped(tmp_path: Path, record: str, message: str) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "good"}\n' + record + "\n")
    with pytest.raises(DataError, match=rf"t\.jsonl, line 2: the record .*{message}"):
        documents_of(tmp_path / "t.jsonl", 1000)
    counts: Counter[str] = Counter()
    assert documents_of(tmp_path / "t.jsonl", 1000, Reading(bad_files="skip"), counts) == ["good"]
    assert counts["malformed_records"] == 1


def test_damaged_and_vanished_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "some text"}\n' * 1000)[:-20])
    with pytest.raises(DataError, match=r"t\.jsonl\.gz is a damaged gzip file"):
        documents_of(path, 10**6)
    path.write_bytes(b"\x1f\x8bnot gzip at all")
    with pytest.raises(DataError, match=r"t\.jsonl\.gz is a damaged gzip file"):
        documents_of(path, 10**6)
    unit = Unit(path=tmp_path / "gone.txt", kind="txt", start=0, end=9, size_bytes=9, modified_ns=0)
    with pytest.raises(DataError, match=r"gone\.txt cannot be read \(No such file"):
        list(read_documents(unit, Reading(), Counter()))


def test_a_folder_is_read_in_a_fixed_order_without_foreign_and_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.JSONL", "MANIFEST.tsv", ".hidden/x.txt", "notes.md", "empty.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if "empty" in name else "text")
    corpus = find_corpus([tmp_path / "b.txt", tmp_path], Reading())
    assert [path.name for path in corpus.files] == ["b.txt", "a.txt", "empty.txt", "c.JSONL"]
    assert sorted(Path(name).name for name in corpus.ignored) == ["MANIFEST.tsv", "notes.md"]
    assert len(corpus.units) == 3
    assert corpus.size_bytes == 12


def test_what_cannot_be_input_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere does not exist"):
        find_corpus([tmp_path / "nowhere"], Reading())
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(UsageError, match=r"table\.csv has an ending that is not read; expected one of \.txt"):
        find_corpus([tmp_path / "table.csv"], Reading())
    with pytest.raises(DataError, match=r"no file ending in .*other files there: 'table\.csv'"):
        find_corpus([tmp_path], Reading())
    pq.write_table(pa.table({"body": ["x"], "n": [1]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"no column 'text'; its columns are 'body', 'n': pass --text-field"):
        find_corpus([tmp_path / "t.parquet"], Reading())
    with pytest.raises(DataError, match="a column of type int64, not string"):
        find_corpus([tmp_path / "t.parquet"], Reading(text_field="n"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"\x7fELF\x00\x01", "is binary"),
        ("x.txt", "text".encode("utf-16"), "is UTF-16"),
        ("x.parquet", b"text", "is not a Parquet file"),
        ("x.jsonl.gz", b"{}", "is not a gzip file"),
    ],
)
def test_binary_files_are_refused_or_skipped_and_listed(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "good.txt").write_text("text")
    with pytest.raises(DataError, match=rf"{name} {message}.*; convert or remove it, or pass --bad-files skip"):
        find_corpus([tmp_path], Reading())
    corpus = find_corpus([tmp_path], Reading(bad_files="skip"))
    assert [path.name for path in corpus.files] == ["good.txt"]
    assert [Path(skipped).name for skipped in corpus.skipped] == [name]


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and then nonsense")
    with pytest.raises(DataError, match=r"x\.parquet is not a readable Parquet file"):
        find_corpus([tmp_path], Reading())


def test_units_depend_on_the_input_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "UNIT_BYTES", (10, 20))
    monkeypatch.setattr(sources, "UNITS", 4)
    (tmp_path / "a.txt").write_text("x" * 45)
    units = find_corpus([tmp_path], Reading()).units
    assert [(unit.start, unit.end) for unit in units] == [(0, 11), (11, 22), (22, 33), (33, 44), (44, 45)]
    assert len({unit.key() for unit in units}) == 5
    assert [unit.key() for unit in find_corpus([tmp_path / "a.txt"], Reading()).units] == [unit.key() for unit in units]
