import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import DataError
from loadtests.payloads import (
    MAX_WORDS,
    MEDIAN_WORDS,
    STRATA,
    load_payloads,
    payloads,
    save_payloads,
    synthetic_texts,
    texts_from_file,
)


def test_one_seed_is_one_traffic_and_another_seed_another() -> None:
    assert synthetic_texts(100, seed=3) == synthetic_texts(100, seed=3)
    assert synthetic_texts(100, seed=3) != synthetic_texts(100, seed=4)


def test_the_traffic_is_the_same_in_every_process_and_version() -> None:
    """A frozen sample: reports of different days may be compared."""
    text = synthetic_texts(1, seed=0)[0]
    assert text == synthetic_texts(4096, seed=0)[0]
    assert text.startswith(SAMPLE)


SAMPLE = "A try need think order community time company person word able"


def test_lengths_are_log_normal() -> None:
    words = np.array([len(text.split()) for text in synthetic_texts(4096, seed=1)])
    assert np.median(words) == pytest.approx(MEDIAN_WORDS, rel=0.05)
    assert np.log(words).std() == pytest.approx(0.9, rel=0.1)
    assert words.min() >= 1
    assert words.max() <= MAX_WORDS


def test_any_stretch_has_nearly_the_same_mix() -> None:
    """A faster server reads further; it must not meet shorter texts. Plain random draws differ several times more."""
    words = np.array([len(text.split()) for text in synthetic_texts(64 * STRATA, seed=2)])
    rng = np.random.default_rng(0)
    starts = rng.integers(len(words) - 320, size=200)
    ours = np.std([words[start : start + 320].mean() for start in starts])
    shuffled = rng.permutation(words)
    plain = np.std([shuffled[start : start + 320].mean() for start in starts])
    assert ours < plain / 2.5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1), min_size=1))
def test_a_file_gives_only_its_own_lines(lines: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.txt"
        path.write_text("\ufeff" + "\n".join(lines) + "\n\n", encoding="utf-8")
        kept = {line for line in lines if line.strip()}
        if kept:
            assert set(texts_from_file(path, 64, seed=0)[0]) <= kept
        else:
            with pytest.raises(DataError, match="has no text"):
                texts_from_file(path, 64, seed=0)


def test_a_file_is_drawn_over_its_whole_range_of_lengths(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join("x" * n for n in range(1, 321)))
    lengths = [len(text) for text in texts_from_file(path, 4 * STRATA, seed=0)[0]]
    for block in (2, 4, 8, 16, 32):
        for start in range(0, len(lengths), block):
            share = 320 / block
            ordered = sorted(lengths[start : start + block])
            assert all(share * n < length <= share * (n + 1) for n, length in enumerate(ordered))
    assert lengths[:STRATA] != lengths[STRATA : 2 * STRATA]


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "has no text"), (b" \n\n", "has no text"), (b"caf\xe9", "not UTF-8 .byte 3.")]
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        texts_from_file(path, 10, seed=0)
    with pytest.raises(DataError, match="No such file"):
        texts_from_file(tmp_path / "absent", 10, seed=0)


def test_bodies_come_back_as_they_were_written(tmp_path: Path) -> None:
    traffic = payloads(['He said "no"\\', "日本語 ☃", "\x00\x1f"])
    digest = save_payloads(tmp_path / "payloads.jsonl", traffic)
    assert load_payloads(tmp_path / "payloads.jsonl") == traffic
    assert [json.loads(item.body)["inputs"] for item in traffic] == ['He said "no"\\', "日本語 ☃", "\x00\x1f"]
    assert digest == save_payloads(tmp_path / "again.jsonl", traffic)
    assert digest != save_payloads(tmp_path / "other.jsonl", traffic[:2])


def test_labels_stay_with_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": "x" * n, "label": str(n)}) + "\n" for n in range(1, 65)))
    texts, labels = texts_from_file(path, 128, seed=0)
    assert labels == [str(len(text)) for text in texts]
    traffic = payloads(texts, labels=labels, batch=3)
    assert len(traffic) == 42
    assert traffic[1].labels == tuple(labels[3:6])
    assert json.loads(traffic[1].body)["inputs"] == texts[3:6]
    save_payloads(tmp_path / "payloads.jsonl", traffic)
    assert load_payloads(tmp_path / "payloads.jsonl") == traffic


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\nno\n', "line 2"),
        ('{"text": 3}\n', "line 1"),
        ('["a"]\n', "line 1"),
        ('{"text": "a", "label": 1}\n', "line 1"),
        ('{"text": "a", "label": "x"}\n{"text": "b"}\n', "labels for some texts only"),
    ],
)
def test_a_bad_row_is_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        texts_from_file(path, 10, seed=0)
