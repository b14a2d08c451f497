# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""What an implementation of octavo.inference.v1.Responses offers."""

from collections.abc import AsyncIterator
from typing import Protocol

from octavo.inference.v1 import responses_pb2 as pb
from router_svc.call_context import CallContext


class ResponsesHandler(Protocol):
    """Responses for clients, in any language.

    Requests arrive validated. Failures are raised as ApiError; cancelling the call
    or closing the iterator means that the client is gone.
    """

    async def create_response(
        self, request: pb.CreateResponseRequest, context: CallContext
    ) -> pb.Response:
        """Answers a conversation given as items."""
        ...

    def stream_response(
        self, request: pb.CreateResponseRequest, context: CallContext
    ) -> AsyncIterator[pb.ResponseEvent]:
        """Answers a conversation given as items, event by event."""
        ...
