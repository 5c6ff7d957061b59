"""The web page at ``/``: plain files of ``page/``, read once. They hold no secret, so they need no key."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

FOLDER = Path(__file__).with_name("page")
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
}
"""Stricter than the other answers': nothing inline runs, so that a text shown as markup by mistake would do no harm."""


def add_page(api: FastAPI) -> None:
    """Add the routes of the page; only files that are there now are ever answered with."""
    files = {path.name: (path.read_bytes(), MEDIA_TYPES[path.suffix]) for path in sorted(FOLDER.iterdir())}

    @api.get("/", include_in_schema=False)
    async def index() -> Response:
        return answer("index.html")

    @api.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return answer(name)

    def answer(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        content, media_type = files[name]
        return Response(content, headers=HEADERS, media_type=media_type)
