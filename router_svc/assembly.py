"""Puts a router together from its flags."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from typing import TYPE_CHECKING, Any

import click
from octavo.open_files import raise_open_files
from octavo.tls import ServerTls, TlsError

from router_svc.edge import Edge
from router_svc.engines.dialer import Dialer
from router_svc.engines.pace import Pace
from router_svc.fleet.directory import Directory
from router_svc.fleet.fleet import Fleet
from router_svc.output_formats import OutputFormats
from router_svc.page.files import Page
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.template_errors import TemplateLoadError
from router_svc.text.tokenizer import Tokenizer
from router_svc.text.tokenizer_parts import TokenizerError
from router_svc.tracing.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from router_svc.admission.account import NewBucket
    from router_svc.engines.info import EngineInfo
    from router_svc.fleet.discovery import Source
    from router_svc.metrics import Summing

log = logging.getLogger(__name__)

_REPLACEMENT_SECONDS = 10.0  # for a worker that takes a dead one's place to reach an engine


async def start_router(
    stack: AsyncExitStack,
    paths: Sequence[Path],
    sources: Sequence[Source],
    params: Mapping[str, Any],
    on_ready: Callable[[str, EngineInfo], None],
    *,
    summing: Summing | None = None,
    new_bucket: NewBucket | None = None,
    replaces: bool = False,
) -> Router:
    """A router that listens; `stack` closes it.

    `summing` is given to one of several workers, which share their ports, and `new_bucket`, from
    which come the limits that they share. One that `replaces` a
    dead worker, while others serve, listens only when it can serve itself. Raises
    click.ClickException.
    """
    raise_open_files(params["max_requests_in_flight"])
    page = Page.load() if params["page"] else None
    edge = Edge.of(params, page.paths if page is not None else ())
    try:
        tls, dialer = ServerTls.of(params), Dialer.of(params)
    except TlsError as error:
        raise click.ClickException(str(error)) from error
    try:
        telemetry = await asyncio.to_thread(Telemetry.start, params["otlp_traces_endpoint"])
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    stack.push_async_callback(telemetry.close)
    pace = Pace()
    models = [
        await asyncio.to_thread(_load_model, path, params, dialer, pace, on_ready) for path in paths
    ]
    config = RouterConfig(
        host=params["host"],
        port=params["port"],
        grpc_port=params["grpc_port"],
        max_body_bytes=params["max_body_bytes"],
        shutdown_timeout=params["shutdown_timeout"],
        edge=edge,
        tls=tls,
        shares_ports=summing is not None,
        new_bucket=new_bucket,
        page=page,
        allow_lora_updates=params["allow_lora_updates"],
    )
    router = Router(config, models, summing, telemetry)
    stack.push_async_callback(router.close)
    fleets = {model.tokenizer.sha256: model.engine for model in models}
    directory = Directory(sources, fleets, dialer)
    if replaces:
        directory.start()
        waits = (fleet.wait_ready(_REPLACEMENT_SECONDS) for fleet in fleets.values())
        await asyncio.gather(*waits)
    try:
        await router.start()
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if not replaces:
        directory.start()
    for model in models:
        stack.push_async_callback(model.engine.close)
    stack.push_async_callback(directory.close)
    # What is loaded stays for good; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return router


def _load_model(
    path: Path,
    params: Mapping[str, Any],
    dialer: Dialer,
    pace: Pace,
    on_ready: Callable[[str, EngineInfo], None],
) -> ServedModel:
    """The text side of a model, over a fleet that has no engines yet."""
    try:
        tokenizer = Tokenizer.load(path)
        template = ChatTemplate.load(path, tokenizer, override=params["chat_template"])
        formats = OutputFormats.choose(
            template,
            tool_parser=params["tool_call_parser"],
            reasoning_parser=params["reasoning_parser"],
        )
    except (TokenizerError, TemplateLoadError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    fleet = Fleet(
        tokenizer.sha256,
        policy=params["routing_policy"],
        move_on_drain=params["engine_drain"] == "move",
        dialer=dialer,
        pace=pace,
        on_ready=on_ready,
    )
    return ServedModel(fleet, tokenizer, template, formats)


def say_ready(info: EngineInfo, params: Mapping[str, Any], seconds: float) -> None:
    """Tells the user on stderr what is served where, and a command that tries it."""
    host = "127.0.0.1" if params["host"] == "0.0.0.0" else params["host"]
    scheme = "https" if params["ssl_certfile"] else "http"
    http = f"{scheme}://{host}:{params['port']}"
    key = ""
    if params["api_key"] or params["api_key_file"]:
        key = " -H 'Authorization: Bearer YOUR_KEY'"
    question = "What is the capital of Japan?"
    if info.generates:
        route = "/v1/chat/completions"
        wanted = f'"messages": [{{"role": "user", "content": "{question}"}}], "temperature": 0'
    elif info.embedding_size:
        route, wanted = "/v1/embeddings", f'"input": "{question}"'
    else:
        route, wanted = "/v1/score", f'"text_1": "{question}", "text_2": "Tokyo."'
    body = f'{{"model": "{info.served_names[0]}", {wanted}}}'
    lines = [
        f"Ready in {seconds:.1f} s: {info.served_names[0]}",
        f"  HTTP  {http}/v1   (OpenAI API; {http}/openapi.json)",
        f"  gRPC  {host}:{params['grpc_port']}   (octavo.inference.v1)",
        *((f"  Page  {http}/   (playground and live view)",) if params["page"] else ()),
        "Try it:",
        f"  curl {http}{route}{key} -H 'Content-Type: application/json' -d '{body}'",
    ]
    say("\n".join(lines), params)


def say(text: str, params: Mapping[str, Any]) -> None:
    """Tells the user something on stderr: as it is, or its first line among others of JSON."""
    if params["log_format"] == "json":
        log.info(text.partition("\n")[0])
    else:
        with contextlib.suppress(OSError):  # a full disk, or a reader who went, ends no server
            click.echo(text, err=True)
