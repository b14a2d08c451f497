# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""What an implementation of octavo.inference.v1.Messages offers."""

from collections.abc import AsyncIterator
from typing import Protocol

from octavo.inference.v1 import messages_pb2 as pb
from router_svc.call_context import CallContext


class MessagesHandler(Protocol):
    """Conversations in the shape of Anthropic's Messages API.

    Requests arrive validated. Failures are raised as ApiError; cancelling the call
    or closing the iterator means that the client is gone.
    """

    async def create_message(
        self, request: pb.CreateMessageRequest, context: CallContext
    ) -> pb.CreateMessageResponse:
        """Answers a conversation."""
        ...

    def stream_message(
        self, request: pb.CreateMessageRequest, context: CallContext
    ) -> AsyncIterator[pb.StreamMessageResponse]:
        """Answers a conversation block by block. Its events, folded, are the whole answer."""
        ...

    async def count_message_tokens(
        self, request: pb.CountMessageTokensRequest, context: CallContext
    ) -> pb.CountMessageTokensResponse:
        """Counts the tokens that a conversation's prompt has, without answering it."""
        ...
