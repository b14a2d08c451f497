"""Cross-origin requests: off unless origins are named; Starlette's rules with Octavo's errors."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from router_svc.errors import ApiError, ErrorKind
from router_svc.http.envelope import error_response

_SHOWN_TO_PAGES = (
    *("x-request-id", "request-id", "retry-after", "retry-after-ms"),
    *("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"),
    *("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"),
    *("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"),
)


@dataclass(frozen=True, slots=True)
class CorsRules:
    """Which pages of other origins may call, and with what; "*" is any."""

    origins: Sequence[str]
    methods: Sequence[str] = ("*",)
    headers: Sequence[str] = ("*",)
    allow_credentials: bool = False

    def middleware(self) -> Middleware:
        """Answers preflights, without a key, and marks the answers that a page may read."""
        return Middleware(
            _Cors,
            allow_origins=self.origins,
            allow_methods=self.methods,
            allow_headers=self.headers,
            allow_credentials=self.allow_credentials,
            expose_headers=_SHOWN_TO_PAGES,
        )


class _Cors(CORSMiddleware):
    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        message = f"This page may not call: {bytes(response.body).decode()}."
        refusal = error_response(ApiError(ErrorKind.INVALID_REQUEST, message, code="cors"))
        refusal.headers["vary"] = response.headers["vary"]
        return refusal
