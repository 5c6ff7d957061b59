"""Every error type of the product as an HTTP answer, against the table in the contract."""

import json

import pytest
from starlette.exceptions import HTTPException

from contract import errors
from contract.errors import OUTCOMES, InvalidRequest, Overloaded, RobalError, outcome
from service.errors import FOR_CLIENTS, INTERNAL, error_response, status_of
from service.openapi import ERRORS
from service.schemas import ErrorResponse

KINDS = sorted(
    {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RobalError)},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_type_has_the_status_of_the_table_or_hides_behind_500(kind: type[RobalError]) -> None:
    error = kind("something that may be private.")
    response = error_response(error, "id-1")
    body = ErrorResponse.model_validate_json(response.body).error
    assert body.request_id == "id-1"
    if isinstance(error, FOR_CLIENTS):
        assert response.status_code == outcome(error).http_status
        assert body.message == "something that may be private."
    else:
        assert response.status_code == 500
        assert (body.type, body.message, body.field) == ("internal_error", INTERNAL, None)


def test_types_are_words_for_programs() -> None:
    words = {
        kind.__name__: json.loads(error_response(kind("x"), "1").body)["error"]["type"]
        for kind in KINDS
        if issubclass(kind, FOR_CLIENTS)
    }
    assert words == {
        "DeadlineExceeded": "deadline_exceeded",
        "InvalidRequest": "invalid_request",
        "Overloaded": "overloaded",
        "TextTooLong": "text_too_long",
        "TooLarge": "too_large",
        "Unauthorized": "unauthorized",
        "Unavailable": "unavailable",
    }


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), MemoryError(), RuntimeError("x")])
def test_a_defect_is_a_fixed_sentence(error: Exception) -> None:
    response = error_response(error, "id-2")
    assert response.status_code == status_of(error) == 500
    assert json.loads(response.body)["error"]["message"] == INTERNAL


def test_headers_and_fields_come_with_the_types_that_have_them() -> None:
    assert error_response(Overloaded("x", retry_after_s=2.1), "1").headers["retry-after"] == "3"
    assert json.loads(error_response(InvalidRequest("x", field="inputs[3]"), "1").body)["error"]["field"] == "inputs[3]"
    routed = error_response(HTTPException(405, headers={"Allow": "GET"}), "1")
    assert (routed.status_code, routed.headers["allow"]) == (405, "GET")


def test_every_status_of_the_table_is_documented() -> None:
    assert {OUTCOMES[kind].http_status for kind in ERRORS} == {row.http_status for row in OUTCOMES.values()}
    assert all(kind in OUTCOMES for kind in ERRORS)
