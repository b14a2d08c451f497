"""Puts a response together from its stream, as a client would, checking every event on the way."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def fold(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The response that the events' deltas add up to, with what the last event alone can say.

    Raises AssertionError where events contradict each other or come out of order.
    """
    state: dict[str, Any] | None = None
    output: list[dict[str, Any]] = []
    is_open = False
    last: dict[str, Any] | None = None
    for number, given in enumerate(events):
        event = deepcopy(given)
        assert last is None, "an event after the last"
        assert event["sequence_number"] == number
        kind = event["type"]
        if state is None:
            assert kind == "response.created"
            state = event["response"]
            assert (state["status"], state["output"]) == ("in_progress", [])
        elif kind == "response.in_progress":
            assert event["response"] == state
        elif kind == "response.output_item.added":
            assert not is_open, "two items are open"
            assert event["output_index"] == len(output)
            output.append(event["item"])
            is_open = True
        elif kind in TERMINAL:
            assert kind == "response.failed" or not is_open
            last = event["response"]
        else:
            assert is_open
            assert event["output_index"] == len(output) - 1
            is_open = not _change(output[-1], event)
    assert last is not None, "the stream has no end"
    if last["status"] != "failed":  # a failed one's open item was never told to be incomplete
        assert last["output"] == output
    return last | {"output": output}


def _change(item: dict[str, Any], event: dict[str, Any]) -> bool:
    """Applies an event to the open item; whether that closes it."""
    kind = event["type"].removeprefix("response.")
    if kind == "output_item.done":
        item["status"] = event["item"]["status"]
        assert item == event["item"]
        return True
    assert event["item_id"] == item["id"]
    if kind == "function_call_arguments.delta":
        item["arguments"] += event["delta"]
    elif kind == "function_call_arguments.done":
        assert event["arguments"] == item["arguments"]
        assert event["name"] == item["name"]
    elif kind == "content_part.added":
        assert event["content_index"] == len(item["content"])
        item["content"].append(event["part"])
    else:
        part = item["content"][event["content_index"]]
        if kind == "content_part.done":
            assert part == event["part"]
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            part["text"] += event["delta"]
            part.setdefault("logprobs", []).extend(event.get("logprobs", []))
            if kind == "reasoning_text.delta":
                del part["logprobs"]
        else:
            assert kind in ("output_text.done", "reasoning_text.done")
            assert event["text"] == part["text"]
            assert event.get("logprobs", []) == part.get("logprobs", [])
    return False
