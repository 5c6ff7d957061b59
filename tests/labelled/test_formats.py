"""Compressed text, Arrow and dataset folders, beside what pyarrow and datasets say is in them."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import DataError
from contract.scores import ProblemType
from contract.storage import sha256_file
from labelled.labels import LabelSet
from labelled.reader import DataOptions, Dataset, read_dataset

Write = Callable[[str, str | bytes], Path]
CSV = "text,label\n" + "".join(f'"text {n},\nü\u2028",{"ab"[n % 2]}\n' for n in range(3000))


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)  # type: ignore[no-any-return]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def read(path: Path, problem_type: ProblemType = "single_label_classification", **options: object) -> Dataset:
    return read_dataset(path, DataOptions(**options), problem_type)  # type: ignore[arg-type]


def refused(path: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **options)  # type: ignore[arg-type]
    assert str(path) in str(caught.value)
    return str(caught.value)


def rows(data: Dataset) -> list[tuple[object, tuple[str, ...]]]:
    return [(row.text, row.labels) for row in data.rows]


# ---- compressed text


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_compressed_text_is_the_text(write: Write, suffix: str, encoding: str) -> None:
    plain = read(write("a.csv", CSV.encode(encoding)), encoding=encoding)
    packed = write(f"a.csv{suffix}", PACKERS[suffix](CSV.encode(encoding)))
    data = read(packed, encoding=encoding)
    assert data.rows == plain.rows
    assert (data.sha256, data.size_bytes) == (sha256_file(packed), packed.stat().st_size)
    lines = '{"text": "x", "label": 1}\n{"text": "y", "label": "1"}\n'
    assert rows(read(write(f"b.JSONL{suffix.upper()}", PACKERS[suffix](lines.encode())))) == [
        ("x", ("1",)),
        ("y", ("1",)),
    ]


@pytest.mark.parametrize("suffix", PACKERS)
def test_parts_that_were_compressed_one_by_one_are_one_file(write: Write, suffix: str) -> None:
    half = len(CSV) // 2
    parts = PACKERS[suffix](CSV[:half].encode()) + PACKERS[suffix](CSV[half:].encode())
    assert len(read(write(f"a.csv{suffix}", parts)).rows) == 3000


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_damaged_compressed_file_is_named(write: Write, suffix: str) -> None:
    whole = PACKERS[suffix](CSV.encode())
    assert "cannot be unpacked" in refused(write(f"cut.csv{suffix}", whole[: len(whole) // 2]))
    assert "cannot be unpacked" in refused(write(f"none.csv{suffix}", "text,label\nx,a\n"))
    message = refused(write(f"byte.csv{suffix}", PACKERS[suffix](b"text,label\ngood,a\nbad \xff,b\n")))
    assert "line 3" in message
    assert "offset 22" in message
    assert "is empty" in refused(write(f"empty.csv{suffix}", PACKERS[suffix](b"")))
    assert "extension ''" in refused(write(f"noname{suffix}", whole))
    assert "compressed inside" in refused(write(f"a.parquet{suffix}", whole))


# ---- Arrow

values = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip), st.sampled_from(["x", "007"])),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)  # files and a first import
@given(values, st.sampled_from(["lz4", "zstd", "uncompressed"]), st.booleans())
def test_arrow_holds_what_pyarrow_says(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[str, str]], codec: str, large: bool
) -> None:
    folder = tmp_path_factory.mktemp("arrow")
    kind = pa.large_string() if large else pa.string()
    texts = pa.array([text for text, _ in content], type=kind)
    table = pa.table({"text": texts, "label": pa.array([label for _, label in content]).dictionary_encode()})
    pyarrow.feather.write_feather(table, str(folder / "a.feather"), compression=codec, chunksize=2)
    with pa.ipc.new_stream(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    want = [(row["text"], (row["label"],)) for row in pyarrow.feather.read_table(folder / "a.feather").to_pylist()]
    assert rows(read(folder / "a.feather")) == want
    assert rows(read(folder / "a.arrow")) == want


def test_arrow_lists_and_missing_values(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b", None], "label": [["x", "y"], [], None]})
    pyarrow.feather.write_feather(table, str(tmp_path / "a.feather"))
    data = read(tmp_path / "a.feather", "multi_label_classification", skip_bad_rows=True)
    assert rows(data) == [("a", ("x", "y")), ("b", ())]
    assert "row 3: the text is missing" in data.problems.shown[0]


def test_a_broken_arrow_file_is_named(write: Write, tmp_path: Path) -> None:
    assert "cannot be read as Arrow" in refused(write("a.arrow", "not at all"))
    assert "is empty" in refused(write("a.feather", ""))
    assert "version 1" in refused(write("old.feather", b"FEA1" + b"\0" * 40))
    table = pa.table({"text": ["a" * 5000, "b"], "label": ["b", "c"]})
    pyarrow.feather.write_feather(table, str(tmp_path / "b.feather"), compression="uncompressed")
    whole = (tmp_path / "b.feather").read_bytes()
    assert "Arrow" in refused(write("cut.feather", whole[: len(whole) // 2]))
    with pa.ipc.new_stream(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    stream = (tmp_path / "s.arrow").read_bytes()
    assert "Arrow" in refused(write("cut.arrow", stream[: len(stream) - 2000]))


# ---- folders of datasets

FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": ["neg", "pos", "never"], "_type": "ClassLabel"},
    "tags": {"feature": {"names": ["x", "y", "z"], "_type": "ClassLabel"}, "_type": "List"},
}
ROWS = {"text": ["a bad", "good one", "odd"], "label": [0, 1, -1], "tags": [[0, 2], [], [1]]}


def save(folder: Path, features: dict[str, object] = FEATURES, parts: int = 2) -> Path:
    """The layout that datasets 5.2 writes."""
    folder.mkdir(parents=True)
    names = [f"data-{part:05d}-of-{parts:05d}.arrow" for part in range(parts)]
    table = pa.table(ROWS)
    for part, name in enumerate(names):
        start, end = len(table) * part // parts, len(table) * (part + 1) // parts
        with pa.ipc.new_stream(str(folder / name), table.schema) as writer:
            writer.write_table(table.slice(start, end - start))
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


def test_a_dataset_folder_has_names_for_its_classes(tmp_path: Path) -> None:
    folder = save(tmp_path / "train")
    assert "row 3: no label" in refused(folder)
    data = read(folder, skip_bad_rows=True)
    assert rows(data) == [("a bad", ("neg",)), ("good one", ("pos",))]
    assert LabelSet.from_data(data).names == ("neg", "pos", "never"), "the order of the data set, unused ones included"
    several = read(folder, "multi_label_classification", label_column="tags")
    assert [row.labels for row in several.rows] == [("x", "z"), (), ("y",)]
    assert several.classes == ("x", "y", "z")
    files = sorted(folder.glob("*.arrow"))
    assert data.size_bytes == sum(file.stat().st_size for file in files)
    assert data.fingerprint()["file"] == "train"
    (folder / "state.json").touch()
    assert read(folder, skip_bad_rows=True).sha256 == data.sha256
    other = save(tmp_path / "other", parts=1)
    assert read(other, skip_bad_rows=True).sha256 != data.sha256


def test_older_ways_to_note_a_list_of_classes(tmp_path: Path) -> None:
    names = FEATURES["tags"]["feature"]
    for number, feature in enumerate(([names], {"feature": names, "length": -1, "_type": "Sequence"})):
        folder = save(tmp_path / str(number), FEATURES | {"tags": feature})
        assert read(folder, "multi_label_classification", label_column="tags").classes == ("x", "y", "z")


def test_the_notes_in_parquet_and_arrow_files_count_too(tmp_path: Path) -> None:
    note = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()}
    table = pa.table(ROWS).replace_schema_metadata(note)
    pq.write_table(table, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(table, str(tmp_path / "a.arrow"))
    for name in ("a.parquet", "a.arrow"):
        assert rows(read(tmp_path / name, skip_bad_rows=True)) == [("a bad", ("neg",)), ("good one", ("pos",))]
    bad = pa.table(ROWS | {"label": [0, 3, 1]}).replace_schema_metadata(note)
    pq.write_table(bad, tmp_path / "b.parquet")
    assert "row 2: the class number 3 in 'label', which has 3 classes" in refused(tmp_path / "b.parquet")


def test_a_folder_that_is_no_data_set_says_what_to_give(tmp_path: Path) -> None:
    save(tmp_path / "all" / "train")
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    message = refused(tmp_path / "all")
    assert "the splits 'test', 'train'" in message
    assert f"for example {tmp_path / 'all' / 'train'}" in message
    (tmp_path / "plain").mkdir()
    assert "is a folder; give one data file" in refused(tmp_path / "plain")
    gap = save(tmp_path / "gap")
    (gap / "data-00001-of-00002.arrow").unlink()
    assert "'data-00001-of-00002.arrow', which is not in the folder" in refused(gap)
    state = json.loads((gap / "state.json").read_text())
    (gap / "state.json").write_text(json.dumps(state | {"_data_files": [{"filename": "../x.arrow"}]}))
    assert "not in the folder" in refused(gap)
    (gap / "state.json").write_text(json.dumps(state | {"_data_files": []}))
    assert "lists no data files" in refused(gap)
    (gap / "state.json").write_text(json.dumps(state | {"_indices_data_files": [{"filename": "i.arrow"}]}))
    assert "flatten_indices" in refused(gap)
    (gap / "state.json").write_text("[")
    with pytest.raises(DataError, match=r"state\.json is not valid JSON"):
        read(gap)


def test_what_datasets_itself_writes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the layout above is a copy of what it writes")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos", "never"]),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["x", "y", "z"])),
        }
    )
    made = datasets.Dataset.from_dict(ROWS, features=features)
    made.save_to_disk(str(tmp_path / "one"), num_shards=2)
    again = datasets.load_from_disk(str(tmp_path / "one"))
    name = again.features["label"].int2str
    want = [(row["text"], (name(row["label"]),)) for row in again if row["label"] >= 0]
    assert rows(read(tmp_path / "one", skip_bad_rows=True)) == want
    datasets.DatasetDict({"train": made, "test": made}).save_to_disk(str(tmp_path / "dict"))
    assert "splits 'test', 'train'" in refused(tmp_path / "dict")
    assert rows(read(tmp_path / "dict" / "test", skip_bad_rows=True)) == want
