"""Conversations reach a template in the form that it was written for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from router_svc.text.chat_template import ChatTemplate
from router_svc.text.template_errors import TemplateFailedError

if TYPE_CHECKING:
    from router_svc.text.tokenizer import Tokenizer

SHOW_ALL = "{% for m in messages %}{{ m | tojson(sort_keys=true) }}{% endfor %}"
JOINING = "{% for m in messages %}{{ m.role + ': ' + m['content'] + ';' }}{% endfor %}"


def text_of(tokenizer: Tokenizer, source: str, messages: list[dict[str, Any]]) -> str:
    template = ChatTemplate(source, tokenizer)
    return template.render(messages, add_generation_prompt=False, continue_final_message=False).text


def call(arguments: str) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize("source", [SHOW_ALL, JOINING])
def test_an_empty_list_of_tool_calls_is_as_none(smollm2: Tokenizer, source: str) -> None:
    with_list = [{"role": "assistant", "content": "ok", "tool_calls": []}]
    without = [{"role": "assistant", "content": "ok"}]

    assert text_of(smollm2, source, with_list) == text_of(smollm2, source, without)


def test_a_turn_with_calls_and_no_content_is_kept(smollm2: Tokenizer) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call("{}")]},
        {"role": "user", "content": "b"},
    ]

    assert text_of(smollm2, JOINING, messages) == "user: a;assistant: ;user: b;"


@pytest.mark.parametrize(
    "source", ["{{ messages[0]['content'] is none }}", "{{ messages[0].content == none }}"]
)
def test_null_content_stays_null_for_a_template_that_asks(smollm2: Tokenizer, source: str) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call("{}")]}

    assert text_of(smollm2, source, [message]) == "True"


def test_content_parts_are_joined(smollm2: Tokenizer) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]

    assert text_of(smollm2, JOINING, [{"role": "user", "content": parts}]) == "user: one two;"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}},
        {"type": "text"},
        {"type": "text", "text": None},
    ],
)
def test_a_part_that_is_no_text_is_refused_by_its_place(
    smollm2: Tokenizer, part: dict[str, Any]
) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]

    with pytest.raises(TemplateFailedError, match="text") as refusal:
        text_of(smollm2, JOINING, messages)

    assert refusal.value.param == "messages[0].content[1]"


def test_a_template_that_only_knows_parts_gets_parts(smollm2: Tokenizer) -> None:
    source = "{% for part in messages[0]['content'] %}[{{ part['text'] }}]{% endfor %}"

    assert text_of(smollm2, source, [{"role": "user", "content": "hello"}]) == "[hello]"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[0].role }}", "system"),
        ("{{ 'yes' if messages[0].role == 'developer' }}", "yes"),
    ],
)
def test_a_developer_speaks_as_system_unless_the_template_knows_the_role(
    smollm2: Tokenizer, source: str, expected: str
) -> None:
    assert text_of(smollm2, source, [{"role": "developer", "content": "x"}]) == expected


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a":1,"b":["č"]}', '{"a": 1, "b": ["č"]}'),
        ("{broken", '"{broken"'),
        ("[1]", '"[1]"'),
        ('{"n": 123456789012345678901234567890}', '{"n": 123456789012345678901234567890}'),
        ('{"n": NaN}', '"{\\"n\\": NaN}"'),
        ('{"n": 1e999}', '"{\\"n\\": 1e999}"'),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", None),
    ],
)
def test_arguments_are_objects_where_they_are_objects(
    smollm2: Tokenizer, arguments: str, shown: str | None
) -> None:
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    message = {"role": "assistant", "content": None, "tool_calls": [call(arguments)]}

    text = text_of(smollm2, source, [message])

    # What cannot be kept exactly stays the text that it was.
    assert text == (json.dumps(arguments) if shown is None else shown)


def test_arguments_stay_text_for_a_template_that_joins_them(smollm2: Tokenizer) -> None:
    source = "{{ 'args: ' + messages[0].tool_calls[0].function.arguments }}"
    message = {"role": "assistant", "content": None, "tool_calls": [call('{"a":1}')]}

    assert text_of(smollm2, source, [message]) == 'args: {"a":1}'


def test_the_callers_messages_are_left_alone(smollm2: Tokenizer) -> None:
    message = {"role": "developer", "content": [{"type": "text", "text": "a"}], "tool_calls": []}
    before = repr(message)

    text_of(smollm2, JOINING, [message])

    assert repr(message) == before


def test_reasoning_is_there_under_both_its_names(smollm2: Tokenizer) -> None:
    source = "{{ messages[0].reasoning_content }}/{{ messages[0].thinking }}"

    text = text_of(
        smollm2, source, [{"role": "assistant", "content": "", "reasoning_content": "hm"}]
    )

    assert text == "hm/hm"
