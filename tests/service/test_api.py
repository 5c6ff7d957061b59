"""The HTTP application in process, over a real bundle and onnxruntime."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.manifest import load_manifest, load_text_encoder, save_manifest
from contract.scores import softmax
from encoders.checkpoint import load_classifier, open_checkpoint
from service.schemas import ClassifyResponse
from tests.service.bundles import expected_logits, word_bundle
from tests.service.inprocess import Client, make_api, problem
from tests.tiny import TEXTS, tiny_bundle

SHARED = Path(__file__).parents[2].parent / "shared"
COLLECTED = SHARED / "cases" / "open" / "http"


def classify(client: Client, inputs: Any, status: int = 200, **options: Any) -> dict[str, Any]:
    response = client.post("/classify", json={"inputs": inputs, **options})
    assert response.status_code == status, response.text
    return dict(response.json())


def test_scores_are_the_softmax_of_the_models_logits(client: Client) -> None:
    texts = ["good film", "the bad film", "", "  \n\t ", "unknown words here", "good " * 9]
    answer = classify(client, texts)
    ClassifyResponse.model_validate(answer)
    assert answer["model"] == {"name": "words", "family": "roberta", "precision": "fp32"}
    for text, result in zip(texts, answer["results"], strict=True):
        probabilities = softmax(expected_logits(text))
        best = int(probabilities.argmax())
        assert result["label"] == ("negative", "positive")[best]
        assert result["score"] == result["scores"][0]["score"]
        got = {each["label"]: each["score"] for each in result["scores"]}
        np.testing.assert_allclose([got["negative"], got["positive"]], probabilities, atol=1e-6)
        assert result["tokens"] == len(text.split()) + 2
        assert result["truncated"] is False
    assert answer["usage"] == {"texts": 6, "tokens": sum(len(text.split()) + 2 for text in texts)}


def test_one_text_an_object_and_a_list_give_the_same_result(client: Client) -> None:
    single = classify(client, "good film")["results"]
    assert single == classify(client, ["good film"])["results"] == classify(client, {"text": "good film"})["results"]
    assert single == classify(client, [{"text": "good film", "text_pair": None}])["results"]


def test_a_pair_is_not_its_concatenation(client: Client) -> None:
    answer = classify(client, [{"text": "good", "text_pair": "bad film"}, "good bad film"], raw_scores=True)
    pair, single = answer["results"]
    assert (pair["tokens"], single["tokens"]) == (7, 5)
    got = {each["label"]: each["score"] for each in pair["scores"]}
    np.testing.assert_allclose(
        [got["negative"], got["positive"]], expected_logits(("good", "bad film")), rtol=1e-5, atol=1e-5
    )


def test_raw_scores_are_logits_and_top_k_keeps_the_best(tmp_path: Path) -> None:
    labels = ("a", "b", "c", "d")
    with Client(make_api(word_bundle(tmp_path / "b", labels=labels))) as client:
        logits = expected_logits("good bad", 4)
        result = classify(client, "good bad", raw_scores=True, top_k=3)["results"][0]
        order = np.argsort(-logits)[:3]
        assert [each["label"] for each in result["scores"]] == [labels[i] for i in order]
        np.testing.assert_allclose([each["score"] for each in result["scores"]], logits[order], rtol=1e-5)
        assert len(classify(client, "good", top_k=99)["results"][0]["scores"]) == 4
        assert len(classify(client, "good", top_k=None)["results"][0]["scores"]) == 4


def test_scores_follow_the_problem_type(tmp_path: Path) -> None:
    labels = ("a", "b", "c")
    logits = expected_logits("good bad", 3)
    multi = word_bundle(tmp_path / "multi", labels=labels, problem_type="multi_label_classification")
    with Client(make_api(multi)) as client:
        scores = {s["label"]: s["score"] for s in classify(client, "good bad")["results"][0]["scores"]}
        np.testing.assert_allclose([scores[label] for label in labels], 1 / (1 + np.exp(-logits)), atol=1e-6)
        assert classify(client, "good bad")["results"][0]["given"] == [name for name in labels if scores[name] >= 0.5]
        middle = sorted(scores.values())[1]
        for raw in (False, True):
            found = classify(client, "good bad", threshold=middle - 1e-4, top_k=1, raw_scores=raw)["results"][0]
            assert found["given"] == [name for name in labels if scores[name] >= middle - 1e-4]
        problem(client.post("/classify", json={"inputs": "a", "threshold": 2}), 400, "invalid_request", "threshold")
    record = {"checkpoint": {"calibration": {"temperature": 1.0, "thresholds": {"a": 0.0, "b": 1.0}}}}
    save_manifest(multi, replace(load_manifest(multi), provenance=record))
    with Client(make_api(multi)) as client:
        own = [name for name in labels if name == "a" or (name == "c" and scores["c"] >= 0.5)]
        assert classify(client, "good bad")["results"][0]["given"] == own
    value = word_bundle(tmp_path / "value", labels=("score",), problem_type="regression")
    with Client(make_api(value)) as client:
        result = classify(client, "good bad")["results"][0]
        assert (result["label"], result["given"]) == ("score", None)
        assert result["score"] == pytest.approx(float(expected_logits("good bad", 1)[0]), rel=1e-5)


def test_probabilities_are_calibrated_where_the_training_found_a_temperature(tmp_path: Path) -> None:
    plain, warm = word_bundle(tmp_path / "plain"), word_bundle(tmp_path / "warm")
    manifest = load_manifest(warm)
    record = {"checkpoint": {"calibration": {"temperature": 2.5, "thresholds": None, "abstain_below": None}}}
    save_manifest(warm, replace(manifest, provenance=record))
    with Client(make_api(plain)) as one, Client(make_api(warm)) as other:
        raw = classify(one, "good film", raw_scores=True)["results"]
        assert classify(other, "good film", raw_scores=True)["results"] == raw
        found = classify(other, "good film")["results"][0]
        assert found["label"] == raw[0]["label"]
        expected = softmax(expected_logits("good film") / 2.5)
        scores = {each["label"]: each["score"] for each in found["scores"]}
        np.testing.assert_allclose([scores["negative"], scores["positive"]], expected, rtol=1e-5)
        assert other.get("/info").json()["temperature"] == 2.5


def test_a_long_text_is_cut_where_asked_and_says_so(client: Client) -> None:
    long = "good " * 14 + "bad " * 14  # 30 tokens, the limit is 16
    for side, kept in (("right", "good " * 14), ("left", "bad " * 14)):
        result = classify(client, [long, "good"], truncation=side, raw_scores=True)["results"]
        assert [each["truncated"] for each in result] == [True, False]
        assert result[0]["tokens"] == 16
        got = {each["label"]: each["score"] for each in result[0]["scores"]}
        np.testing.assert_allclose([got["negative"], got["positive"]], expected_logits(kept), rtol=1e-5)
    assert classify(client, long)["results"] == classify(client, long, truncation="right")["results"]
    fits = classify(client, "good " * 14, truncation="off")["results"][0]
    assert (fits["tokens"], fits["truncated"]) == (16, False)
    response = client.post("/classify", json={"inputs": ["good", long], "truncation": "off"})
    assert "30 tokens and the limit is 16" in problem(response, 422, "text_too_long", "inputs[1]")
    response = client.post("/classify", json={"inputs": long, "truncation": "off"})
    problem(response, 422, "text_too_long", "inputs")


def test_an_empty_list_has_an_empty_answer(client: Client) -> None:
    answer = classify(client, [])
    assert (answer["results"], answer["usage"]) == ([], {"texts": 0, "tokens": 0})


def test_stage_times_are_in_the_headers(client: Client) -> None:
    response = client.post("/classify", json={"inputs": ["slow", "good film"]})
    times = {name: float(response.headers[f"x-{name}-ms"]) for name in ("tokenize", "queue", "engine", "total")}
    assert all(value >= 0 for value in times.values())
    assert times["engine"] > times["tokenize"]
    assert times["tokenize"] + times["queue"] + times["engine"] <= times["total"]


REFUSED: list[tuple[str, bytes, str | None]] = [
    ("empty", b"", None),
    ("blank", b"  ", None),
    ("not JSON", b"good film", None),
    ("an array", b'["good film"]', None),
    ("null", b"null", None),
    ("two objects", b'{"inputs": "a"}{"inputs": "b"}', None),
    ("no inputs", b"{}", "inputs"),
    ("null inputs", b'{"inputs": null}', "inputs"),
    ("a number", b'{"inputs": 5}', "inputs"),
    ("true", b'{"inputs": true}', "inputs"),
    ("null in a list", b'{"inputs": ["good", null, 5]}', "inputs[1]"),
    ("a list in a list", b'{"inputs": ["good", ["bad"]]}', "inputs[1]"),
    ("a wrong text", b'{"inputs": ["a", "b", "c", {"text": 5}]}', "inputs[3].text"),
    ("a wrong pair", b'{"inputs": {"text": "a", "text_pair": ["b"]}}', "inputs.text_pair"),
    ("half a pair", b'{"inputs": [{"text_pair": "b"}]}', "inputs[0].text"),
    ("unknown field", b'{"inputs": "a", "topk": 1}', "topk"),
    ("unknown field of a text", b'{"inputs": [{"text": "a", "pair": "b"}]}', "inputs[0].pair"),
    ("field of another API", b'{"text": "a"}', "inputs"),
    ("top_k 0", b'{"inputs": "a", "top_k": 0}', "top_k"),
    ("top_k as text", b'{"inputs": "a", "top_k": "1"}', "top_k"),
    ("top_k true", b'{"inputs": "a", "top_k": true}', "top_k"),
    ("top_k 1.0", b'{"inputs": "a", "top_k": 1.0}', "top_k"),
    ("top_k beyond floats", b'{"inputs": "a", "top_k": 1e999}', "top_k"),
    ("top_k of 5,000 digits", b'{"inputs": "a", "top_k": ' + b"9" * 5000 + b"}", None),
    ("raw_scores 1", b'{"inputs": "a", "raw_scores": 1}', "raw_scores"),
    ("raw_scores null", b'{"inputs": "a", "raw_scores": null}', "raw_scores"),
    ("truncation", b'{"inputs": "a", "truncation": "middle"}', "truncation"),
    ("NaN", b'{"inputs": "a", "top_k": NaN}', None),
    ("-Infinity", b'{"inputs": [-Infinity]}', None),
    ("a name twice", b'{"inputs": "first", "inputs": "second"}', "inputs"),
    ("a name twice inside", b'{"inputs": {"text": "a", "text": "b"}}', "text"),
    ("lone surrogate", rb'{"inputs": "a\ud83d"}', "inputs"),
    ("lone surrogate in a list", rb'{"inputs": ["ok", "\udc00b"]}', "inputs[1]"),
    ("lone surrogate in a pair", rb'{"inputs": [{"text": "a", "text_pair": "\ud800"}]}', "inputs[0].text_pair"),
    ("lone surrogate in a name", rb'{"inputs": "a", "\ud83d": 1}', None),
    ("control character in a name", rb'{"inputs": "a", "b\u0000": 1}', r"b\x00"),
    ("raw control character", b'{"inputs": "a\x01b"}', None),
    ("GBK", '{"inputs": "这家店很好"}'.encode("gbk"), None),
    ("UTF-16", '{"inputs": "hello"}'.encode("utf-16"), None),
    ("cut UTF-8", '{"inputs": "é"}'.encode()[:-3], None),
    ("nested 2,000 deep", b'{"inputs": ' + b"[" * 2000 + b"]" * 2000 + b"}", None),
    ("nested 500 deep", b'{"inputs": ' + b"[" * 500 + b"]" * 500 + b"}", "inputs[0]"),
    ("nested and never closed", b'{"inputs": ' + b'{"a":' * 50_000, None),
]


@pytest.mark.parametrize(("body", "field"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_body_that_does_not_fit_is_400_with_the_path(client: Client, body: bytes, field: str | None) -> None:
    message = problem(client.post("/classify", content=body), 400, "invalid_request", field)
    assert message.endswith(".")
    assert len(message) < 300
    assert message.isprintable(), "no bytes of the client come back raw"
    assert client.post("/classify", json={"inputs": "good"}).status_code == 200


ACCEPTED: list[tuple[str, bytes, int]] = [
    ("with a byte order mark", b'\xef\xbb\xbf{"inputs": "good"}', 3),
    ("NUL", rb'{"inputs": "a\u0000b"}', 5),
    ("surrogate pair", rb'{"inputs": "\ud83d\ude00"}', 3),
    ("white space around", b' \n {"inputs":"good"} \n', 3),
    ("text that looks like special tokens", b'{"inputs": "<s> good </s>"}', 9),
    ("another media type", b'{"inputs": "good"}', 3),
]


@pytest.mark.parametrize(("body", "tokens"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_unusual_bodies_that_are_fine(client: Client, body: bytes, tokens: int) -> None:
    response = client.post("/classify", content=body, headers={"content-type": "text/plain"})
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["tokens"] == tokens


EXPECTED_OF_COLLECTED = {  # with "text" and "texts" renamed to our "inputs"
    "B39_bom_body": 200,
    "B39_gbk_body": 400,
    "B39_invalid_utf8": 400,
    "B39_lone_surrogate": 400,
    "B39_nan_literal": 400,
    "B39_nul_escape": 200,
    "B39_raw_control": 400,
    "B39_surrogate_pair": 200,
    "B39_utf16_body": 400,
    "B40_blank_text": 200,
    "B40_deep_nesting": 400,
    "B40_duplicate_keys": 400,
    "B40_empty_body": 400,
    "B40_empty_list": 200,
    "B40_empty_text": 200,
    "B40_list_with_null": 400,
    "B40_not_json": 400,
    "B40_null_text": 400,
    "B40_number_text": 400,
    "B40_string_for_list": 200,
    "B41_evidence_at_the_end": 200,
}


@pytest.mark.skipif(not COLLECTED.is_dir(), reason="the collected request bodies are not beside this checkout")
def test_collected_bodies_have_documented_answers(client: Client) -> None:
    bodies = {path.stem: path.read_bytes() for path in COLLECTED.iterdir()}
    assert set(bodies) == set(EXPECTED_OF_COLLECTED)
    for name, body in bodies.items():
        assert client.post("/classify", content=body).status_code == 400, f"{name} as it is: the field is unknown"
        renamed = body.replace(b'"texts":', b'"inputs":').replace(b'"text":', b'"inputs":')
        if name == "B39_utf16_body":
            renamed = body.decode("utf-16").replace('"text"', '"inputs"').encode("utf-16")
        response = client.post("/classify", content=renamed)
        assert response.status_code == EXPECTED_OF_COLLECTED[name], f"{name}: {response.text}"
        json.loads(response.content, parse_constant=pytest.fail)


def test_limits_are_413_with_their_numbers(words: Path) -> None:
    with Client(make_api(words, max_texts=3, max_chars=10, max_body_bytes=200, max_queue_tokens=20)) as client:
        response = client.post("/classify", json={"inputs": ["a"] * 4})
        assert "4 texts and the limit is 3" in problem(response, 413, "too_large", "inputs")
        response = client.post("/classify", json={"inputs": ["a", {"text": "b", "text_pair": "c" * 11}]})
        assert "11 characters and the limit is 10" in problem(response, 413, "too_large", "inputs[1].text_pair")
        response = client.post("/classify", json={"inputs": "a" * 11})
        problem(response, 413, "too_large", "inputs")
        response = client.post("/classify", json={"inputs": ["a b c d e"] * 3})
        assert "21 tokens and the queue holds 20" in problem(response, 413, "too_large", "inputs")
        assert client.post("/classify", content=b" " * 182 + b'{"inputs": "good"}').status_code == 200
        response = client.post("/classify", content=b" " * 183 + b'{"inputs": "good"}')
        assert "200 bytes" in problem(response, 413, "too_large")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/page", 404, "not_found"),
        ("GET", "/page/nope.js", 404, "not_found"),
        ("GET", "/page/..%2fkeys.py", 404, "not_found"),
        ("POST", "/", 405, "method_not_allowed"),
        ("GET", "/nope", 404, "not_found"),
        ("POST", "/classify/", 404, "not_found"),
        ("GET", "/classify", 405, "method_not_allowed"),
        ("POST", "/readyz", 405, "method_not_allowed"),
        ("DELETE", "/info", 405, "method_not_allowed"),
    ],
)
def test_wrong_paths_and_methods_have_the_same_body(
    client: Client, method: str, path: str, status: int, kind: str
) -> None:
    response = client.request(method, path)
    problem(response, status, kind)
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("given", ["abc-123", "6f1c:9/x=", "x" * 128])
def test_a_plain_request_id_comes_back(client: Client, given: str) -> None:
    for response in (
        client.post("/classify", json={"inputs": "a"}, headers={"x-request-id": given}),
        client.post("/classify", json={"inputs": 5}, headers={"x-request-id": given}),
        client.get("/livez", headers={"x-request-id": given}),
        client.get("/nope", headers={"x-request-id": given}),
    ):
        assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "two words", "line\tbreak", "é"])
def test_another_request_id_is_replaced(client: Client, given: str) -> None:
    first, second = (client.get("/livez", headers={b"x-request-id": given.encode()}) for _ in range(2))
    assert first.headers["x-request-id"] not in ("", given)
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_a_deadline_may_be_a_header_and_the_bodys_own_goes_before_it(client: Client) -> None:
    tight, loose = {"x-timeout-ms": "0.001"}, {"x-timeout-ms": "60000"}
    problem(client.post("/classify", json={"inputs": "good"}, headers=tight), 504, "deadline_exceeded")
    assert client.post("/classify", json={"inputs": "good"}, headers=loose).status_code == 200
    own = {"inputs": "good", "timeout_ms": 60000}
    assert client.post("/classify", json=own, headers=tight).status_code == 200
    for wrong in ("soon", "0", "-5", "nan", "inf"):
        answer = client.post("/classify", json={"inputs": "good"}, headers={"x-timeout-ms": wrong})
        problem(answer, 400, "invalid_request", field="x-timeout-ms")


def test_info_tells_the_model_and_every_limit(client: Client, words: Path) -> None:
    info = client.get("/info").json()
    assert info == {
        "name": "words",
        "family": "roberta",
        "problem_type": "single_label_classification",
        "labels": ["negative", "positive"],
        "max_length": 16,
        "precision": "fp32",
        "provider": "cpu",
        "temperature": 1.0,
        "parameters": 60,
        "unique_parameters": 60,
        "bundle": {"format_version": 1, "size_bytes": (words / "model.onnx").stat().st_size},
        "limits": {
            "max_texts": 1024,
            "max_explain_parts": 64,
            "max_chars": 1_000_000,
            "max_body_bytes": 2_097_152,
            "max_requests": 256,
            "max_batch_tokens": 1024,
            "max_batch_items": 32,
            "max_queue_tokens": 65_536,
            "timeout_s": 30.0,
            "engine_timeout_s": 30.0,
        },
        "robal_version": "0.1.0",
    }


def test_a_wide_batch_gives_each_text_what_it_gets_alone(client: Client) -> None:
    texts = [" ".join(["good", "bad", "film", "the"][: n % 5]) + " the" * (n % 11) for n in range(200)]
    together = classify(client, texts)["results"]
    for text, result in list(zip(texts, together, strict=True))[::17]:
        alone = classify(client, text)["results"][0]
        assert result["label"] == alone["label"]
        assert result["score"] == pytest.approx(alone["score"], abs=1e-6)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_http_gives_the_native_models_logits(family: str, tmp_path: Path) -> None:
    """From a trained checkpoint's modules to the answer: the whole line agrees."""
    labels = ("no", "maybe", "yes")
    bundle = tiny_bundle(tmp_path / "bundle", family=family, labels=labels, max_length=64)
    model = load_classifier(open_checkpoint(tmp_path / ".bundle.checkpoint")).model.eval()
    encoder = load_text_encoder(bundle, load_manifest(bundle))
    inputs: list[str | tuple[str, str]] = [*TEXTS, "", "bad", ("one side", TEXTS[1]), TEXTS[0] * 9]
    request = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in inputs]
    with Client(make_api(bundle)) as client:
        results = classify(client, request, raw_scores=True)["results"]
    for text, result in zip(inputs, results, strict=True):
        arrays = {name: torch.from_numpy(value) for name, value in encoder.pad([encoder.encode(text)]).items()}
        types = arrays["token_type_ids"] if family != "roberta" else None
        with torch.no_grad():
            native = model(arrays["input_ids"], arrays["attention_mask"], types)[0].numpy()
        got = {each["label"]: each["score"] for each in result["scores"]}
        np.testing.assert_allclose([got[label] for label in labels], native, atol=1e-4)
    assert [result["truncated"] for result in results] == [False] * 6 + [True]
