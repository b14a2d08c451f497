"""Log lines for people or for a collector: text, or one JSON object a line.

    {"time": "2026-11-29T10:00:00.123Z", "level": "INFO", "logger": "octavo.router.requests",
     "message": "…", "trace_id": "…", "span_id": "…", "request_id": "…"}

The ids are there where the line was logged with `extra=request_fields(…)`. What people write to a
model, and what it answers, is logged in neither form.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from octavo.flag_lists import Flags

LOG_FLAGS: Flags = (
    (
        "--log-format",
        {
            "type": click.Choice(["text", "json"]),
            "default": "text",
            "help": "How log lines are written to stderr. json: one object a line, with trace and "
            "request ids.",
        },
    ),
)

_ID_FIELDS = ("trace_id", "span_id", "request_id")


def start_logging(log_format: str) -> None:
    """Logs to stderr from level INFO on, as "text" or as "json"."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def request_fields(request_id: str, traceparent: str = "") -> dict[str, str]:
    """What names a request in a line, for `extra` of a logger; `traceparent` of its span, or ""."""
    fields = {"request_id": request_id} if request_id else {}
    if traceparent:
        _, trace_id, span_id, *_ = traceparent.split("-")
        fields |= {"trace_id": trace_id, "span_id": span_id}
    return fields


class JsonLines(logging.Formatter):
    """A record as one line of JSON, with its exception if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        time = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: vars(record)[name] for name in _ID_FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, ensure_ascii=False)
