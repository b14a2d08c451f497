"""The command behind `make bench-quality`: python -m tests.bench.quality --help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from octavo.cache_dir import default_cache_dir
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from router_svc.model_store import (
    DEFAULT_MODEL,
    ModelNotFoundError,
    resolve_model,
)
from tests.bench.quality import report, texts
from tests.bench.quality.rows import Row, all_rows
from tests.bench.quality.run import Amount, RowFigures, Runner
from tests.bench.quality.scoring import ScoringError
from tests.support.make_checkpoint import make_checkpoint

QUICK = Amount(window_tokens=512, output_tokens=32, num_windows=6, in_flight=6)


@click.command()
@click.option(
    "--gguf",
    default=DEFAULT_MODEL,
    show_default=True,
    help="A .gguf file of the Llama family, or the packaged model; runs as it is.",
)
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with bf16 safetensors; by default the GGUF's weights, dequantised.",
)
@click.option("--rows", help="Only these, such as bf16/bf16,int8/bf16; the first is the baseline.")
@click.option("--windows", type=click.IntRange(2), default=32, show_default=True, help="Per text.")
@click.option("--whole", is_flag=True, help="Every window of both texts.")
@click.option("--window-tokens", type=click.IntRange(2), default=1024, show_default=True)
@click.option("--output-tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--in-flight", type=click.IntRange(1), default=16, show_default=True)
@click.option("--quick", is_flag=True, help="6 windows of 512 tokens: to see that all works.")
@click.option("--reference", is_flag=True, help="Also score by transformers in float32.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("bench"))
@click.option(
    "--docs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page whose table is to be replaced.",
)
def main(
    gguf: str,
    checkpoint: Path | None,
    rows: str | None,
    windows: int,
    whole: bool,
    window_tokens: int,
    output_tokens: int,
    in_flight: int,
    quick: bool,
    reference: bool,
    out: Path,
    docs: Path | None,
) -> None:
    """Perplexity and greedy agreement of each precision, through real servers' public API."""
    amount = Amount(window_tokens, output_tokens, None if whole else windows, in_flight)
    amount = QUICK if quick else amount
    out.mkdir(parents=True, exist_ok=True)
    cache = default_cache_dir()
    if checkpoint is None and gguf != DEFAULT_MODEL:
        raise click.UsageError("with a --gguf of your own, --checkpoint names its bf16 original")
    try:
        gguf_path = resolve_model(gguf, cache)
        chosen = _select(all_rows(checkpoint or _checkpoint(gguf_path), gguf_path), rows)
        used = [texts.prose(cache), texts.code()]
    except (ModelNotFoundError, texts.TextNotFoundError) as error:
        raise click.ClickException(str(error)) from error
    runner, figures = _measure(chosen, used, amount, out, reference)
    console = Console()
    for text in used:
        console.print(report.table(text.name, figures))
    for note in report.notes(figures, runner.cuts, amount):
        console.print(f"- {note}", highlight=False)
    page = report.markdown(figures, runner.cuts, amount)
    (out / "quality.md").write_text(page, encoding="utf-8")
    report.write_json(out / "quality.json", figures, runner.cuts, amount)
    if len(figures) > 1:
        report.write_plot(out / "quality.png", figures)
    if docs is not None:
        report.write_docs(docs, page)


def _measure(
    rows: list[Row], used: list[texts.Text], amount: Amount, out: Path, reference: bool
) -> tuple[Runner, list[RowFigures]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task("")

        def show(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        runner = Runner(used, amount, out, show)
        figures = []
        for row in rows:
            progress.reset(bar, total=None, description=f"{row.name:10}")
            try:
                figures.append(runner.measure(row))
            except (RuntimeError, ScoringError) as error:
                raise click.ClickException(f"{row.name}: {error}") from error
        if reference:
            progress.reset(bar, total=None, description="reference ")
            figures.append(
                runner.reference(replace(rows[0], weights="transformers", kv_cache="f32"))
            )
    return runner, figures


def _select(rows: list[Row], names: str | None) -> list[Row]:
    if names is None:
        return rows
    by_name = {row.name: row for row in rows}
    try:
        return [by_name[name] for name in names.split(",")]
    except KeyError as error:
        raise click.BadParameter(f"no row {error}; there are {', '.join(by_name)}") from error


def _checkpoint(gguf: Path) -> Path:
    """The GGUF's weights, dequantised, as a checkpoint beside it; made if it is not there."""
    target = gguf.with_name("smollm2-135m-instruct-bf16")
    if not (target / "config.json").exists():
        make_checkpoint(gguf, target)
    return target


main()
