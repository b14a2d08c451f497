"""`python -m engine_svc.planning MODEL_PATH`: what `octavo plan` runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from octavo.flags import plan_options, process_options
from octavo.lora_flags import LoraCommand

_WIDTH = 100  # columns, of what goes to a file or a pipe


@click.command(cls=LoraCommand)
@click.argument("model_path", type=click.Path(exists=True, path_type=Path))
@plan_options
def main(model_path: Path, **params: Any) -> None:
    """Says what the model in MODEL_PATH takes and what fits, without loading it.

    The exit code is 1 where it does not fit.
    """
    import orjson
    from rich.console import Console

    from engine_svc.config import ConfigError, settings_from
    from engine_svc.models.errors import ModelError
    from engine_svc.planning.at_hand import open_at_hand
    from engine_svc.planning.report import parse_lengths, report
    from engine_svc.planning.table import show
    from engine_svc.planning.target import choose_target

    num_ranks = params["tensor_parallel_size"]
    try:
        settings = settings_from(model_path, _process_defaults() | params)
        settings.batch.speculation()  # takes no memory, but would stop the start
        found = report(
            settings,
            open_at_hand(model_path),
            choose_target(
                params["memory"], params["gpu"], params["gpu_memory_utilization"], num_ranks
            ),
            num_ranks=num_ranks,
            lengths=parse_lengths(params["lengths"]),
        )
    except (ConfigError, ModelError) as error:
        raise click.ClickException(str(error)) from error
    if params["json"]:
        click.echo(orjson.dumps(found.as_json(), option=orjson.OPT_INDENT_2))
    else:
        width = None if sys.stdout.isatty() else _WIDTH
        console = Console(width=width, markup=False, highlight=False, soft_wrap=True)
        show(found, console)
    sys.exit(0 if found.fits else 1)


def _process_defaults() -> dict[str, Any]:
    """Values of the flags of a process, which a plan does not start."""
    command = process_options(click.command()(lambda: None))
    return command.make_context("engine", []).params


if __name__ == "__main__":
    main()
