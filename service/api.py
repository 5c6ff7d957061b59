"""The routes of the HTTP API. What happens around each of them (ids, limits, errors, metrics) is in ``front.py``."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import NoReturn

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from contract.errors import Unauthorized, Unavailable
from service.classifier import Classifier, Timings
from service.front import Front
from service.keys import Keys
from service.metrics import MEDIA_TYPE, Metrics
from service.openapi import (
    CLASSIFY_ANSWER,
    CLASSIFY_BODY,
    DESCRIPTION,
    ERRORS,
    EXPLAIN_ANSWER,
    EXPLAIN_BODY,
    documented,
    openapi,
)
from service.parsing import Request as Asked
from service.parsing import parse_classify, parse_explain, parse_timeout
from service.schemas import TIMEOUT_HEADER, ClassifyResponse, ExplainResponse, Info, Status
from service.settings import Settings
from service.web import add_page

DOCS_PAGE = Path(__file__).with_name("docs.html")


def build_api(settings: Settings | None = None, classifier: Classifier | None = None) -> FastAPI:
    """The application. What it serves is in its ``state`` and may come later; until then it is not ready.

    Args:
        settings: limits of requests; needed before the first request.
        classifier: the model, warm.
    """
    api = FastAPI(
        title="robal",
        summary="Text classification over HTTP",
        description=DESCRIPTION,
        version="1",
        openapi_url=None,  # a route of ours below, counted like the others
        docs_url=None,  # FastAPI's page loads its scripts from another host; ours is one file
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.classifier = classifier
    if settings is not None:
        configure(api, settings)
    api.state.metrics = Metrics()
    api.add_middleware(Front)
    api.add_exception_handler(HTTPException, _to_the_front)
    api.openapi = partial(openapi, api)  # type: ignore[method-assign]
    _add_routes(api)
    add_page(api)
    return api


def configure(api: FastAPI, settings: Settings) -> None:
    """Give an application its settings. Raises UsageError if the file of keys cannot be used."""
    api.state.settings = settings
    api.state.keys = Keys.read(settings.api_keys) if settings.api_keys else None


async def _to_the_front(_: Request, error: Exception) -> NoReturn:
    """The router's own 404 and 405 become answers where all other errors do."""
    raise error


def _classifier(request: Request) -> Classifier:
    classifier: Classifier | None = request.app.state.classifier
    if classifier is None:
        raise Unavailable("the service is starting; try again in a moment.")
    return classifier


def _json(value: BaseModel, headers: dict[str, str] | None = None) -> Response:
    return Response(value.model_dump_json(), headers=headers, media_type="application/json")


def _in_time(asked: Asked, request: Request) -> Asked:
    """The request with the header's deadline, where its body has none."""
    if asked.timeout_ms is None and (header := request.headers.get(TIMEOUT_HEADER)) is not None:
        return asked.model_copy(update={"timeout_ms": parse_timeout(header)})
    return asked


def _stages(timings: Timings, request: Request) -> dict[str, str]:
    """Headers that tell where the time went."""
    seconds = {
        "x-tokenize-ms": timings.tokenise_s,
        "x-queue-ms": timings.queue_s,
        "x-engine-ms": timings.engine_s,
        "x-total-ms": time.perf_counter() - request.state.started,
    }
    return {name: f"{1000 * value:.3f}" for name, value in seconds.items()}


def _add_routes(api: FastAPI) -> None:
    @api.post(
        "/classify",
        summary="Classify texts",
        operation_id="classify",
        response_model=ClassifyResponse,
        responses={200: CLASSIFY_ANSWER, **documented(*ERRORS)},
        openapi_extra=CLASSIFY_BODY,
    )
    async def classify(request: Request) -> Response:
        classifier = _classifier(request)
        asked = _in_time(parse_classify(request.state.body, request.app.state.settings), request)
        answer, timings = await classifier.classify(asked, request.state.request_id)
        return _json(answer, _stages(timings, request))

    @api.post(
        "/explain",
        summary="Explain the answer for one text: what each of its words does for a label",
        operation_id="explain",
        response_model=ExplainResponse,
        responses={200: EXPLAIN_ANSWER, **documented(*ERRORS)},
        openapi_extra=EXPLAIN_BODY,
    )
    async def explain(request: Request) -> Response:
        classifier = _classifier(request)
        asked = _in_time(parse_explain(request.state.body, request.app.state.settings), request)
        answer, timings = await classifier.explain(asked)
        return _json(answer, _stages(timings, request))

    @api.get(
        "/info",
        summary="The model and the limits",
        operation_id="info",
        response_description="What is being served.",
        response_model=Info,
        responses=documented(Unauthorized, Unavailable),
    )
    async def info(request: Request) -> Response:
        return _json(_classifier(request).info())

    @api.get(
        "/livez",
        summary="Whether the process answers",
        operation_id="livez",
        response_description="It does.",
        response_model=Status,
    )
    async def livez() -> Response:
        return _json(Status(status="alive"))

    @api.get(
        "/readyz",
        summary="Whether texts can be classified: warm, and the model computes",
        operation_id="readyz",
        response_description="They can.",
        response_model=Status,
        responses=documented(Unavailable),
    )
    async def readyz(request: Request) -> Response:
        await _classifier(request).check_ready()
        return _json(Status(status="ready"))

    @api.get(
        "/metrics",
        summary="Counters for Prometheus",
        operation_id="metrics",
        response_description="Prometheus text format.",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **documented(Unauthorized)},
    )
    async def metrics(request: Request) -> Response:
        counters: Metrics = request.app.state.metrics
        return Response(counters.render(), headers={"content-type": MEDIA_TYPE})

    @api.get("/openapi.json", include_in_schema=False)
    async def document() -> Response:
        return JSONResponse(api.openapi())

    @api.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(DOCS_PAGE.read_text(encoding="utf-8"))
