"""`python -m engine_svc MODEL_PATH`: one engine process."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import psutil
import uvloop
from octavo.flags import engine_options, process_options
from octavo.logs import start_logging
from octavo.lora_flags import LoraCommand
from octavo.tracing import start_tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_svc.encoder_startup import LoadedEncoder
    from engine_svc.startup import LoadedEngine
    from engine_svc.startup_trace import Start

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@click.command(cls=LoraCommand)
@click.argument("model_path", type=click.Path(exists=True, path_type=Path))
@engine_options
@process_options
def main(model_path: Path, **params: Any) -> None:
    """Serves the model in MODEL_PATH, a directory or a .gguf file, at the token level over gRPC."""
    if params["exit_with_parent"] is not None:
        _die_with_parent(params["exit_with_parent"])
    start_logging(params["log_format"])
    if params["tensor_parallel_size"] > 1:
        _end_of_rank(lambda: _run(model_path, params))
    sys.exit(_run(model_path, params))


def _run(model_path: Path, params: dict[str, Any]) -> int:
    """Serves until the end; returns the exit code. Raises click.ClickException for people."""
    # Only now: all this takes its time, and --help need not wait for it.
    from engine_svc.backends import prepare_torch
    from engine_svc.config import ConfigError, settings_from
    from engine_svc.encoder_startup import load_encoder
    from engine_svc.loader.encoder_directory import holds_encoder
    from engine_svc.memory import DoesNotFitError
    from engine_svc.models.errors import ModelError
    from engine_svc.parallel.topology import topology_of
    from engine_svc.progress import StartupPrinter
    from engine_svc.startup import load_engine
    from engine_svc.startup_trace import Start
    from engine_svc.worker.executor import WorkerLostError

    began = psutil.Process().create_time()
    printer = StartupPrinter(logs=params["log_format"] == "json")
    try:
        settings = settings_from(model_path, params)
        topology = topology_of(settings.parallel, os.environ)
        encodes = holds_encoder(model_path)
        if topology.rank > 0 and not encodes:
            prepare_torch("ranks talk through torch.distributed")
            from engine_svc.parallel.follower import follow

            return follow(settings, topology)
        printer.timed("importing", time.time() - began)
        service = settings.service
        tracing = start_tracing(
            "octavo-engine",
            endpoint=service.otlp_traces_endpoint,
            instance_id=service.instance_id,
        )
    except (ValueError, ModelError, WorkerLostError) as error:
        raise click.ClickException(str(error)) from error
    start = Start(tracing, settings, printer, began)
    try:
        load = load_encoder if encodes else load_engine
        loaded = load(settings, printer)
        return uvloop.run(_serve(loaded, start))
    except (ModelError, ConfigError, DoesNotFitError, WorkerLostError) as error:
        start.is_over(str(error))
        raise click.ClickException(str(error)) from error
    finally:
        if tracing is not None:
            tracing.close()


async def _serve(loaded: LoadedEngine | LoadedEncoder, start: Start) -> int:
    from engine_svc.service.server import AddressInUseError, EngineServer

    settings = start.settings
    server = EngineServer(
        loaded, settings.service, settings.batch, settings.requests, tracing=start.tracing
    )
    for line in loaded.model_info.summary:  # before a router can see that the engine is ready
        start.printer.line(line)
    try:
        address = await server.start()
    except AddressInUseError as error:
        start.is_over(str(error))
        raise click.ClickException(str(error)) from error
    start.is_over()
    start.printer.line(f"engine ready after {time.time() - start.began:.2f} s: gRPC on {address}")
    return await server.run_until_signalled()


def _end_of_rank(run: Callable[[], int]) -> NoReturn:
    """Ends this process with what `run` returns, however it ends, and without Python's own end.

    That may never come: threads of torch.distributed may wait for a peer that is gone, and groups
    of NCCL for graphs that have their calls.
    """
    code = 1
    try:
        code = run()
    except click.ClickException as error:
        error.show()
    except (Exception, KeyboardInterrupt):
        log.exception("the rank has ended")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the thread that started it ends. See prctl(2).

    `parent` is its process id: it may have ended before this process could ask for it.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main()
