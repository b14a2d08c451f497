"""A line of the log as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from octavo.logs import JsonLines, request_fields

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def line_of(message: str, *args: object, **how: Any) -> dict[str, str]:
    logger = logging.getLogger("octavo.test")
    record = logger.makeRecord(
        logger.name,
        logging.INFO,
        "file.py",
        1,
        message,
        args,
        how.get("exc_info"),
        extra=how.get("extra"),
    )
    text = JsonLines().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_says_when_who_and_what() -> None:
    line = line_of('%d tokens of "é"\n', 3)

    assert line.pop("time").endswith("Z")
    assert line == {"level": "INFO", "logger": "octavo.test", "message": '3 tokens of "é"\n'}


def test_a_line_of_a_request_has_its_ids() -> None:
    line = line_of("done", extra=request_fields("me", TRACEPARENT))

    assert line["request_id"] == "me"
    assert line["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert line["span_id"] == "b7ad6b7169203331"


def test_a_request_that_is_not_traced_has_no_trace() -> None:
    assert request_fields("me") == {"request_id": "me"}


def test_an_exception_is_a_part_of_its_line() -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        line = line_of("it broke", exc_info=sys.exc_info())

    assert line["exception"].startswith("Traceback")
    assert "KeyError: 'lost'" in line["exception"]
