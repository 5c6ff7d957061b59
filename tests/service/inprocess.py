"""The HTTP application in this process."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx
from fastapi import FastAPI

from service.api import build_api
from service.classifier import Classifier, load_model
from service.engine import Engine
from service.schemas import ErrorResponse
from service.settings import Settings


def make_api(bundle: Path, engine: Callable[[Engine], Engine] | None = None, **settings: Any) -> FastAPI:
    """The application over a real bundle, as a worker has it; ``engine`` may wrap the real engine."""
    chosen = Settings(bundle=bundle, threads=1, **settings)
    model = load_model(chosen)
    if engine is not None:
        model = replace(model, engine=engine(model.engine))
    api = build_api(chosen)
    api.state.classifier = Classifier(model, settings=chosen, metrics=api.state.metrics)
    return api


def connect(api: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test", timeout=60)


class Client:
    """A plain blocking client of an application in this process, for tests that need no concurrency."""

    def __init__(self, api: FastAPI) -> None:
        self.api = api

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner().__enter__()
        self._client = connect(self.api)
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.aclose())
        if (classifier := self.api.state.classifier) is not None:
            self._runner.run(classifier.close())
        self._runner.close()

    def request(self, method: str, path: str, **rest: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **rest))

    def get(self, path: str, **rest: Any) -> httpx.Response:
        return self.request("GET", path, **rest)

    def post(self, path: str, **rest: Any) -> httpx.Response:
        return self.request("POST", path, **rest)


def problem(response: Any, status: int, kind: str, field: str | None = None) -> str:
    """Check an error answer completely and return its message."""
    assert response.status_code == status, response.text
    error = ErrorResponse.model_validate(response.json()).error
    assert set(response.json()) == {"error"}
    assert (error.type, error.field) == (kind, field)
    assert error.request_id == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return error.message


def engine_of(api: FastAPI) -> Any:
    return api.state.classifier.model.engine


def sample(api: FastAPI, name: str, **labels: str) -> float:
    return float(api.state.metrics.registry.get_sample_value(name, labels) or 0.0)


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def ask(client: httpx.AsyncClient, inputs: Any) -> "asyncio.Task[httpx.Response]":
    return asyncio.create_task(client.post("/classify", json={"inputs": inputs}))
