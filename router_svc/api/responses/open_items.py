"""An item of a response while it is written: the events that tell of it, and the item itself.

    added ─ part added ─ delta … ─ text done ─ part done ─ item done      message, reasoning
    added ─ arguments delta … ─ arguments done ─ item done                function call

Items change in place, as elements of the response's output; events carry copies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypedDict

from octavo.inference.v1 import responses_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.inference.v1 import inference_pb2 as chat_pb

_IN_PROGRESS = pb.RESPONSE_ITEM_STATUS_IN_PROGRESS


class _Place(TypedDict):
    """Where a content part is."""

    item_id: str
    output_index: int
    content_index: int


class OpenItem(ABC):
    """One item. `index` is its place in the output."""

    def __init__(self, item: pb.ResponseOutputItem, index: int) -> None:
        self._item = item
        self._index = index
        self._texts: list[str] = []  # joined once: a text that grows in place is copied each time

    @abstractmethod
    def begin(self) -> list[pb.ResponseEvent]:
        """The events before the item's text."""

    @abstractmethod
    def fill(self, status: pb.ResponseItemStatus.ValueType) -> None:
        """Puts all that was added into the item."""

    @abstractmethod
    def end(self, status: pb.ResponseItemStatus.ValueType) -> list[pb.ResponseEvent]:
        """The events after it; the item is whole then, or was cut short."""

    def _added(self) -> pb.ResponseEvent:
        event = pb.ResponseItemEvent(output_index=self._index, item=self._item)
        return pb.ResponseEvent(output_item_added=event)

    def _done(self) -> pb.ResponseEvent:
        event = pb.ResponseItemEvent(output_index=self._index, item=self._item)
        return pb.ResponseEvent(output_item_done=event)


class OpenMessage(OpenItem):
    """Something said."""

    def __init__(self, item: pb.ResponseOutputItem, index: int, suffix: str) -> None:
        super().__init__(item, index)
        self._message = item.message
        self._message.id = f"msg_{suffix}"
        self._message.status = _IN_PROGRESS
        self._place = _Place(item_id=self._message.id, output_index=index, content_index=0)

    def begin(self) -> list[pb.ResponseEvent]:
        """See OpenItem."""
        added = self._added()
        self._part = self._message.content.add(output_text=pb.ResponseOutputText())
        return [added, _part_added(self._part, self._place)]

    def add(self, text: str, logprobs: Sequence[chat_pb.TokenLogprob]) -> pb.ResponseEvent:
        """More text, with the log-probabilities of its tokens, if they are asked for."""
        self._texts.append(text)
        self._part.output_text.logprobs.extend(logprobs)
        delta = pb.ResponseTextDeltaEvent(delta=text, logprobs=logprobs, **self._place)
        return pb.ResponseEvent(output_text_delta=delta)

    def fill(self, status: pb.ResponseItemStatus.ValueType) -> None:
        """See OpenItem."""
        self._part.output_text.text = "".join(self._texts)
        self._message.status = status

    def end(self, status: pb.ResponseItemStatus.ValueType) -> list[pb.ResponseEvent]:
        """See OpenItem."""
        self.fill(status)
        said = self._part.output_text
        text_done = pb.ResponseTextDoneEvent(text=said.text, logprobs=said.logprobs, **self._place)
        return [
            pb.ResponseEvent(output_text_done=text_done),
            _part_done(self._part, self._place),
            self._done(),
        ]


class OpenReasoning(OpenItem):
    """Reasoning."""

    def __init__(self, item: pb.ResponseOutputItem, index: int, suffix: str) -> None:
        super().__init__(item, index)
        self._reasoning = item.reasoning
        self._reasoning.id = f"rs_{suffix}"
        self._reasoning.status = _IN_PROGRESS
        self._place = _Place(item_id=self._reasoning.id, output_index=index, content_index=0)

    def begin(self) -> list[pb.ResponseEvent]:
        """See OpenItem."""
        added = self._added()
        self._part = self._reasoning.content.add(reasoning_text=pb.ResponseReasoningText())
        return [added, _part_added(self._part, self._place)]

    def add(self, text: str) -> pb.ResponseEvent:
        """More reasoning."""
        self._texts.append(text)
        delta = pb.ResponseReasoningDeltaEvent(delta=text, **self._place)
        return pb.ResponseEvent(reasoning_text_delta=delta)

    def fill(self, status: pb.ResponseItemStatus.ValueType) -> None:
        """See OpenItem."""
        self._part.reasoning_text.text = "".join(self._texts)
        self._reasoning.status = status

    def end(self, status: pb.ResponseItemStatus.ValueType) -> list[pb.ResponseEvent]:
        """See OpenItem."""
        self.fill(status)
        text = self._part.reasoning_text.text
        text_done = pb.ResponseReasoningDoneEvent(text=text, **self._place)
        return [
            pb.ResponseEvent(reasoning_text_done=text_done),
            _part_done(self._part, self._place),
            self._done(),
        ]


class OpenCall(OpenItem):
    """A call of a function."""

    def __init__(
        self, item: pb.ResponseOutputItem, index: int, suffix: str, *, call_id: str, name: str
    ) -> None:
        super().__init__(item, index)
        self._call = item.function_call
        self._call.id = f"fc_{suffix}"
        self._call.call_id = call_id
        self._call.name = name
        self._call.status = _IN_PROGRESS

    def begin(self) -> list[pb.ResponseEvent]:
        """See OpenItem."""
        return [self._added()]

    def add(self, text: str) -> pb.ResponseEvent:
        """More of the arguments."""
        self._texts.append(text)
        delta = pb.ResponseArgumentsDeltaEvent(
            item_id=self._call.id, output_index=self._index, delta=text
        )
        return pb.ResponseEvent(function_call_arguments_delta=delta)

    def fill(self, status: pb.ResponseItemStatus.ValueType) -> None:
        """See OpenItem."""
        self._call.arguments = "".join(self._texts)
        self._call.status = status

    def end(self, status: pb.ResponseItemStatus.ValueType) -> list[pb.ResponseEvent]:
        """See OpenItem."""
        self.fill(status)
        arguments_done = pb.ResponseArgumentsDoneEvent(
            item_id=self._call.id,
            output_index=self._index,
            name=self._call.name,
            arguments=self._call.arguments,
        )
        return [pb.ResponseEvent(function_call_arguments_done=arguments_done), self._done()]


def _part_added(part: pb.ResponseContentPart, place: _Place) -> pb.ResponseEvent:
    return pb.ResponseEvent(content_part_added=pb.ResponsePartEvent(part=part, **place))


def _part_done(part: pb.ResponseContentPart, place: _Place) -> pb.ResponseEvent:
    return pb.ResponseEvent(content_part_done=pb.ResponsePartEvent(part=part, **place))
