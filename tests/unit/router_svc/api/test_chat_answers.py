"""Chat answers over an engine that writes given texts: calls, reasoning, and stream == whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import chat
from router_svc.call_context import CallContext
from router_svc.generation_types import FinishReason
from router_svc.served_model import ServedModel
from tests.support.written_answers import WritingEngine, written_model

CONTEXT = CallContext("test")
CALL = '<tool_call>\n{"name": "next_bus", "arguments": {"stop": "Mitte"}}\n</tool_call>'
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)

Writer = Callable[..., tuple[ServedModel, WritingEngine]]


@pytest.fixture(scope="module")
def writer(smollm2_checkpoint: Path) -> Writer:
    made: dict[str, tuple[ServedModel, WritingEngine]] = {}

    def write(*texts: str, **options: Any) -> tuple[ServedModel, WritingEngine]:
        if repr(options) not in made:
            made[repr(options)] = written_model(smollm2_checkpoint, **options)
        model, engine = made[repr(options)]
        engine.texts, engine.pace, engine.reason = texts, 1, FinishReason.STOP
        engine.requests.clear()
        return model, engine

    return write


def bus_tool(**function: Any) -> pb.Tool:
    schema = {"type": "object", "properties": {"stop": {"type": "string"}}, "required": ["stop"]}
    parameters = orjson.dumps(schema).decode()
    definition = pb.FunctionDefinition(name="next_bus", parameters=parameters, **function)
    return pb.Tool(type="function", function=definition)


def chat_request(**fields: Any) -> pb.CreateChatCompletionRequest:
    content = pb.MessageContent(text="When does the bus leave?")
    messages = fields.pop("messages", [pb.ChatMessage(role=pb.ROLE_USER, content=content)])
    return pb.CreateChatCompletionRequest(messages=messages, **fields)


async def answer(model: ServedModel, **fields: Any) -> pb.ChatChoice:
    return (await chat.create(chat_request(**fields), model, CONTEXT)).choices[0]


def required() -> pb.ToolChoice:
    return pb.ToolChoice(mode=pb.TOOL_CHOICE_MODE_REQUIRED)


def named() -> pb.ToolChoice:
    choice = pb.NamedToolChoice(function=pb.FunctionName(name="next_bus"))
    return pb.ToolChoice(object=pb.ToolChoiceObject(function=choice))


async def test_a_format_without_types_gives_values_those_of_the_tools_schema(
    writer: Writer,
) -> None:
    schema = '{"properties": {"stop": {"type": "string"}, "n": {"type": "integer"}}}'
    function = pb.FunctionDefinition(name="next_bus", parameters=schema)
    tags = "<parameter=stop>\n7\n</parameter>\n<parameter=n>\n7\n</parameter>\n"
    model, _ = writer(
        f"<tool_call>\n<function=next_bus>\n{tags}</function>\n</tool_call>",
        tool_parser="qwen3_coder",
    )

    choice = await answer(model, tools=[pb.Tool(type="function", function=function)])

    (call,) = choice.message.tool_calls
    assert call.function.arguments == '{"stop": "7", "n": 7}'


async def test_a_call_is_no_content_and_ends_the_turn(writer: Writer) -> None:
    model, _ = writer(CALL)

    choice = await answer(model, tools=[bus_tool()])

    assert choice.finish_reason == pb.FINISH_REASON_TOOL_CALLS
    assert not choice.message.HasField("content")
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("next_bus", '{"stop": "Mitte"}')
    assert call.id.startswith("call_")


async def test_words_before_a_call_are_content(writer: Writer) -> None:
    model, _ = writer(f"Let me look.\n{CALL}")

    message = (await answer(model, tools=[bus_tool()])).message

    assert message.content == "Let me look."
    assert len(message.tool_calls) == 1


async def test_of_a_function_that_the_client_named_it_knows_that_it_is_called(
    writer: Writer,
) -> None:
    model, _ = writer(CALL)

    choice = await answer(model, tools=[bus_tool()], tool_choice=named())

    assert choice.finish_reason == pb.FINISH_REASON_STOP
    assert len(choice.message.tool_calls) == 1


async def test_an_answer_that_was_cut_short_never_claims_to_be_a_call(writer: Writer) -> None:
    model, engine = writer(CALL[:40])
    engine.reason = FinishReason.LENGTH

    choice = await answer(model, tools=[bus_tool()], tool_choice=required())

    assert choice.finish_reason == pb.FINISH_REASON_LENGTH


async def test_without_tools_markup_is_content(writer: Writer) -> None:
    model, _ = writer(CALL)

    choice = await answer(model)

    assert choice.message.content == CALL
    assert choice.finish_reason == pb.FINISH_REASON_STOP


async def test_a_call_that_must_be_made_is_enforced_by_a_grammar(writer: Writer) -> None:
    model, engine = writer(CALL)

    await answer(model, tools=[bus_tool()], tool_choice=required())
    await answer(model, tools=[bus_tool()])

    must, may = engine.requests
    assert must.constraint is not None
    assert "next_bus" in must.constraint.text
    assert may.constraint is None


async def test_a_wanted_form_still_lets_the_model_call_a_tool(writer: Writer) -> None:
    model, engine = writer(CALL)
    json_object = pb.ResponseFormat(json_object=pb.JsonObjectFormat())

    await answer(model, tools=[bus_tool()], response_format=json_object)

    constraint = engine.requests[0].constraint
    assert constraint is not None
    assert constraint.kind == "ebnf"


async def test_a_template_without_tools_hears_of_them_in_plain_words(writer: Writer) -> None:
    model, _ = writer(CALL)
    call = pb.FunctionCall(name="next_bus", arguments='{"stop":"A"}')
    messages = [
        pb.ChatMessage(role=pb.ROLE_USER, content=pb.MessageContent(text="Bus?")),
        pb.ChatMessage(role=pb.ROLE_ASSISTANT, tool_calls=[pb.ToolCall(id="1", function=call)]),
        pb.ChatMessage(role=pb.ROLE_TOOL, content=pb.MessageContent(text="12:30")),
    ]
    request = chat_request(messages=messages, tools=[bus_tool(description="Asks the timetable.")])

    prompt = (await chat.render(request, model)).prompt

    assert "Asks the timetable." in prompt
    assert '{"name": "next_bus", "arguments": {"stop":"A"}}' in prompt
    assert "<tool_response>\n12:30\n</tool_response>" in prompt


async def test_reasoning_is_told_apart_counted_and_left_out_on_request(writer: Writer) -> None:
    model, _ = writer("Let me think.\n</think>\n\nAt noon.", template=CHATML)

    whole = await chat.create(chat_request(), model, CONTEXT)
    without = await answer(model, include_reasoning=False)

    message = whole.choices[0].message
    assert (message.reasoning_content, message.content) == ("Let me think.", "At noon.")
    assert whole.usage.completion_tokens_details.reasoning_tokens == 4
    assert (without.message.reasoning_content, without.message.content) == ("", "At noon.")


async def fold(request: pb.CreateChatCompletionRequest, model: ServedModel) -> list[dict[str, Any]]:
    """What a client makes of the stream, choice by choice."""
    choices = [
        {"content": "", "reasoning": "", "calls": [], "ids": [], "logprobs": [], "end": None}
        for _ in range(request.n or 1)
    ]
    async for chunk in chat.stream(request, model, CONTEXT):
        for part in chunk.choices:
            choice = choices[part.index]
            choice["content"] += part.delta.content
            choice["reasoning"] += part.delta.reasoning_content
            for call in part.delta.tool_calls:
                if call.HasField("id"):
                    choice["calls"].append([call.id, call.function.name, ""])
                choice["calls"][call.index][2] += call.function.arguments
            choice["ids"] += part.token_ids
            choice["logprobs"] += [entry.logprob for entry in part.logprobs.content]
            if part.finish_reason:
                choice["end"] = part.finish_reason
    return choices


def whole_choice(choice: pb.ChatChoice) -> dict[str, Any]:
    message = choice.message
    calls = [[c.id, c.function.name, c.function.arguments] for c in message.tool_calls]
    return {
        "content": message.content,
        "reasoning": message.reasoning_content,
        "calls": calls,
        "ids": list(choice.token_ids),
        "logprobs": [entry.logprob for entry in choice.logprobs.content],
        "end": choice.finish_reason,
    }


PIECES = st.sampled_from(
    [CALL, CALL[:30], "<think>", "</think>", "\n", " ", "Grüße 🙂", '{"name":', "<tool", "12:30"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(PIECES, max_size=5).map("".join), min_size=1, max_size=2),
    pace=st.integers(1, 9),
    parallel=st.booleans(),
    reasoning=st.sampled_from(["none", "qwen3"]),
)
async def test_the_stream_adds_up_to_the_whole_answer(
    writer: Writer, texts: list[str], pace: int, parallel: bool, reasoning: str
) -> None:
    model, engine = writer(*texts, reasoning_parser=reasoning)
    request = chat_request(
        n=len(texts),
        tools=[bus_tool()],
        parallel_tool_calls=parallel,
        logprobs=True,
        return_token_ids=True,
    )

    whole = await chat.create(request, model, CONTEXT)
    engine.pace = pace
    streamed = await fold(request, model)

    assert streamed == [whole_choice(choice) for choice in whole.choices]
