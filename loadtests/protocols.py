"""How to ask each kind of service and read its answers: robal's own API, and those that people compare it with.

This module is also imported by the Locust process and therefore light.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contract.errors import UsageError
from loadtests.answers import Answer, Reader, Reading, WrongAnswer, best, finite, judge

HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """One HTTP dialect of text classification."""

    name: str
    about: str
    path: str
    """Where to post; ``{model}`` stands for the model's name."""
    ask: Callable[[Sequence[str]], Any]
    """The JSON value that asks for the labels of texts."""
    read: Reader

    @property
    def headers(self) -> dict[str, str]:
        """Of each request."""
        return HEADERS

    def body(self, texts: Sequence[str]) -> bytes:
        """The request, ready to be sent."""
        return json.dumps(self.ask(texts)).encode()

    def judge(self, status: int, body: bytes, texts: int, labels: Sequence[str] | None = None) -> Answer:
        """What an answer is worth."""
        return judge(self.read, status, body, texts=texts, labels=labels)


def _read_robal(answer: Any) -> Reading:
    results, tokens = answer["results"], answer["usage"]["tokens"]
    if not isinstance(results, list):
        raise WrongAnswer(f"results: {type(results).__name__}")
    if not isinstance(tokens, int) or tokens < 1:
        raise WrongAnswer(f"usage.tokens is {tokens!r}")
    for result in results:
        if not isinstance(result, dict) or not isinstance(result.get("label"), str) or not finite(result.get("score")):
            raise WrongAnswer("a result without a label or with a score that is not finite")
        best(result["scores"])
    return Reading(labels=[result["label"] for result in results], tokens=tokens)


def _read_scores(answer: Any) -> Reading:
    """``[[{label, score}, ...], ...]``, or one such list for one text."""
    lists = [answer] if answer and isinstance(answer[0], dict) else answer
    return Reading(labels=[best(scores) for scores in lists])


def _read_infinity(answer: Any) -> Reading:
    return Reading(
        labels=[best(scores) for scores in answer["data"]], tokens=answer.get("usage", {}).get("total_tokens", 0)
    )


def _read_vllm(answer: Any) -> Reading:
    data = sorted(answer["data"], key=lambda item: item["index"])
    if not all(finite(probability) for item in data for probability in item["probs"]):
        raise WrongAnswer("a probability that is not finite")
    return Reading(labels=[str(item["label"]) for item in data], tokens=answer.get("usage", {}).get("total_tokens", 0))


def _read_oip(answer: Any) -> Reading:
    outputs = {output["datatype"]: output for output in answer["outputs"]}
    if "BYTES" in outputs:
        return Reading(labels=[str(label) for label in outputs["BYTES"]["data"]])
    scores = outputs["FP32"]
    width = scores["shape"][-1]
    rows = [scores["data"][at : at + width] for at in range(0, len(scores["data"]), width)]
    if not all(finite(value) for row in rows for value in row):
        raise WrongAnswer("a score that is not finite")
    return Reading(labels=[str(max(range(width), key=row.__getitem__)) for row in rows])


def _one_or_list(texts: Sequence[str]) -> Any:
    return texts[0] if len(texts) == 1 else list(texts)


def _ask_oip(texts: Sequence[str]) -> Any:
    return {"inputs": [{"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": list(texts)}]}


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="robal",
            about="robal serve",
            path="/classify",
            ask=lambda texts: {"inputs": _one_or_list(texts)},
            read=_read_robal,
        ),
        Protocol(
            name="tei",
            about="text-embeddings-inference, POST /predict",
            path="/predict",
            ask=lambda texts: {"inputs": texts[0] if len(texts) == 1 else [[text] for text in texts], "truncate": True},
            read=_read_scores,
        ),
        Protocol(
            name="infinity",
            about="infinity, POST /classify",
            path="/classify",
            ask=lambda texts: {"input": list(texts), "model": "{model}"},
            read=_read_infinity,
        ),
        Protocol(
            name="vllm",
            about="vLLM, POST /classify",
            path="/classify",
            ask=lambda texts: {"input": list(texts), "model": "{model}"},
            read=_read_vllm,
        ),
        Protocol(
            name="oip",
            about="Open Inference Protocol v2 (KServe, Triton, OpenVINO Model Server), texts as BYTES",
            path="/v2/models/{model}/infer",
            ask=_ask_oip,
            read=_read_oip,
        ),
        Protocol(
            name="hf",
            about="a transformers pipeline behind POST /, with the JSON of Hugging Face's API",
            path="/",
            ask=lambda texts: {"inputs": _one_or_list(texts)},
            read=_read_scores,
        ),
    )
}


def protocol(name: str, *, model: str | None) -> Protocol:
    """A protocol by name, speaking of a model.

    Raises:
        UsageError: no such protocol, or it needs the model's name.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"--api is {name!r}; one of {', '.join(PROTOCOLS)} was expected.")
    chosen = PROTOCOLS[name]
    if "{model}" in chosen.path + json.dumps(chosen.ask(["x"])):
        if model is None:
            raise UsageError(f"--api {name} asks for a model by name; give --model NAME.")
        ask = chosen.ask

        def named(texts: Sequence[str]) -> Any:
            asked = ask(texts)
            return asked | {"model": model} if "model" in asked else asked

        return replace(chosen, path=chosen.path.replace("{model}", model), ask=named)
    return chosen
