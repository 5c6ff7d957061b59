"""What every request passes before and after its route: an id, limits, a deadline, errors as answers, metrics.

The body is read here, and completely, before anything parses it: an oversized one is refused without being kept, and
afterwards the connection can be watched, so that work for a client who has gone is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contract.errors import DeadlineExceeded, Overloaded, RobalError, TooLarge
from service.errors import error_response
from service.keys import Keys
from service.logs import FIELDS
from service.metrics import Metrics
from service.settings import Settings

logger = logging.getLogger("robal.service")

CLIENT_GONE = 499
"""Status in the metrics for requests whose client closed the connection first; nginx's number for it."""
UNREAD_LIMIT_S = 10.0
"""How long the rest of a refused body is read and thrown away, so that the client gets to read the answer."""
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
}
"""On every answer: a browser guesses no types, tells nobody whence it came, loads from here only and frames nothing."""
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


@dataclass(slots=True)
class _Exchange:
    """One request and its answer."""

    scope: Scope
    receive: Receive
    send: Send
    request_id: str
    status: int = 0
    body_read: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, message: Message) -> None:
        """Send a part of the answer; its head carries the request id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.request_id
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await self.send(message)

    async def read_body(self, limit: int) -> bytes:
        """The whole body. Raises TooLarge when it is longer than ``limit`` or says so."""
        refusal = TooLarge(f"the body is longer than the limit of {limit} bytes; send fewer or shorter texts.")
        declared = Headers(scope=self.scope).get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise refusal
        body = bytearray()
        while not self.body_read:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            self.body_read = not message.get("more_body", False)
            if len(body) > limit:
                raise refusal
        return bytes(body)

    async def watch(self) -> None:
        """Return when the client closes the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    async def throw_away_rest(self) -> None:
        """Read what is left of a refused body; a connection closed on unread data would lose the answer."""
        try:
            async with asyncio.timeout(UNREAD_LIMIT_S):
                while not self.body_read:
                    message = await self.receive()
                    self.body_read = message["type"] == "http.disconnect" or not message.get("more_body", False)
        except TimeoutError:
            pass


class Front:
    """ASGI middleware around all routes.

    It expects ``scope["app"].state`` to hold ``settings``, ``metrics`` and ``keys`` (None: everybody may ask).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        exchange = _Exchange(scope, receive, send, given if _SANE_ID.fullmatch(given) else secrets.token_hex(8))
        scope.setdefault("state", {})
        scope["state"].update(request_id=exchange.request_id, started=time.perf_counter())
        settings: Settings = scope["app"].state.settings
        metrics: Metrics = scope["app"].state.metrics
        self.in_progress += 1
        metrics.in_progress.set(self.in_progress)
        try:
            await self._answer(exchange, settings)
        finally:
            self.in_progress -= 1
            metrics.in_progress.set(self.in_progress)
            route = getattr(scope.get("route"), "path", "other")
            status = exchange.status or CLIENT_GONE
            seconds = time.perf_counter() - scope["state"]["started"]
            metrics.requests.labels(route, str(status)).inc()
            metrics.request_seconds.labels(route).observe(seconds)
            if settings.log_requests:
                fields = {
                    "request_id": exchange.request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": round(1e3 * seconds, 3),
                }
                shown = " ".join(map(str, fields.values()))
                logger.info("request %s", shown, extra={FIELDS: fields})

    async def _answer(self, exchange: _Exchange, settings: Settings) -> None:
        try:
            async with asyncio.timeout(settings.timeout_s) as deadline:
                await self._respond(exchange, settings)
        except ClientGone:
            pass
        except Exception as error:  # the border: whatever happened, the client gets an answer and the log the reason
            if deadline.expired() and isinstance(error, TimeoutError):
                error = DeadlineExceeded(f"there was no answer within {settings.timeout_s:g} s; try again later.")
            await self._refuse(exchange, error)

    async def _respond(self, exchange: _Exchange, settings: Settings) -> None:
        keys: Keys | None = exchange.scope["app"].state.keys
        if keys is not None:
            keys.check(exchange.scope["path"], Headers(scope=exchange.scope))
        works = exchange.scope["method"] == "POST"
        if works and self.in_progress > settings.max_requests:
            raise Overloaded(f"{settings.max_requests} requests are in progress already; try again in a moment.")
        exchange.scope["state"]["body"] = await exchange.read_body(settings.max_body_bytes)

        async def nothing_more() -> Message:
            await exchange.gone.wait()
            return {"type": "http.disconnect"}

        if not works:
            await self.app(exchange.scope, nothing_more, exchange.answer)
            return
        work = asyncio.ensure_future(self.app(exchange.scope, nothing_more, exchange.answer))
        watch = asyncio.ensure_future(exchange.watch())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientGone
            await work
        finally:
            watch.cancel()
            work.cancel()

    async def _refuse(self, exchange: _Exchange, error: Exception) -> None:
        response = error_response(error, exchange.request_id)
        if response.status_code in (500, 504):
            own = isinstance(error, RobalError)
            logger.error(
                "request %s to %s: %s",
                exchange.request_id,
                exchange.scope["path"],
                error,
                exc_info=error.__cause__ if own else error,
            )
        if exchange.status:  # the answer had begun: the connection can only be closed
            raise error
        if exchange.body_read:
            await response(exchange.scope, exchange.receive, exchange.answer)
            return
        response.headers["connection"] = "close"
        await exchange.answer(
            {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        )
        await exchange.answer({"type": "http.response.body", "body": response.body, "more_body": True})
        await exchange.throw_away_rest()
        await exchange.answer({"type": "http.response.body", "body": b"", "more_body": False})
