"""From an error to the answer a client reads: the one place where that happens.

The status of each error type is in ``contract.errors.OUTCOMES``. Whatever is not meant for clients (an engine that
fails, a defect of ours) is one fixed sentence with a request id; the details are in the log under that id.
"""

from __future__ import annotations

import math
import re

from starlette.exceptions import HTTPException
from starlette.responses import Response

from contract.errors import DeadlineExceeded, InvalidRequest, Overloaded, Unauthorized, Unavailable, outcome
from service.schemas import ErrorDetail, ErrorResponse

FOR_CLIENTS = (InvalidRequest, Unauthorized, Overloaded, Unavailable, DeadlineExceeded)
"""Errors whose message is written for clients; with their subclasses."""
INTERNAL = "the service could not compute the answer; the log has the reason under this request id."
_ROUTING = {
    404: ("not_found", "there is nothing at this path; /docs lists what there is."),
    405: ("method_not_allowed", "this path does not take that method; the header Allow names those it takes."),
}


def status_of(error: BaseException) -> int:
    """HTTP status of an error."""
    if isinstance(error, HTTPException):
        return error.status_code
    return outcome(error).http_status if isinstance(error, FOR_CLIENTS) else 500


def error_response(error: BaseException, request_id: str) -> Response:
    """The answer for an error: status, headers and body."""
    status = status_of(error)
    headers: dict[str, str] = {}
    field = None
    if isinstance(error, HTTPException):  # the router's own: no such path, no such method
        kind, message = _ROUTING.get(status, ("http_error", str(error.detail)))
        headers.update(error.headers or {})
    elif isinstance(error, FOR_CLIENTS):
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
        message = str(error)
    else:
        kind, message = "internal_error", INTERNAL
    if isinstance(error, InvalidRequest):
        field = error.field
    if isinstance(error, Overloaded):
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, Unavailable):
        headers["retry-after"] = "1"
    detail = ErrorDetail(type=kind, message=message, field=field, request_id=request_id)
    body = ErrorResponse(error=detail).model_dump_json()
    return Response(body, status_code=status, headers=headers, media_type="application/json")
