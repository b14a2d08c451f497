"""Finds stop strings in a text that comes in pieces, and holds back no more than may belong to one.

    stop ["\\n\\nUser:"]    text "Sure.\\n" │ "\\nUs" │ "er: x"
    let through           "Sure."       ""       "" + match

An Aho-Corasick automaton (Aho and Corasick, 1975) over all stop strings: its state is the longest
end of the text that begins a stop string, which is just what has to be held back. So each character
costs constant time, whatever the strings.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(slots=True)
class _State:
    """The end of the text that began a stop string: `depth` characters of it."""

    depth: int
    next: dict[str, _State] = field(default_factory=dict)
    # The longest proper end of this state's text that begins a stop string, too.
    fallback: _State | None = None
    # The longest stop string that ends here.
    matched: str | None = None


class StopMatcher:
    """Watches one text for `stops`.

    The stop string that is complete first wins; of several complete at the same character, the
    longest (which begins earliest). Its text is let through only if `include_stop`. Raises
    ValueError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        if "" in stops:
            raise ValueError("stop must not hold an empty string")
        self._include_stop = include_stop
        self._start = _automaton(stops)
        self._state = self._start
        self._held = ""
        self.matched: str | None = None

    @property
    def num_held(self) -> int:
        """Characters held back."""
        return len(self._held)

    def add(self, text: str, *, skip: int = 0) -> str:
        """Adds `text`, of which no stop string may touch the first `skip` characters.

        Gives the text that may be shown now. A text under its minimum length is added with `skip`
        as its length: it passes, and a stop string can only begin after it. After a match, which
        `matched` names, nothing passes.
        """
        if self.matched is not None:
            return ""
        if not self._start.next:
            return text
        passed = ""
        if skip > 0:
            passed = self.flush() + text[:skip]
            text = text[skip:]
        text = self._held + text
        state = self._state
        for at in range(len(self._held), len(text)):
            state = _step(state, text[at])
            if state.matched is not None:
                self.matched = state.matched
                self._held = ""
                end = at + 1 if self._include_stop else at + 1 - len(state.matched)
                return passed + text[:end]
        self._state = state
        free = len(text) - state.depth
        self._held = text[free:]
        return passed + text[:free]

    def flush(self) -> str:
        """The text held back, once no more comes; the search begins anew after it."""
        held, self._held, self._state = self._held, "", self._start
        return held


def _step(state: _State, character: str) -> _State:
    while True:
        following = state.next.get(character)
        if following is not None:
            return following
        if state.fallback is None:
            return state
        state = state.fallback


def _automaton(stops: Sequence[str]) -> _State:
    start = _State(0)
    for stop in stops:
        state = start
        for character in stop:
            state = state.next.setdefault(character, _State(state.depth + 1))
        state.matched = stop
    for state, character, parent in _breadth_first(start):
        state.fallback = start if parent.fallback is None else _step(parent.fallback, character)
        if state.matched is None:
            state.matched = state.fallback.matched
    return start


def _breadth_first(start: _State) -> Iterator[tuple[_State, str, _State]]:
    waiting = deque([start])
    while waiting:
        parent = waiting.popleft()
        for character, state in parent.next.items():
            yield state, character, parent
            waiting.append(state)
