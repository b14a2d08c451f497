"""Serves the page's files, which hold no data: all that it shows it asks the API for, with a key.

GET /               static/index.html
GET /page/<name>    static/<name>
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

_INDEX = "index.html"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing but the server itself may be loaded or asked, no script stands in the document, and none
# may make markup out of text: what a model writes cannot become part of the page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    # Asked for each time, and answered with 304: after an upgrade no old file meets a new one.
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


class Page:
    """The files, read once."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = {
            name: _File(
                content, _TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(content).hexdigest()}"'
            )
            for name, content in files.items()
        }

    @classmethod
    def load(cls) -> Page:
        """Those of the package."""
        folder = resources.files("router_svc.page").joinpath("static")
        return cls({file.name: file.read_bytes() for file in folder.iterdir()})

    @property
    def paths(self) -> frozenset[str]:
        """Each path that is answered; whoever loads the page has no key yet."""
        return frozenset({"/", *(f"/page/{name}" for name in self._files)})

    def routes(self) -> list[Route]:
        """The routes; a name that is no file's is a 404."""

        async def index(request: Request) -> Response:
            return self._answer(request, _INDEX)

        async def file(request: Request) -> Response:
            return self._answer(request, request.path_params["name"])

        return [Route("/", index), Route("/page/{name}", file)]

    def _answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404)
        headers = {**_HEADERS, "etag": file.etag}
        known = request.headers.get("if-none-match", "").split(",")
        if any(each.strip().removeprefix("W/") == file.etag for each in known):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers | {"content-type": file.media_type})
