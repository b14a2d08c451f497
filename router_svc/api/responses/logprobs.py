"""Which of an answer's log-probabilities belong to its text, as those of a response do.

The tokens of a delta are also those of reasoning, of calls and of the markup around them; a text
part of a response has the entries of its own tokens only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from router_svc.parsing.parts import Content, ToolCallStart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.inference.v1 import inference_pb2 as chat_pb

    from router_svc.parsing.parts import Part


def of_parts(
    parts: Sequence[Part], tokens: Sequence[chat_pb.TokenLogprob]
) -> list[Sequence[chat_pb.TokenLogprob]]:
    """For each part of a delta the entries of its tokens, which are those of the whole delta.

    A part's tokens are found by their bytes; where these are not the text's own, as in a cut
    character, a part gets all that are left. Only content is asked for, so only it gets entries.
    """
    if not tokens:
        return [()] * len(parts)
    joined = b"".join(bytes(token.bytes) for token in tokens)
    ends = list(accumulate(len(token.bytes) for token in tokens))
    found: list[Sequence[chat_pb.TokenLogprob]] = []
    first, at = 0, 0  # of the tokens and the bytes that are left
    for part in parts:
        last = first
        if not isinstance(part, ToolCallStart) and (text := part.text.encode()):
            begin = _find(joined, text, at, is_last=part is parts[-1])
            if begin < 0:
                at, last = len(joined), len(tokens)
            else:
                at = begin + len(text)
                first = max(first, bisect_right(ends, begin))
                last = max(first, bisect_left(ends, at) + 1)
        found.append(tokens[first:last] if isinstance(part, Content) else ())
        first = last
    return found


def _find(joined: bytes, text: bytes, at: int, *, is_last: bool) -> int:
    """Where the text is. Markup is before or after it, and may have the same letters."""
    if joined.startswith(text, at):
        return at
    suffix = len(joined) - len(text)
    if is_last and suffix >= at and joined.endswith(text):
        return suffix
    return joined.find(text, at)
