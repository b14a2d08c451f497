"""Kills an engine after each token of an answer in turn; the client must get the same answer.

front that dies after token k ─┐
                               ├──► one engine
front that lives             ──┘
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2, engine_pb2_grpc
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import chat
from router_svc.call_context import CallContext
from router_svc.fleet.fleet import Fleet
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.tokenizer import Tokenizer
from tests.chaos.processes import Engine
from tests.support.cutting_engine import CuttingEngine
from tests.support.steady_telemetry import add_steady_telemetry

NUM_TOKENS = 48
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 60, "maxLength": 120},
        "parts": {"type": "array", "items": {"type": "integer"}, "minItems": 4},
    },
    "required": ["name", "parts"],
    "additionalProperties": False,
}


def kinds() -> dict[str, dict[str, Any]]:
    """What is asked, by its name in the report."""
    text = orjson.dumps(_SCHEMA).decode()
    schema = pb.JsonSchema(name="thing", schema=text)
    wanted = pb.ResponseFormat(json_schema=pb.JsonSchemaFormat(json_schema=schema))
    function = pb.FunctionDefinition(name="order", parameters=text)
    return {
        "plain": {"temperature": 0.8, "seed": 11},
        "logprobs": {"temperature": 0, "logprobs": True, "top_logprobs": 3, "prompt_logprobs": 1},
        "JSON schema": {"temperature": 1.0, "seed": 5, "response_format": wanted},
        "tool call": {
            "temperature": 1.0,
            "seed": 6,
            "tools": [pb.Tool(type="function", function=function)],
            "tool_choice": pb.ToolChoice(mode=pb.TOOL_CHOICE_MODE_REQUIRED),
            "parallel_tool_calls": False,
        },
    }


class ExactlyCuttingEngine(CuttingEngine):
    """Dies after exactly `cut_after` tokens, also when more of them come in one message."""

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        call = self._stub.Session(requests)
        passed = 0
        try:
            async for message in call:
                left = None if self.cut_after is None else self.cut_after - passed
                passed += _num_tokens(message)
                if left is not None and _num_tokens(message) >= left:
                    yield _cut(message, left)
                    self.cut_after = None
                    self.num_cuts += 1
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                yield message
        finally:
            call.cancel()


def _num_tokens(message: engine_pb2.SessionResponse) -> int:
    of_events = sum(len(each.event.delta.token_ids) for each in message.events)
    return len(message.token_runs.token_ids) + of_events


def _cut(message: engine_pb2.SessionResponse, left: int) -> engine_pb2.SessionResponse:
    """The message up to so many tokens; it is of one request with one choice."""
    kept = engine_pb2.SessionResponse()
    runs = message.token_runs
    if runs.token_ids and left:
        assert len(runs.num_tokens) == 1
        kept.token_runs.CopyFrom(runs)
        del kept.token_runs.token_ids[left:]
        kept.token_runs.num_tokens[0] = len(kept.token_runs.token_ids)
        left -= len(kept.token_runs.token_ids)
    for event in message.events:
        if not event.event.HasField("delta"):
            if event.event.HasField("finish"):
                break
            kept.events.append(event)
            continue
        if not left:
            break
        kept.events.append(event)
        delta = kept.events[-1].event.delta
        del delta.token_ids[left:]
        if delta.HasField("logprobs"):
            block, count = delta.logprobs, len(delta.token_ids)
            for column, width in (
                (block.token_logprobs, 1),
                (block.token_ranks, 1),
                (block.top_token_ids, block.top_k),
                (block.top_logprobs, block.top_k),
            ):
                del column[count * width :]
        left -= len(delta.token_ids)
    return kept


@asynccontextmanager
async def _front(target: str) -> AsyncIterator[tuple[ExactlyCuttingEngine, str]]:
    server = grpc.aio.server()
    async with grpc.aio.insecure_channel(target) as channel:
        engine = ExactlyCuttingEngine(engine_pb2_grpc.EngineStub(channel))
        engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
        add_steady_telemetry(server)
        servicer = health.aio.HealthServicer()
        await servicer.set("octavo.engine.v1.Engine", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield engine, f"127.0.0.1:{port}"
        finally:
            await server.stop(0)


async def kill_at_every_token(model: Path, scratch: Path) -> tuple[int, list[str]]:
    """How often an engine was killed, and what was another answer then."""
    engine = Engine(9, model, scratch, (), gated=False)
    await engine.proxy.start()
    engine.start()
    tokenizer = Tokenizer.load(model)
    template = ChatTemplate.load(model, tokenizer)
    formats = OutputFormats.choose(template, tool_parser="hermes", reasoning_parser=None)
    fleet = Fleet(tokenizer.sha256, policy="round_robin")
    num_kills, altered = 0, []
    try:
        await engine.said_ready()
        async with _front(engine.target) as (victim, first), _front(engine.target) as (_, second):
            fleet.add(first)
            fleet.add(second)
            await fleet.wait_ready(10)
            served = ServedModel(fleet, tokenizer, template, formats)
            for kind, fields in kinds().items():
                undisturbed = await _answer(served, fields)
                for position in range(undisturbed.usage.completion_tokens + 1):
                    disturbed = await _disturbed(served, fields, victim, position)
                    num_kills += 1
                    if disturbed != undisturbed:
                        altered.append(f"{kind}, killed after {position} tokens: {disturbed}")
            await fleet.close()
    finally:
        engine.stop()
        await engine.proxy.close()
    return num_kills, altered


async def _disturbed(
    served: ServedModel, fields: dict[str, Any], victim: ExactlyCuttingEngine, position: int
) -> pb.CreateChatCompletionResponse:
    """The answer under which the victim died; in other turns the other front has the request."""
    before = victim.num_cuts
    for _ in range(50):
        victim.cut_after = position
        answer = await _answer(served, fields)
        if victim.num_cuts > before:
            return answer
    raise RuntimeError(f"no engine was killed after {position} tokens")


async def _answer(served: ServedModel, fields: dict[str, Any]) -> pb.CreateChatCompletionResponse:
    content = pb.MessageContent(text="the user and the system")
    request = pb.CreateChatCompletionRequest(
        messages=[pb.ChatMessage(role=pb.ROLE_USER, content=content)],
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        return_token_ids=True,
        request_id="same",
        **fields,
    )
    whole = await chat.create(request, served, CallContext("same"))
    whole.created = 0
    whole.usage.prompt_tokens_details.cached_tokens = 0  # a second look at a prompt finds it cached
    return whole
