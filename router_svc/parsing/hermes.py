"""The format of Hermes, Qwen 2.5 and Qwen 3, and of many models that were trained on their data.

<tool_call>
{"name": "next_bus", "arguments": {"stop_name": "Mitte"}}
</tool_call>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.parsing.answer import Answer, Call, Trigger
from router_svc.parsing.call_object import read_call_object

if TYPE_CHECKING:
    from router_svc.parsing.reader import Reading

OPENING = "<tool_call>"
CLOSING = "</tool_call>"
_TRIGGER = Trigger(OPENING)


def read_hermes(answer: Answer) -> Reading[None]:
    """Reads a whole answer. A call whose closing tag is missing is a call all the same."""
    reader = answer.reader
    while (yield from answer.prose.until(reader, _TRIGGER)):
        call = Call(answer)
        yield from reader.spaces()
        complete = (yield from reader.literal("{")) and (yield from read_call_object(reader, call))
        yield from answer.close(call, *((CLOSING,) if complete else ()))
    answer.prose.end()
