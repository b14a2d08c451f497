"""A router over engines with LoRA adapters, all in this process, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import httpx
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from router_svc.edge import Edge
from router_svc.fleet.fleet import Fleet
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.tokenizer import Tokenizer
from tests.support.adapter_engine import PIECES, AdapterEngine, served
from tests.support.server import free_port

_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@dataclass
class AdapterRouter:
    """Where it is reached, a client for it, and its engines with their servers."""

    url: str
    grpc_target: str
    http: httpx.AsyncClient
    engines: list[AdapterEngine] = field(default_factory=list)
    servers: list[grpc.aio.Server] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    fleets: list[Fleet] = field(default_factory=list)

    async def listed(self) -> list[str]:
        """Names of models and adapters."""
        return [each["id"] for each in (await self.http.get("/v1/models")).json()["data"]]

    async def complete(self, model: str, prompt: str = "hello", length: int = 6) -> httpx.Response:
        """The whole answer to a prompt, which has a token for each character."""
        body = {"model": model, "prompt": prompt, "max_tokens": length}
        return await self.http.post("/v1/completions", json=body)

    async def asked(self, model: str, times: int) -> list[int]:
        """How many of so many requests each engine got."""
        before = [len(engine.submitted) for engine in self.engines]
        for _ in range(times):
            assert (await self.complete(model)).status_code == 200
        return [len(e.submitted) - n for e, n in zip(self.engines, before, strict=True)]

    async def lose(self, number: int) -> None:
        """Ends an engine, and waits until the router knows; of the first model's."""
        await self.servers[number].stop(0)
        member = self.fleets[0].members[number]
        await until(lambda: not member.may_serve)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what must come."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


@asynccontextmanager
async def adapter_router(
    directory: Path,
    *adapters: dict[str, str],
    other: dict[str, str] | None = None,
    edge: Edge | None = None,
    allow: bool = False,
    policy: str = "round_robin",
) -> AsyncIterator[AdapterRouter]:
    """Over an engine of the model "base" for each of `adapters`, name to version.

    With `other` there is an engine more, of the model "other", which has those adapters.
    """
    async with AsyncExitStack() as stack:
        port, grpc_port = free_port(), free_port()
        url = f"http://127.0.0.1:{port}"
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))
        found = AdapterRouter(url, f"127.0.0.1:{grpc_port}", http)
        groups = {"base": adapters} | ({} if other is None else {"other": (other,)})
        served_models = [_model_of(directory, name, policy) for name in groups]
        found.fleets += [model.engine for model in served_models]
        config = RouterConfig(
            "127.0.0.1",
            port,
            grpc_port,
            1 << 20,
            1.0,
            edge or Edge(),
            allow_lora_updates=allow,
        )
        router = Router(config, served_models)
        stack.push_async_callback(router.close)
        await router.start()
        for model, (name, group) in zip(served_models, groups.items(), strict=True):
            stack.push_async_callback(model.engine.close)
            for own in group:
                engine = AdapterEngine(model.tokenizer.sha256, own, name=name)
                server, engine_port = await stack.enter_async_context(served(engine))
                found.engines.append(engine)
                found.servers.append(server)
                found.targets.append(f"127.0.0.1:{engine_port}")
                model.engine.add(found.targets[-1])
                # One after another, so that it is known who came first.
                await until(partial(_all_serve, model.engine))
        running = asyncio.create_task(router.run())
        try:
            yield found
        finally:
            router.stop()
            await running


def _model_of(directory: Path, name: str, policy: str) -> ServedModel:
    (directory / name).mkdir()
    tokenizer = Tokenizer.load(_tokenizer_of(directory / name))
    fleet = Fleet(tokenizer.sha256, policy=policy)
    formats = OutputFormats(None, None, False)
    return ServedModel(fleet, tokenizer, ChatTemplate(_TEMPLATE, tokenizer), formats)


def _all_serve(fleet: Fleet) -> bool:
    return all(member.may_serve for member in fleet.members)


def _tokenizer_of(directory: Path) -> Path:
    """A token for each byte, and another tokeniser for each name of a directory."""
    vocabulary = {piece: i for i, piece in enumerate((*PIECES, directory.name))}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(directory / "tokenizer.json"))
    return directory
