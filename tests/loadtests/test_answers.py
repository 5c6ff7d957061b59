import json
from typing import Any

import pytest

from loadtests.answers import Answer
from loadtests.protocols import PROTOCOLS, protocol


def check_answer(status: int, answered: bytes, texts: int) -> Answer:
    return PROTOCOLS["robal"].judge(status, answered, texts)


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


SCORES = [[{"label": "a", "score": 0.2}, {"label": "b", "score": 0.8}], [{"label": "a", "score": 0.9}]]
ANSWERS = {
    "tei": SCORES,
    "hf": SCORES,
    "infinity": {"object": "classify", "data": SCORES, "model": "m", "usage": {"total_tokens": 9}},
    "vllm": {
        "object": "list",
        "data": [{"index": 1, "label": "a", "probs": [0.9, 0.1]}, {"index": 0, "label": "b", "probs": [0.2, 0.8]}],
        "usage": {"total_tokens": 9},
    },
    "oip": {"outputs": [{"name": "label", "datatype": "BYTES", "shape": [2], "data": ["b", "a"]}]},
}


@pytest.mark.parametrize("name", ANSWERS)
def test_other_protocols_are_read_and_judged_alike(name: str) -> None:
    spoken = protocol(name, model="m")
    answer = json.dumps(ANSWERS[name]).encode()
    assert spoken.judge(200, answer, 2, ["b", "a"]).outcome == "ok"
    assert spoken.judge(200, answer, 2, ["b", "a"]).mislabelled == 0
    assert spoken.judge(200, answer, 2, ["a", "a"]).mislabelled == 1
    assert spoken.judge(200, answer, 3).outcome == "wrong"
    assert spoken.judge(200, answer.replace(b"0.8", b"NaN").replace(b'"b", "a"', b"3"), 2).outcome == "wrong"
    for other in (b"{}", b"[]", b"null", b'{"error": "busy"}'):
        assert spoken.judge(200, other, 2).outcome == "wrong", other


def test_other_protocols_are_asked_in_their_own_words() -> None:
    def ask(name: str, *texts: str) -> object:
        return json.loads(protocol(name, model="m").body(texts))

    assert ask("robal", "x") == {"inputs": "x"}
    assert ask("hf", "x", "y") == {"inputs": ["x", "y"]}
    assert ask("tei", "x") == {"inputs": "x", "truncate": True}
    assert ask("tei", "x", "y") == {"inputs": [["x"], ["y"]], "truncate": True}
    assert ask("vllm", "x") == ask("infinity", "x") == {"input": ["x"], "model": "m"}
    assert ask("oip", "x", "y") == {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["x", "y"]}]}
    assert protocol("oip", model="m").path == "/v2/models/m/infer"


def test_scores_of_the_open_inference_protocol_without_labels() -> None:
    answer = {"outputs": [{"name": "logits", "datatype": "FP32", "shape": [2, 2], "data": [0.1, 0.9, 3, -3]}]}
    found = protocol("oip", model="m").judge(200, json.dumps(answer).encode(), 2, ["1", "0"])
    assert (found.outcome, found.mislabelled) == ("ok", 0)
