"""What holds for every parser and every text, in whatever pieces it comes."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from parser_runs import calls_of, content_of, parse, tool_parser

import router_svc.parsing
from router_svc.parsing.formats import REASONING_FORMATS, TOOL_FORMATS
from router_svc.parsing.parts import Content, OutputParser, Reasoning
from router_svc.parsing.plain import PlainParser

FORMATS = {
    name: TOOL_FORMATS[name]
    for name in (
        "hermes",
        "llama3_json",
        "mistral",
        "pythonic",
        "deepseek_v3",
        "deepseek_v31",
        "qwen3_coder",
    )
}

# What texts are made of that are almost calls.
SHREDS = sorted(
    {marker for tool_format in FORMATS.values() for marker in tool_format.markers}
    | {marker for reasoning in REASONING_FORMATS.values() for marker in reasoning.markers}
    | {tool_format.syntax.head_of("now") for tool_format in FORMATS.values()}
    | {tool_format.syntax.render([("now", '{"a": 1}')]) for tool_format in FORMATS.values()}
    | {'{"name": "', '"arguments": ', '"parameters":', "next_bus", "no_such", "[now(", "a=", "'"}
    | set('{}[]()":,;=\\ \n')
    | {"<function=", "</function>", "<parameter=", "</parameter>", "<parameter=a>", "</"}
    | {'\\"', "\\u00", "```json\n", "```", "null", "-1.5e3", '"""'}
)
texts = st.lists(st.sampled_from(SHREDS) | st.text(max_size=4), max_size=24).map("".join)
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def pieces_of(text: str, sizes: list[int]) -> Iterator[str]:
    begin = step = 0
    while begin < len(text):
        end = begin + sizes[step % len(sizes)]
        yield text[begin:end]
        begin, step = end, step + 1


def with_reasoning(rest: Callable[[], OutputParser], *, opened: bool) -> OutputParser:
    return REASONING_FORMATS["qwen3"].new_parser(rest(), opened=opened)


@pytest.mark.parametrize("name", FORMATS)
@given(text=texts, sizes=cuts, parallel=st.booleans())
def test_the_parts_do_not_depend_on_how_the_text_was_cut(
    name: str, text: str, sizes: list[int], parallel: bool
) -> None:
    def new_parser() -> OutputParser:
        return tool_parser(FORMATS[name], parallel=parallel)

    whole = parse(new_parser(), [text])

    assert parse(new_parser(), pieces_of(text, sizes)) == whole
    assert len(calls_of(whole)) <= (len(text) if parallel else 1)


@given(text=texts, sizes=cuts, opened=st.booleans())
def test_nor_do_they_with_reasoning_before(text: str, sizes: list[int], opened: bool) -> None:
    def new_parser() -> OutputParser:
        return with_reasoning(lambda: tool_parser(TOOL_FORMATS["hermes"]), opened=opened)

    assert parse(new_parser(), pieces_of(text, sizes)) == parse(new_parser(), [text])


@pytest.mark.parametrize("name", FORMATS)
@given(text=texts, sizes=cuts)
@example(text="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool", sizes=[1])
def test_where_nothing_may_be_called_all_text_is_content(
    name: str, text: str, sizes: list[int]
) -> None:
    parts = parse(tool_parser(FORMATS[name], functions=()), pieces_of(text, sizes))

    assert parts == ([Content(text)] if text else [])


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "qwen3_coder"])
@given(
    arguments=st.dictionaries(
        st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2)
            ),
            max_leaves=5,
        ),
        max_size=3,
    ),
    sizes=cuts,
)
def test_a_call_as_the_format_writes_it_is_read_back(name: str, arguments: dict, sizes) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    text = FORMATS[name].syntax.render([("next_bus", written), ("now", "{}")])

    parts = parse(tool_parser(FORMATS[name]), pieces_of(text, sizes))

    (bus, read), now = calls_of(parts)
    assert (bus, json.loads(read), now) == ("next_bus", arguments, ("now", "{}"))
    assert content_of(parts) == ""


@given(text=st.text(), sizes=cuts)
def test_a_plain_answer_comes_out_as_it_came(text: str, sizes: list[int]) -> None:
    assert content_of(parse(PlainParser(), pieces_of(text, sizes))) == text


def test_ids_are_the_same_whenever_an_answer_is_read_again_and_differ_otherwise() -> None:
    hermes = TOOL_FORMATS["hermes"]

    def ids(request: str, choice: int) -> list[str]:
        new_id = hermes.new_ids(request, choice)
        return [new_id(), new_id()]

    assert ids("a", 0) == ids("a", 0)
    assert len({*ids("a", 0), *ids("a", 1), *ids("b", 0)}) == 6
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", made) for made in ids("a", 0))


# ── Time ──────────────────────────────────────────────────────────────────────────────────────

HOSTILE = {
    "brackets": ("", "["),
    "assignments": ("", "a="),
    "keywords without end": ("[now(", "a=1,"),
    "openings": ("", "<tool_call>"),
    "quotes": ("", "\"'\\"),
    "white space": ("", " "),
    "lines": ("", "\n["),
    "nested arrays": ('<tool_call>{"name": "now", "arguments": ', "["),
    "nested objects": ('[TOOL_CALLS][{"name": "now", "arguments": ', '{"a":'),
    "nested literals": ("[now(a=", "['"),
    "a long string": ('{"name": "now", "parameters": {"a": "', '\\"'),
    "a long number": ('[TOOL_CALLS]now[ARGS]{"a": 1', "0"),
    "empty calls": ("", "[now(),"),
    "almost closed": ("<think>", "</think"),
    "calls": ("", '<tool_call>{"name": "now"}</tool_call>'),
    "parameters": ("<function=now>", "<parameter=a>\n1\n</parameter>"),
    "parameters without end": ("<function=now>", "\n<parameter=a>"),
    "almost closed values": ("<function=now><parameter=a>", "\n</parameter> \n"),
    "almost closed calls": ("<function=now><parameter=a>", "\n</function> \n"),
    "unknown calls": (
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
    ),
}


def every_parser() -> dict[str, Callable[[], OutputParser]]:
    parsers: dict[str, Callable[[], OutputParser]] = {
        name: lambda tool_format=tool_format: tool_parser(tool_format)
        for name, tool_format in FORMATS.items()
    }
    parsers["reasoning"] = lambda: with_reasoning(PlainParser, opened=False)
    return parsers


def hostile(begin: str, repeated: str, length: int) -> str:
    return (begin + repeated * (length // len(repeated) + 1))[:length]


def num_calls_made(run: Callable[[], object]) -> int:
    """How many functions, of Python's too, `run` calls or goes on with."""
    count = 0

    def profile(_frame, event: str, _arg) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", every_parser())
def test_twice_the_text_one_character_at_a_time_takes_twice_the_work(name: str, kind: str) -> None:
    new_parser = every_parser()[name]
    once, twice = (hostile(*HOSTILE[kind], length) for length in (500, 1000))

    work = num_calls_made(lambda: parse(new_parser(), once))
    double = num_calls_made(lambda: parse(new_parser(), twice))

    assert double < 2.5 * work


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", FORMATS)
def test_no_more_than_a_literal_is_read_again_when_more_text_comes(name: str, kind: str) -> None:
    parser = tool_parser(FORMATS[name])
    longest = max(len(marker) for marker in SHREDS)

    for character in hostile(*HOSTILE[kind], 1000):
        parser.feed(character)

        assert len(parser._reader.text) <= longest


@pytest.mark.parametrize("name", every_parser())
def test_a_megabyte_of_each_is_read_in_pieces_without_harm(name: str) -> None:
    size = 1_000_000 // len(HOSTILE)

    for begin, repeated in HOSTILE.values():
        text = hostile(begin, repeated, size)
        parts = parse(every_parser()[name](), pieces_of(text, [61]))

        assert parts
        assert sum(len(p.text) for p in parts if isinstance(p, Content | Reasoning)) <= size


def source_files() -> list[Path]:
    return sorted(Path(router_svc.parsing.__file__).parent.glob("*.py"))


def has_nested_repeat(pattern: re.Pattern[str]) -> bool:
    def repeats(node, inside: bool) -> bool:
        if isinstance(node, tuple) and len(node) == 2 and "REPEAT" in str(node[0]):
            low, high, body = node[1]
            unbounded = high - low > 1
            return (unbounded and inside) or repeats(body, inside or unbounded)
        if isinstance(node, str | bytes | int) or node is None:
            return False
        return any(repeats(child, inside) for child in node)

    return repeats(re._parser.parse(pattern.pattern, pattern.flags), False)


def test_the_check_for_nested_repeats_sees_them() -> None:
    assert has_nested_repeat(re.compile(r"(a+b?)*"))
    assert not has_nested_repeat(re.compile(r"a+(b|c)?d*"))


@pytest.mark.parametrize("path", source_files(), ids=lambda path: path.stem)
def test_no_pattern_repeats_within_a_repeat(path: Path) -> None:
    module = import_module(f"router_svc.parsing.{path.stem}".removesuffix(".__init__"))

    patterns = [value for value in vars(module).values() if isinstance(value, re.Pattern)]

    assert [pattern.pattern for pattern in patterns if has_nested_repeat(pattern)] == []


@pytest.mark.parametrize("path", source_files(), ids=lambda path: path.stem)
def test_nothing_that_a_model_writes_is_evaluated(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    assert names & {"eval", "exec", "compile", "literal_eval"} == set()
