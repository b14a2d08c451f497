"""The one builder of responses: parts of an answer in, events out, and the response as it grows.

    created ─ in_progress ─ items (open_items.py) ─ completed │ incomplete │ failed

At most one item is open; a part that is not its own closes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.inference.v1 import responses_pb2 as pb

from router_svc.api.responses.open_items import OpenCall, OpenItem, OpenMessage, OpenReasoning
from router_svc.parsing.parts import Content, Part, Reasoning, ToolArguments, ToolCallStart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.inference.v1 import inference_pb2 as chat_pb

_COMPLETED = pb.RESPONSE_ITEM_STATUS_COMPLETED
_INCOMPLETE = pb.RESPONSE_ITEM_STATUS_INCOMPLETE


class ResponseBuilder:
    """Builds one response, from `start` to `finish` or `fail`; each returns its events in order.

    `head` is the response before it begins: id, model and what it repeats of its request. `suffix`
    is what the ids of all items have in common.
    """

    def __init__(self, head: pb.Response, suffix: str) -> None:
        self.response = head
        self._suffix = suffix
        self._open: OpenItem | None = None
        self._num_events = 0

    @property
    def has_started(self) -> bool:
        """Whether there was any event."""
        return self._num_events > 0

    def start(self) -> list[pb.ResponseEvent]:
        """The events before the answer."""
        state = pb.ResponseStateEvent(response=self.response)
        return self._numbered(
            [pb.ResponseEvent(created=state), pb.ResponseEvent(in_progress=state)]
        )

    def add(
        self, part: Part, logprobs: Sequence[chat_pb.TokenLogprob] = ()
    ) -> list[pb.ResponseEvent]:
        """More of the answer; log-probabilities are those of a content's tokens."""
        events: list[pb.ResponseEvent] = []
        item = self._open
        match part:
            case Content(text):
                if not isinstance(item, OpenMessage):
                    events += self._close(_COMPLETED)
                    item = OpenMessage(*self._next_item())
                    events += self._begin(item)
                events.append(item.add(text, logprobs))
            case Reasoning(text):
                if not isinstance(item, OpenReasoning):
                    events += self._close(_COMPLETED)
                    item = OpenReasoning(*self._next_item())
                    events += self._begin(item)
                events.append(item.add(text))
            case ToolCallStart(_, call_id, name):
                events += self._close(_COMPLETED)
                events += self._begin(OpenCall(*self._next_item(), call_id=call_id, name=name))
            case ToolArguments(call, text):
                if not isinstance(item, OpenCall):
                    raise ValueError(f"arguments of call {call}, which is not open")
                events.append(item.add(text))
        return self._numbered(events)

    def finish(self, usage: chat_pb.Usage, *, cut: bool, now: int) -> list[pb.ResponseEvent]:
        """The end of an answer; `cut` if its tokens ran out, `now` in Unix seconds."""
        events: list[pb.ResponseEvent] = []
        response = self.response
        if not response.output:  # nothing was said: that is a message too
            events += self._begin(OpenMessage(*self._next_item()))
        events += self._close(_INCOMPLETE if cut else _COMPLETED)
        response.usage.CopyFrom(_usage(usage))
        if cut:
            response.status = pb.RESPONSE_STATUS_INCOMPLETE
            response.incomplete_details.reason = "max_output_tokens"
            state = pb.ResponseStateEvent(response=response)
            events.append(pb.ResponseEvent(incomplete=state))
        else:
            response.status = pb.RESPONSE_STATUS_COMPLETED
            response.completed_at = now
            state = pb.ResponseStateEvent(response=response)
            events.append(pb.ResponseEvent(completed=state))
        return self._numbered(events)

    def fail(self, code: str, message: str) -> list[pb.ResponseEvent]:
        """The end of an answer that cannot be finished; an open item stays as far as it came."""
        if self._open is not None:
            self._open.fill(_INCOMPLETE)
        response = self.response
        response.status = pb.RESPONSE_STATUS_FAILED
        response.error.code = code
        response.error.message = message
        state = pb.ResponseStateEvent(response=response)
        return self._numbered([pb.ResponseEvent(failed=state)])

    def _next_item(self) -> tuple[pb.ResponseOutputItem, int, str]:
        index = len(self.response.output)
        return self.response.output.add(), index, f"{self._suffix}_{index}"

    def _begin(self, item: OpenItem) -> list[pb.ResponseEvent]:
        self._open = item
        return item.begin()

    def _close(self, status: pb.ResponseItemStatus.ValueType) -> list[pb.ResponseEvent]:
        if self._open is None:
            return []
        events = self._open.end(status)
        self._open = None
        return events

    def _numbered(self, events: list[pb.ResponseEvent]) -> list[pb.ResponseEvent]:
        for event in events:
            kind = event.WhichOneof("kind")
            assert kind is not None
            getattr(event, kind).sequence_number = self._num_events
            self._num_events += 1
        return events


def _usage(usage: chat_pb.Usage) -> pb.ResponseUsage:
    return pb.ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=pb.ResponseInputTokensDetails(
            cached_tokens=usage.prompt_tokens_details.cached_tokens
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=pb.ResponseOutputTokensDetails(
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )
