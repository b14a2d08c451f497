"""Both formats of Mistral's models, told apart by what follows the control token.

[TOOL_CALLS][{"name": "next_bus", "arguments": {"stop_name": "Mitte"}}, {…}]
[TOOL_CALLS]next_bus[ARGS]{"stop_name": "Mitte"}[TOOL_CALLS]…
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from router_svc.parsing.answer import Answer, Call, Trigger
from router_svc.parsing.call_object import read_arguments, read_call_object

if TYPE_CHECKING:
    from router_svc.parsing.reader import Reading

TOOL_CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"
_TRIGGER = Trigger(TOOL_CALLS)
_NAME = re.compile(r"[^\s\[{]*")


def read_mistral(answer: Answer) -> Reading[None]:
    """Reads a whole answer."""
    reader = answer.reader
    while (yield from answer.prose.until(reader, _TRIGGER)):
        yield from reader.spaces()
        if (yield from reader.literal("[")):
            yield from _read_array(answer)
        else:
            yield from _read_named(answer)
    answer.prose.end()


def _read_array(answer: Answer) -> Reading[None]:
    reader = answer.reader
    while True:
        call = Call(answer)
        yield from reader.spaces()
        complete = (yield from reader.literal("{")) and (yield from read_call_object(reader, call))
        call.settle()
        if not complete:
            return
        if (yield from answer.follows(call, ",", "]")) != ",":
            call.settle()
            return


def _read_named(answer: Answer) -> Reading[None]:
    reader = answer.reader
    call = Call(answer)
    name = yield from reader.run(_NAME)
    if (yield from reader.literal(CALL_ID)):
        yield from reader.run(_NAME)
    yield from reader.literal(ARGS)
    yield from reader.spaces()
    if (yield from reader.peek()) == "{":
        call.name(name)
        yield from read_arguments(reader, call)
    call.settle()
