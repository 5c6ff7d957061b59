"""The check beside pandas, which counts the same things its own way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.encoding import TextEncoder
from contract.scores import ProblemType
from labelled.check import Finding, Report, examine, lengths
from labelled.reader import DataOptions, RowReader
from labelled.scan import Scan, scan
from tests.tiny import tiny_checkpoint, tiny_tokenizer

Write = Callable[[str, str | bytes], Path]


def scanned(path: Path, problem_type: ProblemType = "single_label_classification", **options: object) -> Scan:
    return scan(RowReader(path, DataOptions(**options), problem_type))  # type: ignore[arg-type]


def found(report: Report, kind: str, file: str | None = None) -> Finding | None:
    hits = [f for f in report.findings if f.kind == kind and file in (None, f.files[-1])]
    assert len(hits) <= 1
    return hits[0] if hits else None


def counts(report: Report, file: str) -> dict[str, int]:
    return {finding.kind: finding.count for finding in report.findings if finding.files[-1] == file}


def folded(texts: pd.Series) -> pd.Series:
    return texts.map(lambda text: " ".join(text.casefold().split()))


words = st.sampled_from(["a", "A", "b", "ß", "SS"])
rows = st.lists(st.tuples(st.lists(words, min_size=1, max_size=2), st.sampled_from("xyz")), min_size=1, max_size=25)


@settings(deadline=None)  # files and a first import
@given(rows, rows)
def test_counts_equal_those_of_pandas(
    tmp_path_factory: pytest.TempPathFactory, train: list[tuple[list[str], str]], dev: list[tuple[list[str], str]]
) -> None:
    folder = tmp_path_factory.mktemp("check")
    frames = []
    for name, content in (("train.csv", train), ("dev.csv", dev)):
        frame = pd.DataFrame([(" ".join(text), label) for text, label in content], columns=["text", "label"])
        frame.to_csv(folder / name, index=False)
        frames.append(frame.assign(key=folded(frame["text"])))
    report = examine([scanned(folder / name) for name in ("train.csv", "dev.csv")])
    left, right = frames
    for name, frame in zip(("train.csv", "dev.csv"), frames, strict=True):
        exact = frame.duplicated(["text", "label"])
        alike = frame.duplicated(["key", "label"])
        got = counts(report, name)
        assert got.get("exact duplicates", 0) == exact.sum()
        assert got.get("near duplicates", 0) == (alike & ~exact).sum()
        conflicts = frame.groupby("key")["label"].nunique() > 1
        assert got.get("conflicting labels", 0) == conflicts.sum()
        if (hit := found(report, "conflicting labels", name)) is not None:
            lines = [n + 2 for n in frame.index[frame["key"].isin(conflicts.index[conflicts])]]
            assert list(hit.places) == lines[:5]
    (pair,) = report.between
    seen = right["key"].isin(left["key"])
    both = right.merge(left[["key", "label"]].drop_duplicates(), how="left", on=["key", "label"], indicator=True)
    assert pair.overlap_rows == seen.sum()
    assert pair.other_label_rows == (seen & (both["_merge"] == "left_only").to_numpy()).sum()
    assert set(pair.only_first) == set(left["label"]) - set(right["label"])
    assert set(pair.only_second) == set(right["label"]) - set(left["label"])
    assert report.scans[0].label_rows == left["label"].value_counts().to_dict()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200))
def test_percentiles_are_the_least_value_that_enough_rows_do_not_exceed(numbers: list[int]) -> None:
    got = lengths(np.array(numbers))
    ordered = sorted(numbers)
    for name, share in (("median", 50), ("p95", 95), ("p99", 99)):
        assert got[name] == next(n for n in ordered if sum(m <= n for m in ordered) * 100 >= share * len(ordered))
    assert (got["least"], got["most"], got["mean"]) == (ordered[0], ordered[-1], pytest.approx(np.mean(numbers)))
    assert lengths(np.zeros(0)) == {}


def test_b10_duplicates_conflicts_and_overlap(cases: Path) -> None:
    report = examine([scanned(cases / "B10_train.csv"), scanned(cases / "B10_test.csv")])
    assert counts(report, "B10_train.csv") == {"conflicting labels": 1, "exact duplicates": 1, "near duplicates": 1}
    assert counts(report, "B10_test.csv") == {"overlap": 2}
    assert report.spoils


def test_b07_unseen_labels_and_labels_of_one_row(cases: Path) -> None:
    report = examine([scanned(cases / "B07_train.csv"), scanned(cases / "B07_dev.csv")])
    hit = found(report, "unseen labels")
    assert hit is not None
    assert (hit.count, hit.places, hit.spoils, "'culture'" in hit.message) == (1, (3,), True, True)
    single = found(examine([scanned(cases / "B07_singleton.csv")]), "labels of one row")
    assert single is not None
    assert "'rare'" in single.message
    assert not single.spoils


def test_b13_and_b05_unusable_rows_are_told_apart(cases: Path) -> None:
    ragged = examine([scanned(cases / "B13_ragged.csv")])
    places = {finding.message.partition(";")[0]: finding.places for finding in ragged.findings if finding.spoils}
    assert places["3 columns where 2 were expected"] == (3, 4)
    assert places["1 column where 2 were expected"] == (5,)
    assert counts(ragged, "B13_ragged.csv")["empty texts"] == 1
    assert counts(examine([scanned(cases / "B05_missing_label.csv")]), "B05_missing_label.csv")["missing labels"] == 1
    assert counts(examine([scanned(cases / "B05_null_words.csv")]), "B05_null_words.csv")["empty texts"] == 2


def test_a_clean_file_has_no_finding(write: Write) -> None:
    lines = "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(20))
    report = examine([scanned(write("a.csv", "text,label\n" + lines))])
    assert (report.findings, report.spoils) == ((), False)
    assert report.as_json()["files"][0]["labels"] == {"a": 10, "b": 10}


def test_a_file_without_a_usable_row_is_reported_too(write: Write) -> None:
    report = examine([scanned(write("a.csv", "text,label\n,a\n")), scanned(write("b.csv", "text,label\nx,a\ny,b\n"))])
    assert counts(report, "a.csv") == {"empty texts": 1}
    assert report.between[0].overlap_rows == 0


def test_drift_is_a_finding_only_if_it_is_not_tiny(write: Write) -> None:
    def file(name: str, a: int, b: int) -> Scan:
        lines = [f"{name} {n},{'a' if n < a else 'b'}\n" for n in range(a + b)]
        return scanned(write(name, "text,label\n" + "".join(lines)))

    assert found(examine([file("a.csv", 300, 300), file("b.csv", 90, 10)]), "label drift") is not None
    tiny = examine([file("c.csv", 20_000, 20_000), file("d.csv", 20_800, 20_000)])
    assert tiny.between[0].drift is not None
    assert tiny.between[0].drift.p < 0.01
    assert found(tiny, "label drift") is None


def test_several_labels_and_values(write: Write) -> None:
    lines = ['{"text": "t", "label": ["x", "y"]}', '{"text": "t", "label": ["y", "x"]}', '{"text": "T", "label": []}']
    report = examine([scanned(write("a.jsonl", "\n".join(lines)), "multi_label_classification")])
    assert counts(report, "a.jsonl") == {"exact duplicates": 1, "conflicting labels": 1}
    assert report.scans[0].label_rows == {"x": 2, "y": 2}
    scores = scanned(write("a.csv", "text,score\na,0\nb,1.5\na,2\n"), "regression")
    assert list(scores.values) == [0.0, 1.5, 2.0]
    conflict = found(examine([scores]), "conflicting labels")
    assert conflict is not None
    assert not conflict.spoils, "two people may score one text differently"


def test_odd_characters_are_found_with_their_lines(write: Write) -> None:
    texts = ["plain", "cafÃ©", "lost \ufffd", "bell \x07", "caf\u00e9", "cafe\u0301"]
    path = write("a.tsv", "text\tlabel\n" + "".join(f"{text}\t{'ab'[n % 2]}\n" for n, text in enumerate(texts)))
    report = examine([scanned(path)])
    got = {finding.kind: finding.places for finding in report.findings}
    assert got == {
        "mojibake": (3,),
        "replacement characters": (4,),
        "control characters": (5,),
        "mixed normal forms": (7,),
    }
    assert not report.spoils
    alone = examine([scanned(write("b.tsv", "text\tlabel\ncafe\u0301\ta\nx\tb\nz\ta\ny\tb\n"))])
    assert alone.findings == (), "one normal form is no mixture"


def test_tokens_and_what_is_cut_equal_an_encoding(write: Write, tmp_path: Path) -> None:
    from encoders.checkpoint import open_checkpoint

    encoder = open_checkpoint(tiny_checkpoint(tmp_path / "m", labels=("a", "b"))).text_encoder
    assert isinstance(encoder, TextEncoder)
    texts = [" ".join(["text 1 good"] * n) for n in range(1, 30)]
    path = write("a.csv", "text,label\n" + "".join(f"{text},{'ab'[n % 2]}\n" for n, text in enumerate(texts)))
    for limit in (8, encoder.max_length):
        cutter = TextEncoder(encoder.tokenizer, max_length=limit, pad_token_id=0)
        report = examine([scan(RowReader(path, DataOptions(), "single_label_classification"), cutter)], limit)
        full = [item.full_length for item in encoder.encode_batch(texts)]
        assert list(report.scans[0].tokens) == full
        tokens = report.as_json()["files"][0]["tokens"]
        assert tokens["cut_rows"] == sum(length > limit for length in full)
        assert tokens["cut_tokens"] == sum(max(0, length - limit) for length in full)


def test_labels_are_looked_at_too(write: Write, cases: Path) -> None:
    path = write("a.csv", "text,label\na,pos\nb,Pos\nc, pos\nd,neg\ne,ne\u0301g\nf,n\u00e9g\n")
    twins = found(examine([scanned(path)]), "labels that look alike")
    assert twins is not None
    assert (twins.count, twins.places) == (5, (2, 3, 4, 6, 7))
    wrong = examine([scanned(cases / "B02_gbk.csv", encoding="latin-1")])
    odd = found(wrong, "odd labels")
    assert odd is not None
    assert odd.count == 3
    assert found(wrong, "mojibake") is not None
    assert found(examine([scanned(cases / "B02_gbk.csv", encoding="gbk")]), "odd labels") is None


def test_classes_without_a_row_are_shown(cases: Path) -> None:
    several: ProblemType = "multi_label_classification"
    report = examine([scanned(cases / "B14_columns.csv", several, label_column="toxic,insult,threat")])
    assert report.as_json()["files"][0]["labels"] == {"toxic": 1, "insult": 1, "threat": 0}
    unused = found(report, "labels without a row")
    assert unused is not None
    assert "'threat'" in unused.message


def test_b15_texts_that_only_their_ends_tell_apart(cases: Path) -> None:
    encoder = TextEncoder(tiny_tokenizer(), max_length=512, pad_token_id=0)
    reader = RowReader(cases / "B15_tail_evidence.csv", DataOptions(), "single_label_classification")
    report = examine([scan(reader, encoder)], 512)
    assert counts(report, "B15_tail_evidence.csv")["truncated"] == 2
    equal = found(report, "equal when truncated")
    assert equal is not None
    assert (equal.count, equal.places) == (1, (2, 3))
    assert found(report, "conflicting labels") is None
    longer = TextEncoder(tiny_tokenizer(), max_length=100_000, pad_token_id=0)
    reader = RowReader(cases / "B15_tail_evidence.csv", DataOptions(), "single_label_classification")
    assert found(examine([scan(reader, longer)], 100_000), "equal when truncated") is None
