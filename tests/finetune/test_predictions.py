import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import finetune.predictions
from contract.encoding import EncodedText, TextEncoder
from contract.errors import DataError
from contract.scores import Calibration
from finetune.evaluate import evaluate_file
from finetune.predictions import count_rows, write_predictions
from labelled.reader import DataOptions
from tests.tiny import tiny_tokenizer

Write = Callable[[str, str | bytes], Path]


class Lengths:
    """Says "long" for texts of more than five tokens."""

    name, labels, renames = "lengths", ("short", "long"), {"s": "short", "l": "long"}
    calibration, trained_on = Calibration(), {}

    def __init__(self, problem_type: str = "single_label_classification") -> None:
        self.problem_type = problem_type
        self.text_encoder = TextEncoder(tiny_tokenizer(), max_length=32, pad_token_id=0)

    def logits(self, texts: Sequence[EncodedText]) -> np.ndarray:
        length = np.array([len(text.input_ids) for text in texts]) - 5.5
        return np.stack([-length, length], axis=1).astype(np.float32)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_csv_and_jsonl_hold_the_same_in_order_across_windows(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetune.predictions, "WINDOW_ROWS", 3)
    texts = ["a", 'said "no",\nthen left the room', "b", "店", "a long long text about films", "c", "=1+1"]
    data = write("in.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
    done: list[int] = []
    written = write_predictions(
        Lengths(), data, DataOptions(), tmp_path / "out.csv", all_scores=True, advance=done.append
    )
    assert (written.rows, written.skipped, written.truncated, sum(done)) == (7, 0, 0, 7)
    rows = read_csv(tmp_path / "out.csv")
    assert [row["text"] for row in rows] == texts
    assert list(rows[0]) == ["row", "text", "label", "score", "score_short", "score_long"]
    assert [row["row"] for row in rows] == list("1234567")
    assert rows[1]["label"] == rows[4]["label"] == "long"
    assert rows[0]["label"] == "short"
    write_predictions(Lengths(), data, DataOptions(), tmp_path / "out.jsonl", all_scores=True)
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    for row, answer in zip(rows, answers, strict=True):
        assert (row["text"], row["label"], float(row["score"])) == (answer["text"], answer["label"], answer["score"])
        assert answer["score"] == max(answer["scores"].values())
        assert sum(answer["scores"].values()) == pytest.approx(1, abs=2e-6)


def test_rows_keep_their_numbers_when_others_are_left_out(write: Write, tmp_path: Path) -> None:
    data = write("in.csv", "text,more\nfirst,x\n,y\nthird,z\n")
    with pytest.raises(DataError, match="row 2"):
        count_rows(data, DataOptions())
    options = DataOptions(skip_bad_rows=True)
    assert count_rows(data, options) == 2
    written = write_predictions(Lengths(), data, options, tmp_path / "out.csv")
    assert (written.rows, written.skipped) == (2, 1)
    assert [row["row"] for row in read_csv(tmp_path / "out.csv")] == ["1", "3"]


def test_pairs_have_both_texts(write: Write, tmp_path: Path) -> None:
    data = write("in.tsv", "sentence1\tsentence2\na\tb\nc\t\n")
    write_predictions(Lengths(), data, DataOptions(), tmp_path / "out.csv")
    assert [(row["text"], row["text_pair"]) for row in read_csv(tmp_path / "out.csv")] == [("a", "b"), ("c", "")]


def test_several_labels_are_those_from_the_threshold(write: Write, tmp_path: Path) -> None:
    data = write("in.txt", "a\na long long text about films\n")
    scorer = Lengths("multi_label_classification")
    write_predictions(scorer, data, DataOptions(header=False), tmp_path / "out.csv")
    assert [row["labels"] for row in read_csv(tmp_path / "out.csv")] == ["short", "long"]


def test_a_failure_in_the_middle_leaves_the_old_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetune.predictions, "WINDOW_ROWS", 1)
    out = write("out.csv", "precious")
    scorer = Lengths()
    answers = iter([scorer.logits])
    monkeypatch.setattr(scorer, "logits", lambda batch: next(answers)(batch))
    data = write("in.txt", "a\nb\n")
    with pytest.raises(StopIteration):
        write_predictions(scorer, data, DataOptions(header=False), out)
    assert out.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.csv"]


def test_evaluation_counts_truncation_and_renames_labels(write: Write) -> None:
    data = write("in.csv", "text,label\na,s\na long long text about films,l\n" + "word " * 90 + ",short\n")
    figures = evaluate_file(Lengths(), data, DataOptions(), renames={})
    assert (figures["truncated_rows"], figures["rows"]) == (1, 3)
    assert figures["confusion"] == [[1, 1], [0, 1]]
    swapped = evaluate_file(Lengths(), data, DataOptions(), renames={"s": "long", "l": "short"})
    assert swapped["confusion"] == [[0, 2], [1, 0]]
    with pytest.raises(DataError, match="the model lengths never had: 'q'"):
        evaluate_file(Lengths(), write("other.csv", "text,label\na,q\n"), DataOptions(), renames={})


def test_classes_without_names_are_known_by_number(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lengths, "labels", ("LABEL_0", "LABEL_1"))
    monkeypatch.setattr(Lengths, "renames", {})
    data = write("in.csv", "text,label\na,0\na long long text about films,1\nb,LABEL_1\n")
    assert evaluate_file(Lengths(), data, DataOptions(), renames={})["confusion"] == [[1, 0], [1, 1]]
