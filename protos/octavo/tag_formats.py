"""Structural tags as xgrammar, vLLM and SGLang take them now: formats within formats.

    {"type": "structural_tag",
     "format": {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}}

A format becomes a Lark rule. What is hard is free text, which has to know where it ends, as a lexer
takes all it can get. So sequences and tags are flattened into items, and what ends in free text
gets the fixed text that follows it, and is read up to where that first occurs:

    tag("<a>", any_text, "</a>")   "<a>" open_0     open_0[lazy]: TEXT "</a>"

Free text that neither fixed text nor the answer's end follows is refused, as are formats in terms
of tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from octavo import tag_fields
from octavo.lark import (
    GrammarError,
    json_rule,
    nested_rule,
    quoted,
    regex_body,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_FORMATS = 512
MAX_DEPTH = 32
MAX_REPEATS = 1_000
MAX_CHARS = 65_536
_MAX_INLINE = 256  # characters
_KEYS = {
    "const_string": {"value"},
    "json_schema": {"json_schema", "style", "any_order"},
    "grammar": {"grammar"},
    "regex": {"pattern"},
    "any_text": {"excludes", "max_chars", "max_tokens"},
    "sequence": {"elements"},
    "or": {"elements"},
    "optional": {"content"},
    "plus": {"content"},
    "star": {"content"},
    "repeat": {"content", "min", "max"},
    "tag": {"begin", "content", "end"},
    "triggered_tags": {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"},
    "dispatch": {"rules", "loop", "excludes"},
    "tags_with_separator": {"tags", "separator", "at_least_one", "stop_after_first"},
}
# What is, or may end in, free text or an expression that could take what follows it.
_OPEN = frozenset(("any_text", "regex", "triggered_tags", "dispatch", "or", "optional"))


class _Fixed(NamedTuple):
    """One of some texts."""

    texts: tuple[str, ...]


class _Format(NamedTuple):
    """A format that is neither a sequence nor a tag nor fixed text, and where it stands."""

    kind: str
    value: dict[str, Any]
    path: str


_Item = _Fixed | _Format


class _End(NamedTuple):
    """What follows a format and is read with it: one of `texts`, or nothing if there are none.

    `is_last`: with that the answer is complete.
    """

    texts: tuple[str, ...]
    is_last: bool


_NOTHING = _End((), is_last=False)


def lark_of_format(value: Any) -> str:
    """The Lark grammar of a format, given as a parsed JSON value. Raises GrammarError."""
    writer = _Writer()
    start = writer.write(writer.items(value, "format", 1), _End((), is_last=True))
    return "\n".join((f"start: {start}", *writer.rules))


class _Writer:
    """Writes rules; `rules` are those that the expressions it has returned need."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self._num_formats = 0
        self._terminals: dict[str, str] = {}
        self._choices: dict[tuple[str, ...], str] = {}

    # ── Reading ───────────────────────────────────────────────────────────────────────────────

    def items(self, value: Any, path: str, depth: int) -> list[_Item]:
        """A format, flattened."""
        kind, fields = self._checked(value, path, depth)
        match kind:
            case "const_string":
                return _fixed([tag_fields.text(fields, "value", path)])
            case "sequence":
                found: list[_Item] = []
                for at, element in tag_fields.each(fields, "elements", path):
                    found += self.items(element, at, depth + 1)
                return found
            case "tag":
                begin = tag_fields.text(fields, "begin", path)
                return [*_fixed([begin]), *self._after_begin(fields, path, depth)]
        return [_Format(kind, {**fields, "depth": depth}, path)]

    def _after_begin(self, tag: dict[str, Any], path: str, depth: int) -> list[_Item]:
        content = self.items(tag.get("content"), f"{path}.content", depth + 1)
        ends = tag.get("end")
        if isinstance(ends, list):
            texts = [tag_fields.as_text(end, f"{path}.end[{i}]") for i, end in enumerate(ends)]
        else:
            texts = [tag_fields.as_text(ends, f"{path}.end")]
        if not texts or ("" in texts and len(texts) > 1):
            raise GrammarError(f"{path}.end must be a text, or several that are not empty")
        return [*content, *_fixed(texts)]

    def _checked(self, value: Any, path: str, depth: int) -> tuple[str, dict[str, Any]]:
        self._num_formats += 1
        if self._num_formats > MAX_FORMATS:
            raise GrammarError(f"has more than {MAX_FORMATS} formats")
        if depth > MAX_DEPTH:
            raise GrammarError(f"{path} is nested more than {MAX_DEPTH} deep")
        if not isinstance(value, dict):
            raise GrammarError(f"{path} must be an object")
        kind = value.get("type")
        if not isinstance(kind, str) or kind not in _KEYS:
            known = ", ".join(_KEYS)
            raise GrammarError(f"{path}: the format {kind!r} is not supported; known: {known}")
        if unknown := sorted(value.keys() - _KEYS[kind] - {"type"}):
            raise GrammarError(f"{path} has the unknown key {unknown[0]!r}")
        return kind, value

    # ── Writing ───────────────────────────────────────────────────────────────────────────────

    def write(self, items: Sequence[_Item], end: _End) -> str:
        """An expression for items in a row, and the end."""
        parts = []
        for i, item in enumerate(items):
            if isinstance(item, _Fixed):
                if i == 0 or not _takes_end(items[i - 1]):
                    parts.append(self._either(item.texts))
                continue
            if i + 1 == len(items):
                return " ".join([*parts, self._format(item, end)])
            following = items[i + 1]
            own = _NOTHING
            if isinstance(following, _Fixed) and _takes_end(item):
                own = _End(following.texts, is_last=False)
            parts.append(self._format(item, own))
        return " ".join([*parts, self._either(end.texts)] if end.texts else parts) or '""'

    def _format(self, item: _Format, end: _End) -> str:
        kind, fields, path = item
        close = f" {self._either(end.texts)}" if end.texts else ""
        match kind:
            case "json_schema":
                return self._rule(self._schema(fields, path)) + close
            case "grammar":
                text = tag_fields.text(fields, "grammar", path)
                return self._rule(tag_fields.within(f"{path}.grammar", nested_rule, text)) + close
            case "regex":
                return self._regex(fields, path, end)
            case "any_text":
                return self._any_text(fields, path, end)
            case "or" | "optional":
                return self._branches(item, end)
            case "star" | "plus" | "repeat":
                return self._repeated(item) + close
            case "tags_with_separator":
                return self._separated(item) + close
        return self._triggered(item, end)

    def _rule(self, right: str, *, lazy: bool = False) -> str:
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name}{'[lazy]' if lazy else ''}: {right}")
        return name

    def _terminal(self, body: str) -> str:
        """The name of a terminal, which stands in the grammar once."""
        if body not in self._terminals:
            self._terminals[body] = f"TEXT_{len(self._terminals)}"
            self.rules.append(f"{self._terminals[body]}: {body}")
        return self._terminals[body]

    def _either(self, texts: tuple[str, ...]) -> str:
        """One of some texts; what is long is written once, as many branches may end with it."""
        found = self._choices.get(texts)
        if found is None:
            found = " | ".join(map(quoted, texts))
            if len(found) > _MAX_INLINE:
                found = self._terminal(found)
            elif len(texts) > 1:
                found = f"({found})"
            self._choices[texts] = found
        return found

    def _schema(self, fields: dict[str, Any], path: str) -> str:
        if fields.get("style", "json") != "json":
            raise GrammarError(f"{path}.style: only 'json' is supported")
        if fields.get("any_order", False) is not False:
            raise GrammarError(f"{path}.any_order is not supported")
        return tag_fields.within(f"{path}.json_schema", json_rule, fields.get("json_schema"))

    def _regex(self, fields: dict[str, Any], path: str, end: _End) -> str:
        pattern = tag_fields.text(fields, "pattern", path)
        body = tag_fields.within(f"{path}.pattern", regex_body, pattern)
        if not end.texts:
            return self._rule(f"/{body}/")
        # As one lexeme, or the expression would take what it is followed by.
        name = f"REGEX_{len(self.rules)}"
        self.rules.append(f"{name}: /{body}/ {self._either(end.texts)}")
        return name

    def _any_text(self, fields: dict[str, Any], path: str, end: _End) -> str:
        if fields.get("max_tokens") is not None:
            raise GrammarError(f"{path}.max_tokens is not supported; max_chars is")
        text = self._text(fields, path, tag_fields.count(fields, "max_chars", path, MAX_CHARS))
        return self._text_up_to(text, path, end)

    def _text_up_to(self, text: str, path: str, end: _End) -> str:
        if end.texts:
            return self._rule(f"{text} {self._either(end.texts)}", lazy=True)
        if end.is_last:
            return text
        raise GrammarError(f"{path}: free text must be followed by a fixed text, or by nothing")

    def _text(self, fields: dict[str, Any], path: str, most: int | None = None) -> str:
        """A terminal for free text without what `excludes` names."""
        excluded = tag_fields.texts(fields, "excludes", path) if "excludes" in fields else []
        body = "/(?s:.*)/" if most is None else f"/(?s:.{{0,{most}}})/"
        if excluded:
            any_of = " | ".join(map(quoted, excluded))
            body += f" & ~(/(?s:.*)/ ({any_of}) /(?s:.*)/)"
        return self._terminal(body)

    def _branches(self, item: _Format, end: _End) -> str:
        depth, path = item.value["depth"], item.path
        if item.kind == "optional":
            content = self.items(item.value.get("content"), f"{path}.content", depth + 1)
            branches = [self.write(content, end), self._either(end.texts) if end.texts else '""']
        else:
            branches = [
                self.write(self.items(element, at, depth + 1), end)
                for at, element in tag_fields.each(item.value, "elements", path)
            ]
        return self._rule(" | ".join(branches))

    def _repeated(self, item: _Format) -> str:
        fields, path = item.value, item.path
        content = self.items(fields.get("content"), f"{path}.content", fields["depth"] + 1)
        one = self._rule(self.write(content, _NOTHING))
        if item.kind != "repeat":
            return one + ("*" if item.kind == "star" else "+")
        low = tag_fields.count(fields, "min", path, MAX_REPEATS)
        endless = fields.get("max") == -1
        high = None if endless else tag_fields.count(fields, "max", path, MAX_REPEATS)
        if low is None or (high is None and not endless):
            raise GrammarError(f"{path} needs min and max")
        if high is not None and high < low:
            raise GrammarError(f"{path}.max is less than min")
        if high == 0:
            return '""'
        return f"{one}{{{low},{'' if high is None else high}}}"

    def _separated(self, item: _Format) -> str:
        fields, path = item.value, item.path
        tags = [
            self.write(self.items(_tag(tag, at), at, fields["depth"] + 1), _NOTHING)
            for at, tag in tag_fields.each(fields, "tags", path)
        ]
        one = self._rule(" | ".join(tags))
        separator = self._either((tag_fields.text(fields, "separator", path),))
        more = "" if tag_fields.flag(fields, "stop_after_first", path) else f" ({separator} {one})*"
        return f"({one}{more})" + ("" if tag_fields.flag(fields, "at_least_one", path) else "?")

    def _triggered(self, item: _Format, end: _End) -> str:
        """Free text in which a trigger is followed by what it demands.

        (lead demanded)* rest, where each lead is the text up to its trigger, and the rest ends as
        any free text does.
        """
        fields, path = item.value, item.path
        text = self._text(fields, path)
        if item.kind == "dispatch":
            demanded, first = self._dispatched(item), ""
            once, must = not tag_fields.flag(fields, "loop", path, default=True), False
        else:
            demanded, first = self._tags(item)
            once = tag_fields.flag(fields, "stop_after_first", path)
            must = tag_fields.flag(fields, "at_least_one", path)
        calls = self._rule(
            " | ".join(
                f"{self._rule(f'{text} {quoted(trigger)}', lazy=True)} ({after})"
                for trigger, after in demanded.items()
            )
        )
        close = self._either(end.texts) if end.texts else ""
        if once:
            if must:
                return f"{first} {close}".strip()
            return self._rule(f"{calls} {close} | {self._text_up_to(text, path, end)}")
        rest = self._text_up_to(text, path, end)
        return f"{first} {calls}* {rest}" if must else f"{calls}* {rest}"

    def _tags(self, item: _Format) -> tuple[dict[str, str], str]:
        """For each trigger what follows it, and any whole tag."""
        fields, path = item.value, item.path
        triggers = tag_fields.texts(fields, "triggers", path)
        after: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        whole = []
        for at, value in tag_fields.each(fields, "tags", path):
            tag = _tag(value, at)
            begin = tag_fields.text(tag, "begin", at)
            fitting = [trigger for trigger in after if begin.startswith(trigger)]
            if len(fitting) != 1:
                raise GrammarError(f"{at}.begin must start with exactly one of the triggers")
            (trigger,) = fitting
            items = self.items(tag, at, fields["depth"] + 1)
            rest = self._rule(
                self.write([*_fixed([begin.removeprefix(trigger)]), *items[1:]], _NOTHING)
            )
            after[trigger].append(rest)
            whole.append(f"{quoted(trigger)} {rest}")
        if unused := [trigger for trigger, rests in after.items() if not rests]:
            raise GrammarError(f"{path}.triggers: no tag begins with {unused[0]!r}")
        first = self._rule(" | ".join(whole))
        return {trigger: " | ".join(rests) for trigger, rests in after.items()}, first

    def _dispatched(self, item: _Format) -> dict[str, str]:
        demanded: dict[str, str] = {}
        for at, rule in tag_fields.each(item.value, "rules", item.path):
            if not isinstance(rule, list) or len(rule) != 2:
                raise GrammarError(f"{at} must be a text and a format")
            pattern = tag_fields.as_text(rule[0], f"{at}[0]")
            if not pattern or pattern in demanded:
                raise GrammarError(f"{at}[0] must be a text of its own, and not empty")
            items = self.items(rule[1], f"{at}[1]", item.value["depth"] + 1)
            demanded[pattern] = self.write(items, _NOTHING)
        return demanded


def _takes_end(item: _Item) -> bool:
    """Whether an item may end in free text, so that it needs what follows."""
    return isinstance(item, _Format) and item.kind in _OPEN


def _fixed(texts: list[str]) -> list[_Item]:
    return [_Fixed(tuple(texts))] if texts != [""] else []


def _tag(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("type", "tag") != "tag":
        raise GrammarError(f"{path} must be a tag")
    return {"type": "tag", **value}
