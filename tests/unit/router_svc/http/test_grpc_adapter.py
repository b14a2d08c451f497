"""gRPC callers meet the same limits and the same handler, and failures as statuses with details."""

import asyncio
import json
from typing import Any

import grpc
import httpx
import pytest
from error_shape import assert_error
from fake_inference import FakeInference
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from octavo.http.v1 import options_pb2
from octavo.inference.v1 import inference_pb2 as pb


def chat(**fields: Any) -> pb.CreateChatCompletionRequest:
    """A valid conversation with the given fields on top."""
    message = pb.ChatMessage(role=pb.ROLE_USER, content=pb.MessageContent(text="a"))
    return pb.CreateChatCompletionRequest(**{"model": "fake", "messages": [message]} | fields)


async def failure(call: Any) -> Any:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def detail(error: Any, kind: Any) -> Any:
    """The google.rpc detail of one kind."""
    for each in rpc_status.from_call(error).details:
        found = kind()
        if each.Unpack(found):
            return found
    return None


def violated(error: Any) -> str:
    """The field that the error names."""
    return detail(error, error_details_pb2.BadRequest).field_violations[0].field


async def test_a_call_reaches_the_handler(stub: Any) -> None:
    answer = await stub.CreateChatCompletion(chat())

    assert answer.choices[0].message.content == "a"


async def test_a_stream_passes_every_item_on(stub: Any) -> None:
    items = [item async for item in stub.StreamChatCompletion(chat())]

    assert "".join(item.choices[0].delta.content for item in items[:3]) == "Hallo"
    assert items[-1].usage.total_tokens == 5


async def test_the_handler_learns_id_trace_and_deadline(
    stub: Any, grpc_handler: FakeInference
) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    metadata = (("x-request-id", "me"), ("traceparent", trace))

    call = stub.CreateChatCompletion(chat(), metadata=metadata, timeout=60)

    assert dict(await call.initial_metadata())["x-request-id"] == "me"
    await call
    context = grpc_handler.contexts[-1]
    assert (context.request_id, context.traceparent) == ("me", trace)
    assert context.deadline is not None


async def test_a_full_queue_says_when_to_retry(stub: Any) -> None:
    error = await failure(stub.CreateChatCompletion(chat(model="busy")))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(error, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() == 2500


async def test_a_stream_that_breaks_keeps_what_came_before(stub: Any) -> None:
    stream = stub.StreamChatCompletion(chat(model="breaks"))

    assert (await stream.read()).choices
    error = await failure(stream.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert detail(error, error_details_pb2.ErrorInfo).reason == "ENGINE_LOST"


async def test_a_bug_is_internal_and_says_nothing_else(stub: Any) -> None:
    error = await failure(stub.CreateChatCompletion(chat(model="crashes")))

    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "The server failed on this request."


async def test_cancelling_a_call_cancels_the_handler(
    stub: Any, grpc_handler: FakeInference
) -> None:
    call = stub.CreateChatCompletion(chat(model="hangs"))
    assert await asyncio.to_thread(grpc_handler.has_started.wait, 30)

    call.cancel()

    assert await asyncio.to_thread(grpc_handler.was_cancelled.wait, 30)


@pytest.mark.parametrize("model", ["hangs-later", "endless"])
async def test_cancelling_a_stream_closes_the_handlers_iterator(
    stub: Any, grpc_handler: FakeInference, model: str
) -> None:
    stream = stub.StreamChatCompletion(chat(model=model))
    await stream.read()

    stream.cancel()

    assert await asyncio.to_thread(grpc_handler.was_closed.wait, 30)


def scalar_fields() -> list[tuple[str, object]]:
    """Every bounded or refused scalar of a conversation, with a value beyond its bound."""
    found: list[tuple[str, object]] = []
    for field in pb.CreateChatCompletionRequest.DESCRIPTOR.fields:
        rule = field.GetOptions().Extensions[options_pb2.field]
        if field.is_repeated:
            continue
        is_integer = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
        for bound, step in (("minimum", -1), ("maximum", 1), ("above", -1)):
            limit = getattr(rule, bound)
            fits = not is_integer or abs(limit) < 2**31 - 1 or field.cpp_type == field.CPPTYPE_INT64
            if rule.HasField(bound) and fits:
                found.append((field.name, int(limit) + step if is_integer else limit + step))
        if rule.max_length:
            found.append((field.name, "x" * (rule.max_length + 1)))
        if rule.refused:
            found.append((field.name, True if field.type == field.TYPE_BOOL else "x"))
    return found


@pytest.mark.parametrize(("name", "value"), scalar_fields())
async def test_grpc_and_http_agree_on_what_is_out_of_bounds(
    stub: Any, http: httpx.Client, name: str, value: object
) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], name: value}

    over_grpc = await failure(stub.CreateChatCompletion(chat(**{name: value})))
    over_http = assert_error(
        await asyncio.to_thread(http.post, "/v1/chat/completions", json=body), 400, name
    )

    assert over_grpc.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert violated(over_grpc) == name
    assert over_grpc.details() == over_http["message"]


NESTED = [
    (chat(messages=[]), {"messages": []}, "messages"),
    (
        chat(messages=[pb.ChatMessage(content=pb.MessageContent(text="a"))]),
        {"messages": [{"content": "a"}]},
        "messages[0].role",
    ),
    (
        chat(messages=[pb.ChatMessage(role=pb.ROLE_USER, name="n" * 513)]),
        {"messages": [{"role": "user", "name": "n" * 513}]},
        "messages[0].name",
    ),
    (chat(stop=["a"] * 17), {"stop": ["a"] * 17}, "stop"),
    (chat(stop=["a", "b" * 4097]), {"stop": ["a", "b" * 4097]}, "stop[1]"),
    (chat(logit_bias={70001: 101}), {"logit_bias": {"70001": 101}}, "logit_bias.70001"),
    (chat(metadata={"k": "v" * 513}), {"metadata": {"k": "v" * 513}}, "metadata.k"),
]


@pytest.mark.parametrize(("message", "fields", "param"), NESTED)
async def test_grpc_and_http_agree_on_nested_fields(
    stub: Any, http: httpx.Client, message: Any, fields: dict[str, Any], param: str
) -> None:
    body = {"messages": [{"role": "user", "content": "a"}]} | fields

    over_grpc = await failure(stub.CreateChatCompletion(message))
    over_http = await asyncio.to_thread(http.post, "/v1/chat/completions", json=body)

    assert violated(over_grpc) == param
    assert over_grpc.details() == assert_error(over_http, 400, param)["message"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (chat(temperature=float("nan")), "temperature"),
        (chat(logit_bias={5: float("-inf")}), "logit_bias.5"),
        (chat(chat_template_kwargs="{"), "chat_template_kwargs"),
        (chat(chat_template_kwargs="[]"), "chat_template_kwargs"),
        (chat(chat_template_kwargs='{"a":' * 200 + "1" + "}" * 200), "chat_template_kwargs"),
        (chat(messages=[pb.ChatMessage(role=99)]), "messages[0].role"),
        (
            chat(messages=[pb.ChatMessage(role=pb.ROLE_USER, content=pb.MessageContent())]),
            "messages[0].content",
        ),
    ],
)
async def test_what_only_protobuf_can_say_is_refused_too(
    stub: Any, message: Any, param: str
) -> None:
    error = await failure(stub.CreateChatCompletion(message))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert violated(error) == param


async def test_a_prompt_without_a_form_is_missing(stub: Any) -> None:
    for request in (pb.CreateCompletionRequest(), pb.CreateCompletionRequest(prompt=pb.Prompt())):
        assert violated(await failure(stub.CreateCompletion(request))) == "prompt"


async def test_a_refusal_fits_into_metadata_whatever_the_client_sent(stub: Any) -> None:
    error = await failure(stub.CreateChatCompletion(chat(model="\u4e2d" * 60_000)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert json.dumps(error.details())
