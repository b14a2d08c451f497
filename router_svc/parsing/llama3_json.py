"""The JSON format of Llama 3.1 to 3.3.

    {"name": "next_bus", "parameters": {"stop_name": "Mitte"}}; {"name": …}

A control token <|python_tag|> may stand before the first call. Without one, a call is an object
that begins a line and whose first keys are a call's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.parsing.answer import Answer, Call, Trigger
from router_svc.parsing.call_object import read_call_object

if TYPE_CHECKING:
    from router_svc.parsing.reader import Reading

PYTHON_TAG = "<|python_tag|>"
_TRIGGER = Trigger(PYTHON_TAG, opening="{")
_KEYS = frozenset(("name", "parameters", "arguments", "type", "id"))


def read_llama3_json(answer: Answer) -> Reading[None]:
    """Reads a whole answer."""
    reader = answer.reader
    while trigger := (yield from answer.prose.until(reader, _TRIGGER)):
        call = Call(answer)
        begins = trigger == "{"
        if not begins:
            yield from reader.spaces()
            begins = yield from reader.literal("{")
        complete = begins and (yield from read_call_object(reader, call, keys=_KEYS))
        yield from answer.close(call, *((";",) if complete else ()))
    answer.prose.end()
