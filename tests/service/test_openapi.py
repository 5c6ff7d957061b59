"""The OpenAPI document: a file in docs/ that is current, true, and enough for the page that shows it."""

import json
import os
import re
from pathlib import Path

import pytest

from contract.errors import OUTCOMES
from service.api import DOCS_PAGE, build_api
from service.openapi import ERRORS, EXAMPLES, EXPLAIN_EXAMPLES, STAGES
from service.schemas import ClassifyResponse, ExplainResponse, LimitsInfo
from service.settings import Settings
from tests.service.inprocess import Client

DOCS = Path(__file__).parents[2] / "docs"
GOLDEN = DOCS / "openapi.json"


def test_the_file_in_docs_is_current() -> None:
    """``UPDATE_OPENAPI=1 pytest tests/service/test_openapi.py`` writes it anew."""
    current = json.dumps(build_api().openapi(), indent=2) + "\n"
    if "UPDATE_OPENAPI" in os.environ:
        GOLDEN.write_text(current)
    assert GOLDEN.read_text() == current


def test_the_service_answers_with_the_document(client: Client) -> None:
    assert client.get("/openapi.json").json() == json.loads(GOLDEN.read_text())


def test_every_example_works_and_every_documented_header_is_there(client: Client) -> None:
    for path, examples, answer in (
        ("/classify", EXAMPLES, ClassifyResponse),
        ("/explain", EXPLAIN_EXAMPLES, ExplainResponse),
    ):
        for name, example in examples.items():
            response = client.post(path, json=example["value"])
            assert response.status_code == 200, name
            answer.model_validate(response.json())
            assert set(STAGES) <= set(response.headers)


def test_every_reference_resolves() -> None:
    document = GOLDEN.read_text()
    names = set(json.loads(document)["components"]["schemas"])
    assert set(re.findall(r'"#/components/schemas/(\w+)"', document)) <= names


@pytest.mark.parametrize("path", ["/classify", "/explain"])
def test_the_work_documents_exactly_its_statuses(path: str) -> None:
    responses = json.loads(GOLDEN.read_text())["paths"][path]["post"]["responses"]
    assert set(responses) == {"200"} | {str(OUTCOMES[kind].http_status) for kind in ERRORS}


def test_the_page_in_docs_has_the_same_table() -> None:
    page = (DOCS / "http-api.md").read_text()
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", page, flags=re.M)
    assert {int(status) for status, _ in rows} == {OUTCOMES[kind].http_status for kind in ERRORS} | {404, 405}
    kinds = dict((int(status), kind) for status, kind in rows)
    assert kinds == {
        400: "invalid_request",
        401: "unauthorized",
        404: "not_found",
        405: "method_not_allowed",
        413: "too_large",
        422: "text_too_long",
        429: "overloaded",
        500: "internal_error",
        503: "unavailable",
        504: "deadline_exceeded",
    }


def test_the_page_in_docs_names_every_route_and_header() -> None:
    page = (DOCS / "http-api.md").read_text()
    for path in [*json.loads(GOLDEN.read_text())["paths"], "/docs", "/openapi.json"]:
        assert f"`{path}`" in page or f" {path}`" in page, path
    assert all(f"`{name}`" in page for name in [*STAGES, "x-request-id"])


def test_the_page_of_the_service_needs_no_other_host(client: Client) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert response.text == DOCS_PAGE.read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?:https?:)?//|@import|url\(|import\s*\(""", response.text)
    assert re.findall(r'fetch\("([^"]+)"\)', response.text) == ["openapi.json"]


def test_the_page_in_docs_lists_every_limit_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `--([\w-]+)` \| ([\d,]+) \|", (DOCS / "http-api.md").read_text(), flags=re.M))
    defaults = {name.replace("_", "-"): Settings.model_fields[name].default for name in LimitsInfo.model_fields}
    assert {name: float(value.replace(",", "")) for name, value in rows.items()} == defaults
    assert {name for name in Settings.model_fields if name.startswith("max_")} <= set(LimitsInfo.model_fields)
