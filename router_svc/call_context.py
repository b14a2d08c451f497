"""What a call carries besides its request message."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallContext:
    """Identity and limits of one call, over HTTP or gRPC.

    `request_id` is the client's x-request-id or made up; `traceparent` the W3C trace context or "";
    `deadline` a time.monotonic() instant in seconds or None; `tenant` who authenticated, or "".
    """

    request_id: str
    traceparent: str = ""
    deadline: float | None = None
    tenant: str = ""
