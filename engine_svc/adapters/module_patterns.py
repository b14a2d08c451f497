"""Which modules a key of rank_pattern or alpha_pattern means, in time that a key cannot stretch.

PEFT takes each key for a regular expression that has to match the end of a module's name, from its
beginning or after a dot: `(.*\\.)?(KEY)$`. Names and the common expressions are read here; what
Python's own engine would try in all ways is followed in all ways at once. Positions in a name are
bits of an integer, and a part of an expression turns those where it may begin into those where it
may end:

    name       l a y e r s . 1 . m l p
    begins    ^            ^ ^ ^              each part takes a set of positions
    [0-9]                      ^              and gives a set: no way is tried twice
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MAX_LENGTH = 256  # characters of an expression
_MAX_REPEATS = 8  # in an expression, `?` aside
_MAX_COUNT = 16  # of {least,most}
_MAX_DEPTH = 16  # of groups
_NAME = re.compile(r"\^?[\w-]+((\\?\.)[\w-]+)*\$?", re.ASCII)
_COUNTS = re.compile(r"\{([0-9]{1,2})(?:(,)([0-9]{1,2})?)?\}")
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES = {"d": _DIGITS, "w": _WORD}
_ANY = frozenset(map(chr, range(0x20, 0x7F)))  # of what names of modules are made


def is_name(pattern: str) -> bool:
    """Whether a pattern is the end of a module's name and nothing more."""
    return _NAME.fullmatch(pattern) is not None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Says of a module's name, in ASCII, whether a pattern means it.

    Raises ValueError for a pattern that is no regular expression, or not one of the simple ones:
    characters, `.`, \\d, \\w, classes, groups, `|`, `?`, repeats that are not nested, `^` and `$`.
    """
    if is_name(pattern):
        return _by_name(pattern)
    expression = _Parser(pattern).whole()

    def matches(module: str) -> bool:
        name = _Name.of(module)
        begins = 1 | name.places.get(".", 0) << 1
        return bool(expression.ends(name, begins) & name.end)

    return matches


def _by_name(pattern: str) -> Callable[[str], bool]:
    name = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
    if pattern.startswith("^"):
        return lambda module: module == name
    return lambda module: module == name or module.endswith(f".{name}")


@dataclass(frozen=True, slots=True)
class _Name:
    """A module's name: where each character stands, as bits."""

    places: dict[str, int]
    end: int  # the bit after the last character
    _sets: dict[frozenset[str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> _Name:
        places: dict[str, int] = {}
        for i, character in enumerate(text):
            places[character] = places.get(character, 0) | 1 << i
        return cls(places, 1 << len(text))

    def where(self, allowed: frozenset[str]) -> int:
        """The places of several characters."""
        if allowed not in self._sets:
            places = (at for character, at in self.places.items() if character in allowed)
            self._sets[allowed] = reduce(int.__or__, places, 0)
        return self._sets[allowed]


class _Part(Protocol):
    """A part of an expression."""

    @property
    def repeats(self) -> int:
        """How often something in it is repeated by `*`, `+` or counts."""
        ...

    def ends(self, name: _Name, begins: int) -> int:
        """Positions where it may end if it begins at any of `begins`."""
        ...


@dataclass(frozen=True, slots=True)
class _Character:
    allowed: frozenset[str]
    repeats: int = 0

    def ends(self, name: _Name, begins: int) -> int:
        return (begins & name.where(self.allowed)) << 1


@dataclass(frozen=True, slots=True)
class _Edge:
    """`^` or `$`."""

    is_begin: bool
    repeats: int = 0

    def ends(self, name: _Name, begins: int) -> int:
        return begins & (1 if self.is_begin else name.end)


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: Sequence[_Part]

    @property
    def repeats(self) -> int:
        return sum(part.repeats for part in self.parts)

    def ends(self, name: _Name, begins: int) -> int:
        for part in self.parts:
            begins = part.ends(name, begins)
        return begins


@dataclass(frozen=True, slots=True)
class _Either:
    parts: Sequence[_Part]

    @property
    def repeats(self) -> int:
        return sum(part.repeats for part in self.parts)

    def ends(self, name: _Name, begins: int) -> int:
        return reduce(int.__or__, (part.ends(name, begins) for part in self.parts))


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Part
    least: int
    most: int | None  # None is any number

    @property
    def repeats(self) -> int:
        return self.part.repeats + (self.most != 1)

    def ends(self, name: _Name, begins: int) -> int:
        for _ in range(self.least):
            begins = self.part.ends(name, begins)
        found = new = begins
        left = self.most
        while new and (left is None or left > self.least):
            new = self.part.ends(name, new) & ~found
            found |= new
            left = None if left is None else left - 1
        return found


class _Parser:
    """Reads an expression. Raises ValueError saying what in it is not taken."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _MAX_LENGTH or not pattern.isascii():
            raise ValueError(f"it has more than {_MAX_LENGTH} characters, or some beyond ASCII")
        self._text = pattern
        self._at = 0
        self._depth = 0

    def whole(self) -> _Part:
        """The expression."""
        found = self._either()
        if self._at < len(self._text):
            raise ValueError("it has a ) without a (")
        if found.repeats > _MAX_REPEATS:
            raise ValueError(f"it has more than {_MAX_REPEATS} repeats")
        return found

    def _either(self) -> _Part:
        ways = [self._sequence()]
        while self._takes("|"):
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else _Either(ways)

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._one()))
        return _Sequence(parts)

    def _one(self) -> _Part:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return _Character(self._class())
            case "\\":
                return _Character(self._escaped())
            case ".":
                return _Character(_ANY)
            case "^" | "$":
                return _Edge(character == "^")
            case "*" | "+" | "?" | "{":
                raise ValueError(f"it has a {character} that repeats nothing")
            case _:
                return _Character(frozenset(character))

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"its groups are nested more than {_MAX_DEPTH} deep")
        if self._takes("?") and not self._takes(":"):
            raise ValueError("it has a group that is more than that: (?")
        found = self._either()
        if not self._takes(")"):
            raise ValueError("it has a ( without a )")
        self._depth -= 1
        return found

    def _repeated(self, part: _Part) -> _Part:
        if self._takes("*"):
            least, most = 0, None
        elif self._takes("+"):
            least, most = 1, None
        elif self._takes("?"):
            least, most = 0, 1
        elif counts := _COUNTS.match(self._text, self._at):
            self._at = counts.end()
            least = int(counts[1])
            most = int(counts[3]) if counts[3] else None if counts[2] else least
            if max(least, most or 0) > _MAX_COUNT or (most is not None and most < least):
                raise ValueError(f"it has {counts[0]}, which is out of order or above {_MAX_COUNT}")
        else:
            return part
        if isinstance(part, _Edge):
            raise ValueError("it repeats ^ or $")
        self._takes("?")  # as little as possible: which way is taken first does not matter here
        if self._at < len(self._text) and self._text[self._at] in "*+?{":
            raise ValueError("it has a repeat of a repeat")
        if most != 1 and part.repeats:
            raise ValueError("it has a repeat within a repeat")
        return _Repeat(part, least, most)

    def _escaped(self) -> frozenset[str]:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character not in string.punctuation:
            raise ValueError(f"it has \\{character}")
        return frozenset(character)

    def _class(self) -> frozenset[str]:
        """Reads up to the `]`, which stands for itself where it comes first."""
        is_without = self._takes("^")
        found: set[str] = set()
        begin = self._at
        while self._at == begin or not self._takes("]"):
            first = self._member()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._member()
                if len(first) > 1 or len(last) > 1 or min(first) > min(last):
                    raise ValueError("it has a range of characters that is none")
                found |= set(map(chr, range(ord(min(first)), ord(min(last)) + 1)))
            else:
                found |= first
        return _ANY - found if is_without else frozenset(found)

    def _member(self) -> frozenset[str]:
        character = self._next()
        return self._escaped() if character == "\\" else frozenset(character)

    def _next(self) -> str:
        if self._at == len(self._text):
            raise ValueError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True
