"""The formats of DeepSeek V3, R1 and V3.1, which differ in where the name stands.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>next_bus
```json
{"stop_name": "Mitte"}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>next_bus<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from router_svc.parsing.answer import Answer, Call, Trigger
from router_svc.parsing.call_object import read_arguments

if TYPE_CHECKING:
    from router_svc.parsing.reader import Reading

CALLS_BEGIN = "<｜tool▁calls▁begin｜>"
CALLS_END = "<｜tool▁calls▁end｜>"
CALL_BEGIN = "<｜tool▁call▁begin｜>"
CALL_END = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
FENCE = "```"
_TRIGGER = Trigger(CALLS_BEGIN)
_NAME = re.compile(r"[^\s<`{]*")


def read_deepseek(answer: Answer) -> Reading[None]:
    """Reads a whole answer. Fences and closing tokens that are missing are not missed."""
    reader = answer.reader
    while (yield from answer.prose.until(reader, _TRIGGER)):
        yield from reader.spaces()
        if not (yield from reader.literal(CALL_BEGIN)):
            answer.prose.add(reader.take())
            continue
        while call := (yield from _read_call(answer)):
            if (yield from answer.follows(call, CALL_BEGIN, CALLS_END)) != CALL_BEGIN:
                call.settle()
                break
    answer.prose.end()


def _read_call(answer: Answer) -> Reading[Call | None]:
    reader = answer.reader
    call = Call(answer)
    name = yield from reader.run(_NAME)
    complete = False
    if (yield from reader.literal(SEPARATOR)):
        yield from reader.spaces()
        if (yield from reader.peek()) != "{":
            name = yield from reader.run(_NAME)
            yield from reader.spaces()
            yield from reader.literal(FENCE + "json")
            yield from reader.spaces()
        if (yield from reader.peek()) == "{":
            call.name(name)
            complete = yield from read_arguments(reader, call)
    yield from answer.close(call, *((FENCE, CALL_END) if complete else ()))
    return call if complete else None
