"""The BentoML service: process, workers and packaging around our own HTTP application.

Start it with ``robal serve BUNDLE``, or with ``bentoml serve service.app:TextClassifier`` and the settings in the
environment. Why the application is a middleware and not a mount: docs/decisions/004-bentoml-hosts-our-http.md.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import bentoml
from starlette.types import ASGIApp, Receive, Scope, Send

from service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI


@cache
def application() -> FastAPI:
    """The one application of a worker. Made on first use: the supervising process imports this module and has none."""
    from service.api import build_api

    return build_api()


class OwnRoutes:
    """ASGI middleware: every HTTP request is answered by the application, startup and shutdown stay BentoML's."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Choose by the kind of the connection."""
        await (application() if scope["type"] == "http" else self.app)(scope, receive, send)


@bentoml.service(
    name="text_classifier",
    workers=1,
    metrics={"enabled": False},  # its label values are raw paths, so that a scanner makes a series per guess
    logging={"access": {"enabled": False}},
)
class TextClassifier:
    """Classifies texts with the bundle that the settings name."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    def start(self) -> None:
        """Begin to load the model."""
        from service.lifecycle import Lifecycle
        from service.logs import configure_logging

        settings = Settings.from_environment(os.environ)
        configure_logging(settings.log_format)
        self.lifecycle = Lifecycle(application(), settings)
        self.lifecycle.start()

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """Answer what was accepted."""
        await self.lifecycle.stop()


cast(Any, TextClassifier).add_asgi_middleware(OwnRoutes)  # the decorator made it a bentoml.Service
