"""The `octavo bench` command."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress

from router_svc.bench.workload import PromptMaker, Workload
from router_svc.text.tokenizer import Tokenizer
from router_svc.text.tokenizer_parts import TokenizerError

if TYPE_CHECKING:
    from router_svc.bench.clients import Client
    from router_svc.bench.run import Level


def _concurrencies(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        levels = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers such as 1,4,8") from None
    if not all(1 <= level <= 1024 for level in levels):
        raise click.BadParameter("each concurrency is between 1 and 1024")
    return levels


def _can_be_written(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Checked before anything is measured, as it would be lost where its file cannot be."""
    if path is not None and not os.access(path.parent, os.W_OK):
        raise click.BadParameter(f"{path.parent} is no directory that can be written to.")
    return path


_Result = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:8000/v1", show_default=True, help="OpenAI API to measure."
)
@click.option("--grpc", "grpc_target", help="host:port of Octavo's gRPC API, to measure instead.")
@click.option("--model", help="Model to name in requests; none by default.")
@click.option("--api-key", envvar="OCTAVO_API_KEY", help="Key that the server wants.")
@click.option(
    "--concurrency",
    callback=_concurrencies,
    metavar="LIST",
    default="1,4,8,16,32",
    show_default=True,
    help="Requests in flight, one measurement each.",
)
@click.option("--prompt-tokens", type=click.IntRange(1, 1 << 20), default=128, show_default=True)
@click.option("--output-tokens", type=click.IntRange(1, 1 << 20), default=128, show_default=True)
@click.option(
    "--shared-prefix-tokens",
    type=click.IntRange(0, 1 << 20),
    default=0,
    help="Tokens that all prompts begin with, besides their own.",
)
@click.option(
    "--requests",
    type=click.IntRange(1, 100_000),
    help="Requests per measurement. Default: twice the concurrency, at least 4.",
)
@click.option("--warm-up", type=click.IntRange(0, 1000), default=1, show_default=True)
@click.option("--ignore-eos/--no-ignore-eos", default=True, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Other seeds, other prompts.")
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, path_type=Path),
    help="Model directory or .gguf whose tokeniser makes prompt lengths exact.",
)
@click.option("--json", "json_path", type=_Result, callback=_can_be_written)
@click.option("--plot", "plot_path", type=_Result, callback=_can_be_written)
@click.option("--title", help="Shown above table and plot.")
def bench(
    url: str,
    grpc_target: str | None,
    model: str | None,
    api_key: str | None,
    concurrency: tuple[int, ...],
    prompt_tokens: int,
    output_tokens: int,
    shared_prefix_tokens: int,
    requests: int | None,
    warm_up: int,
    ignore_eos: bool,
    seed: int,
    tokenizer: Path | None,
    json_path: Path | None,
    plot_path: Path | None,
    title: str | None,
) -> None:
    """Measures a running server: throughput and latencies at several concurrencies."""
    try:
        from router_svc.bench import clients, report
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is missing: pip install 'octavo[bench]'"
        ) from error
    workload = Workload(prompt_tokens, output_tokens, shared_prefix_tokens, ignore_eos, seed)
    prompts = PromptMaker(workload, _load_tokenizer(tokenizer))
    client: Client = (
        clients.GrpcClient(grpc_target, model, workload, api_key)
        if grpc_target
        else clients.HttpClient(url, model, workload, api_key)
    )
    try:
        levels = asyncio.run(_measure(client, prompts, concurrency, requests, warm_up))
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    target = grpc_target or url
    shown = title or f"{target}, prompt {prompt_tokens}, output {output_tokens}"
    Console().print(report.table(shown, levels))
    if json_path is not None:
        settings = {"target": target, "model": model, "title": title, **asdict(workload)}
        report.write_json(json_path, settings, levels)
    if plot_path is not None:
        report.write_plot(plot_path, shown, levels)
    if failed := [level for level in levels if level.num_errors]:
        raise click.ClickException(f"there were errors, the first: {failed[0].first_error}")


def _load_tokenizer(path: Path | None) -> Tokenizer | None:
    if path is None:
        return None
    try:
        return Tokenizer.load(path)
    except TokenizerError as error:
        raise click.ClickException(str(error)) from error


async def _measure(
    client: Client,
    prompts: PromptMaker,
    concurrency: tuple[int, ...],
    requests: int | None,
    num_warm_up: int,
) -> list[Level]:
    from router_svc.bench.run import request_numbers, run_level, warm_up

    numbers = request_numbers()
    levels = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        async with client:
            await warm_up(client, prompts, num_warm_up)
            for level in concurrency:
                count = requests or max(4, 2 * level)
                bar = progress.add_task(f"concurrency {level}", total=count)
                advance = partial(progress.advance, bar)
                levels.append(await run_level(client, prompts, numbers, level, count, advance))
                progress.remove_task(bar)
    return levels
