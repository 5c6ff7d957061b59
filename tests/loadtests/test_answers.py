import json
from typing import Any

import pytest

from loadtests.answers import check_answer


def body(**changes: Any) -> bytes:
    scores = [{"label": "a", "score": 0.75}, {"label": "b", "score": 0.25}]
    result = {"label": "a", "score": 0.75, "scores": scores, "truncated": False, "tokens": 5}
    return json.dumps({"results": [result, result], "usage": {"texts": 2, "tokens": 10}} | changes).encode()


def with_result(**changes: Any) -> bytes:
    good = json.loads(body())["results"]
    return body(results=[good[0], good[1] | changes])


def test_a_right_answer_is_ok_and_tells_its_tokens() -> None:
    answer = check_answer(200, body(), 2)
    assert (answer.outcome, answer.tokens, answer.problem) == ("ok", 10, None)


@pytest.mark.parametrize("status", [429, 503, 504])
def test_a_server_that_protects_itself_refuses(status: int) -> None:
    assert check_answer(status, b"", 2).outcome == "refused"


@pytest.mark.parametrize("status", [0, 301, 400, 404, 500, 502])
def test_other_statuses_and_silence_are_errors(status: int) -> None:
    assert check_answer(status, body(), 2).outcome == "error"


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"[]",
        b'{"error": "model not loaded"}',
        body(results=[]),
        body(results={}),
        body(results=[None, None]),
        body(results=json.loads(body())["results"][:1]),
        body(usage={}),
        body(usage={"tokens": 0}),
        body(usage={"tokens": "10"}),
        with_result(label=None),
        with_result(score=float("nan")),
        with_result(score=float("inf")),
        with_result(score="0.5"),
        with_result(score=True),
        with_result(scores=[]),
        with_result(scores=None),
        with_result(scores=[{"label": "a", "score": float("nan")}]),
        with_result(scores=[0.75]),
    ],
)
def test_a_200_that_classifies_nothing_is_wrong(wrong: bytes) -> None:
    answer = check_answer(200, wrong, 2)
    assert answer.outcome == "wrong"
    assert answer.problem


def test_a_regression_may_have_any_finite_score() -> None:
    assert check_answer(200, with_result(score=-3, scores=[{"label": "x", "score": -3}]), 2).outcome == "ok"
