"""What each word does for an answer: compared with what /classify says of texts that the test itself makes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.attribution import Part, grouped, without, words
from tests.service.bundles import word_bundle
from tests.service.inprocess import Client, make_api, problem


def explain(client: Client, inputs: Any, **options: Any) -> dict[str, Any]:
    response = client.post("/explain", json={"inputs": inputs, **options})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def score(client: Client, inputs: Any, label: str, *, raw: bool) -> float:
    """One label's score by the other route."""
    answer = client.post("/classify", json={"inputs": inputs, "raw_scores": raw}).json()
    (value,) = (each["score"] for each in answer["results"][0]["scores"] if each["label"] == label)
    return float(value)


def check_drop(client: Client, part: dict[str, Any], whole: Any, rest: Any, label: str) -> None:
    for name, raw in (("score_drop", False), ("logit_drop", True)):
        expected = score(client, whole, label, raw=raw) - score(client, rest, label, raw=raw)
        assert part[name] == pytest.approx(expected, rel=1e-5, abs=1e-5), (part, rest)


def test_drops_are_those_of_the_texts_without_each_word(client: Client) -> None:
    text = "the good film, bad"
    rests = ["good film, bad", "the film, bad", "the good , bad", "the good film bad", "the good film,"]
    for label in (None, "negative", "positive"):
        answer = explain(client, text, **({"label": label} if label else {}))
        best = client.post("/classify", json={"inputs": text}).json()["results"][0]
        assert answer["label"] == (label or best["label"])
        assert answer["score"] == pytest.approx(score(client, text, answer["label"], raw=False))
        assert answer["logit"] == pytest.approx(score(client, text, answer["label"], raw=True))
        assert (answer["tokens"], answer["truncated"]) == (best["tokens"], False)
        assert [part["text"] for part in answer["parts"]] == ["the", "good", "film", ",", "bad"]
        assert (answer["words"], answer["words_per_part"]) == (5, 1)
        for part, rest in zip(answer["parts"], rests, strict=True):
            assert text[part["start"] : part["end"]] == part["text"]
            assert part["side"] == "text"
            check_drop(client, part, text, rest, answer["label"])
        assert answer["usage"] == {"texts": 6, "tokens": 7 + 5 * 6}


def test_both_sides_of_a_pair_have_their_parts(client: Client) -> None:
    pair = {"text": "good film", "text_pair": "bad"}
    answer = explain(client, pair, label="positive")
    assert [(part["side"], part["start"], part["end"]) for part in answer["parts"]] == [
        ("text", 0, 4),
        ("text", 5, 9),
        ("text_pair", 0, 3),
    ]
    for part, rest in zip(
        answer["parts"], [{**pair, "text": "film"}, {**pair, "text": "good"}, {**pair, "text_pair": ""}], strict=True
    ):
        check_drop(client, part, pair, rest, "positive")


@pytest.mark.parametrize(("truncation", "read"), [("right", slice(0, 14)), ("left", slice(6, 20))])
def test_what_is_cut_has_no_parts_and_does_not_move_up(client: Client, truncation: str, read: slice) -> None:
    names = (["good", "bad", "film", "the"] * 5)[:20]
    text = "  ".join(names)
    answer = explain(client, text, truncation=truncation, label="negative")
    assert (answer["truncated"], answer["tokens"], answer["words"]) == (True, 16, 14)
    assert [part["text"] for part in answer["parts"]] == names[read]
    whole = names[read]
    for number, part in enumerate(answer["parts"]):
        assert text[part["start"] : part["end"]] == part["text"]
        rest = whole[:number] + whole[number + 1 :]
        check_drop(client, part, " ".join(whole), " ".join(rest), "negative")


@pytest.fixture(scope="module")
def few(words: Path) -> Iterator[Client]:
    with Client(make_api(words, max_explain_parts=2, max_queue_tokens=60)) as client:
        yield client


def test_more_words_than_parts_are_left_out_together(few: Client) -> None:
    text = "the good film the bad"
    answer = explain(few, text, label="positive")
    assert (answer["words"], answer["words_per_part"]) == (5, 3)
    assert [(part["text"], part["start"], part["end"]) for part in answer["parts"]] == [
        ("the good film", 0, 13),
        ("the bad", 14, 21),
    ]
    for part, rest in zip(answer["parts"], ["the bad", "the good film"], strict=True):
        check_drop(few, part, text, rest, "positive")


def test_parts_never_ask_for_more_than_the_queue_holds(words: Path) -> None:
    with Client(make_api(words, max_queue_tokens=60)) as client:
        answer = explain(client, "good " * 14)
        assert (answer["words_per_part"], len(answer["parts"])) == (7, 2)
        assert answer["usage"]["tokens"] <= 60


def test_blank_texts_have_no_parts(client: Client) -> None:
    for text in ("", " \n", {"text": "", "text_pair": " "}):
        answer = explain(client, text)
        assert (answer["parts"], answer["words"], answer["words_per_part"]) == ([], 0, 1)
        assert answer["usage"]["texts"] == 1


def test_offsets_count_code_points(client: Client) -> None:
    (emoji, good) = explain(client, "👍🏽 good")["parts"]
    assert (emoji["start"], emoji["end"], emoji["text"]) == (0, 2, "👍🏽")
    assert (good["start"], good["end"]) == (3, 7)


def test_labels_of_several_are_explained_one_by_one(tmp_path: Path) -> None:
    bundle = word_bundle(tmp_path / "many", labels=("a", "b", "c"), problem_type="multi_label_classification")
    with Client(make_api(bundle)) as client:
        for label in "abc":
            answer = explain(client, "good film", label=label)
            check_drop(client, answer["parts"][0], "good film", "film", label)


@pytest.mark.parametrize(
    ("body", "field", "sentence"),
    [
        ({"inputs": ["good"]}, "inputs", "must be a string or an object"),
        ({"inputs": {"text": 5}}, "inputs.text", "must be a string"),
        ({}, "inputs", "the field is required"),
        ({"inputs": "good", "top_k": 1}, "top_k", "unknown field"),
        ({"inputs": "good", "label": "neutral"}, "label", "no such label; it has 'negative', 'positive'"),
        ({"inputs": "good", "timeout_ms": 0}, "timeout_ms", "greater than 0"),
        ({"inputs": "\ud83d"}, "inputs", "half of a surrogate pair"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    client: Client, body: dict[str, Any], field: str, sentence: str
) -> None:
    assert sentence in problem(client.post("/explain", content=json.dumps(body)), 400, "invalid_request", field)


def test_other_failures_are_those_of_classify(client: Client) -> None:
    def answer(body: dict[str, Any], **rest: Any) -> httpx.Response:
        return client.post("/explain", json=body, **rest)

    problem(answer({"inputs": "good " * 20, "truncation": "off"}), 422, "text_too_long", "inputs")
    problem(answer({"inputs": "broken"}), 500, "internal_error")
    problem(answer({"inputs": "slow slow", "timeout_ms": 1}), 504, "deadline_exceeded")
    problem(answer({"inputs": "slow slow"}, headers={"x-timeout-ms": "1"}), 504, "deadline_exceeded")
    problem(client.get("/explain"), 405, "method_not_allowed")


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't -- really!! (know)", ["I", "don't", "--", "really", "!!", "(", "know", ")"]),
        ("rock 'n' roll's'", ["rock", "'", "n", "'", "roll's", "'"]),
        ("日本のcafé3個", ["日", "本", "の", "café3", "個"]),
        ("cafe\u0301 हिन्दी", ["cafe\u0301", "हिन्दी"]),
        ("ok👨‍👩‍👧no", ["ok", "👨‍👩‍👧", "no"]),
        ("a_b\u00a0c\td", ["a", "_", "b", "c", "d"]),
        ("\u0301a 漢\ufe00字", ["\u0301", "a", "漢\ufe00", "字"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@given(st.text(max_size=40))
def test_words_hold_every_character_but_spaces_once_and_in_order(text: str) -> None:
    assert "".join(found(text)) == "".join(text.split())
    assert all(start < end for start, end in words(text))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.integers(1, 20))
def test_groups_cover_every_word_within_the_limit(counts: list[int], most: int) -> None:
    sides = [[(2 * word, 2 * word + 1) for word in range(count)] for count in counts]
    parts, size = grouped(sides, most)
    assert len(parts) <= max(most, len(sides))
    covered = [(part.side, at) for part in parts for at in range(part.start, part.end, 2)]
    assert covered == [(side, start) for side, found in enumerate(sides) for start, _ in found]
    smaller = sum(-(-count // (size - 1)) for count in counts) if size > 1 else None
    assert smaller is None or smaller > most, "no more words together than the limit asks for"


@pytest.mark.parametrize(
    ("text", "part", "rest"),
    [
        ("the good film", (4, 8), "the film"),
        ("good film", (0, 4), "film"),
        ("good film ", (5, 9), "good "),
        ("film.", (0, 4), "."),
        ("a (b)", (2, 3), "a b)"),
        ("漢字", (0, 1), "字"),
    ],
)
def test_no_double_space_stays(text: str, part: tuple[int, int], rest: str) -> None:
    assert without((text,), Part(0, *part)) == (rest,)
