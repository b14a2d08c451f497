"""An engine dies mid-answer, and the client gets the very answer that it would have got."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import orjson
import psutil
import pytest
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import chat
from router_svc.call_context import CallContext
from router_svc.fleet.fleet import Fleet
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.tokenizer import Tokenizer
from tests.support.cutting_engine import CuttingEngine, cutting_engine
from tests.support.processes import engine_of
from tests.support.server import RunningServer, running_server

NUM_TOKENS = 48
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 60},
        "parts": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 8},
    },
    "required": ["name", "parts"],
    "additionalProperties": False,
}


def plain() -> dict[str, Any]:
    return {"temperature": 0.8, "seed": 11}


def with_logprobs() -> dict[str, Any]:
    return {"temperature": 0, "logprobs": True, "top_logprobs": 3, "prompt_logprobs": 1}


def of_schema() -> dict[str, Any]:
    schema = pb.JsonSchema(name="thing", schema=orjson.dumps(SCHEMA).decode())
    wanted = pb.ResponseFormat(json_schema=pb.JsonSchemaFormat(json_schema=schema))
    return {"temperature": 1.0, "seed": 5, "response_format": wanted}


def tool_call() -> dict[str, Any]:
    parameters = orjson.dumps(SCHEMA).decode()
    function = pb.FunctionDefinition(name="order", parameters=parameters)
    return {
        "temperature": 1.0,
        "seed": 6,
        "tools": [pb.Tool(type="function", function=function)],
        "tool_choice": pb.ToolChoice(mode=pb.TOOL_CHOICE_MODE_REQUIRED),
        "parallel_tool_calls": False,
    }


def several_with_stops() -> dict[str, Any]:
    return {"n": 3, "seed": 3, "stop": [" the", "zzz"], "repetition_penalty": 1.2}


KINDS = [plain, with_logprobs, of_schema, tool_call, several_with_stops]


@pytest.fixture
async def twins(
    server: RunningServer, smollm2_checkpoint: Path
) -> AsyncIterator[tuple[ServedModel, list[CuttingEngine]]]:
    """The text side of the model over two fronts of one engine, each of which a test can kill."""
    command = engine_of(server).cmdline()
    target = command[command.index("--listen") + 1]
    tokenizer = Tokenizer.load(smollm2_checkpoint)
    template = ChatTemplate.load(smollm2_checkpoint, tokenizer)
    formats = OutputFormats.choose(template, tool_parser=None, reasoning_parser=None)
    fleet = Fleet(tokenizer.sha256, policy="round_robin")
    async with cutting_engine(target) as (one, at_one), cutting_engine(target) as (other, at_other):
        fleet.add(at_one)
        fleet.add(at_other)
        await fleet.wait_ready(60)
        yield ServedModel(fleet, tokenizer, template, formats), [one, other]
        await fleet.close()


async def answer(model: ServedModel, **fields: Any) -> pb.CreateChatCompletionResponse:
    content = pb.MessageContent(text="Tell me of a machine and its parts.")
    request = pb.CreateChatCompletionRequest(
        messages=[pb.ChatMessage(role=pb.ROLE_USER, content=content)],
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        return_token_ids=True,
        request_id="same",
        **fields,
    )
    whole = await chat.create(request, model, CallContext("same"))
    whole.created = 0
    whole.usage.prompt_tokens_details.cached_tokens = 0  # a second look at a prompt finds it cached
    return whole


@pytest.mark.parametrize("kind", KINDS)
async def test_a_death_at_any_token_changes_nothing(
    twins: tuple[ServedModel, list[CuttingEngine]], kind: Any
) -> None:
    model, engines = twins
    undisturbed = await answer(model, **kind())
    num_tokens = undisturbed.usage.completion_tokens
    # Every position in turn is what `make chaos` tries; here a few of each kind.
    for position in range(1, num_tokens + 1, 11):
        for engine in engines:
            engine.cut_after = None
        victim = engines[0]
        victim.cut_after = position
        before = victim.num_cuts
        while victim.num_cuts == before:  # until it is its turn
            disturbed = await answer(model, **kind())
        assert disturbed == undisturbed, f"after {position} tokens"


def test_a_killed_engine_is_replaced_under_the_clients_stream(
    smollm2_checkpoint: Path, tmp_path: Path
) -> None:
    flags = ("--data-parallel-size=2", "--kv-cache-memory-bytes=100000000")
    with running_server(smollm2_checkpoint, *flags, log=tmp_path / "log") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)

        def streamed(*, kill: bool) -> tuple[str, str, int]:
            text, reason, tokens = "", "", 0
            stream = client.chat.completions.create(
                model=client.models.list().data[0].id,
                messages=[{"role": "user", "content": "Tell me a story of a fox."}],
                temperature=0.8,
                seed=7,
                max_tokens=300,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            for count, chunk in enumerate(stream):
                if kill and count == 10:
                    _busiest_engine(server).send_signal(signal.SIGKILL)
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    reason = choice.finish_reason or reason
                if chunk.usage:
                    tokens = chunk.usage.completion_tokens
            return text, reason, tokens

        undisturbed = streamed(kill=False)

        assert streamed(kill=True) == undisturbed
        assert server.metric("octavo_router_failovers_total") >= 1
        assert server.wait_until(lambda: server.metric("octavo_router_engine_ready") == 2)


def _busiest_engine(server: RunningServer) -> psutil.Process:
    children = psutil.Process(server.process.pid).children()
    engines = [child for child in children if "engine_svc" in child.cmdline()]
    before = {engine.pid: sum(engine.cpu_times()[:2]) for engine in engines}
    while True:
        for engine in engines:
            if sum(engine.cpu_times()[:2]) > before[engine.pid] + 0.02:
                return engine
