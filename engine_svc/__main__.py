"""`python -m engine_svc MODEL_PATH`: one engine process."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psutil
import uvloop
from octavo.flags import engine_options, process_options

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.encoder_startup import LoadedEncoder
    from engine_svc.progress import StartupPrinter
    from engine_svc.startup import LoadedEngine

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@click.command()
@click.argument("model_path", type=click.Path(exists=True, path_type=Path))
@engine_options
@process_options
def main(model_path: Path, **params: Any) -> None:
    """Serves the model in MODEL_PATH, a directory or a .gguf file, at the token level over gRPC."""
    if params["exit_with_parent"] is not None:
        _die_with_parent(params["exit_with_parent"])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Only now: all this takes its time, and --help need not wait for it.
    from engine_svc.config import ConfigError, settings_from
    from engine_svc.encoder_startup import load_encoder
    from engine_svc.loader.encoder_directory import holds_encoder
    from engine_svc.memory import DoesNotFitError
    from engine_svc.models.errors import ModelError
    from engine_svc.progress import StartupPrinter
    from engine_svc.startup import load_engine

    started = psutil.Process().create_time()
    printer = StartupPrinter()
    printer.timed("importing", time.time() - started)
    try:
        settings = settings_from(model_path, params)
        load = load_encoder if holds_encoder(model_path) else load_engine
        loaded = load(settings, printer)
    except (ModelError, ConfigError, DoesNotFitError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(uvloop.run(_serve(loaded, settings, printer, started)))


async def _serve(
    loaded: LoadedEngine | LoadedEncoder,
    settings: Settings,
    printer: StartupPrinter,
    started: float,
) -> int:
    from engine_svc.service.server import AddressInUseError, EngineServer

    server = EngineServer(loaded, settings.service, settings.batch, settings.requests)
    for line in loaded.model_info.summary:  # before a router can see that the engine is ready
        printer.line(line)
    try:
        address = await server.start()
    except AddressInUseError as error:
        raise click.ClickException(str(error)) from error
    printer.line(f"engine ready after {time.time() - started:.2f} s: gRPC on {address}")
    return await server.run_until_signalled()


def _die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the thread that started it ends. See prctl(2).

    `parent` is its process id: it may have ended before this process could ask for it.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main()
