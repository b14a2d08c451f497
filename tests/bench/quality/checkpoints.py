"""What it costs to serve quantised checkpoints from the C++ layouts: python -m … --help.

Each layout is written from SmolLM2 by rounding to nearest, once quantised and once as the bf16
weights that it means. Both are served; the second is what the first is compared with, so that the
figures show how it is held and computed, not how well it was quantised.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from octavo.cache_dir import default_cache_dir
from safetensors.torch import save_file

from router_svc.model_store import DEFAULT_MODEL, resolve_model
from tests.bench.quality import texts
from tests.bench.quality.report import write_between
from tests.bench.quality.rows import Row
from tests.bench.quality.run import Amount, Runner
from tests.support import quantized_checkpoints as written
from tests.support.make_checkpoint import make_checkpoint

if TYPE_CHECKING:
    from tests.bench.quality.run import RowFigures, TextFigures

GROUP = 64  # a divisor of all of SmolLM2's sizes
BEGIN, END = "<!-- checkpoints: begin -->", "<!-- checkpoints: end -->"
LAYOUTS = {
    "AWQ, 4 bit, groups of 64": written.awq(GROUP),
    "GPTQ, 4 bit, symmetric, groups of 64": written.gptq(GROUP),
    "GPTQ, the same with desc_act": written.gptq(GROUP, desc_act=True),
    "GPTQ, 8 bit, groups of 64": written.gptq(GROUP, bits=8),
    "fp8, blocks of 128 by 128": written.fp8((128, 128)),
    "compressed-tensors w4a16, asymmetric": written.compressed_words(GROUP, symmetric=False),
    "compressed-tensors w8a8": written.compressed_int8(),
    "compressed-tensors fp8": written.compressed_fp8(),
}


@click.command()
@click.option("--windows", type=click.IntRange(2), default=8, show_default=True, help="Per text.")
@click.option("--window-tokens", type=click.IntRange(2), default=512, show_default=True)
@click.option("--output-tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--only", help="Layouts whose name has this.")
@click.option(
    "--docs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page whose table is to be replaced.",
)
def main(
    windows: int, window_tokens: int, output_tokens: int, only: str | None, docs: Path | None
) -> None:
    """Perplexity and greedy agreement of each layout with its own dequantised weights."""
    torch.set_num_threads(1)  # for writing: its many small steps would wait for each other
    amount = Amount(window_tokens, output_tokens, windows, in_flight=8)
    lines = [
        "| Checkpoint | Weights in memory | Change of perplexity, prose and code | Same token "
        "| Tokens until free continuations part |",
        "|---|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        dense = _checkpoint(resolve_model(DEFAULT_MODEL, default_cache_dir()))
        for number, (name, layout) in enumerate(LAYOUTS.items()):
            if only is None or only in name:
                line = _measured(name, layout, dense, Path(scratch) / str(number), amount)
                click.echo(line)
                lines.append(line)
    lines += [
        "",
        f"{windows} windows of {window_tokens} tokens of each of the texts of quality.md.",
    ]
    click.echo("\n".join(lines))
    if docs is not None:
        write_between(docs, BEGIN, END, "\n".join(lines) + "\n")


def _measured(name: str, layout: written.Layout, dense: Path, scratch: Path, amount: Amount) -> str:
    scratch.mkdir()
    meant = written.quantize_checkpoint(dense, scratch / "quantised", layout)
    _write_meant(dense, meant, scratch / "meant")
    runner = Runner([texts.prose(default_cache_dir()), texts.code()], amount, scratch, _ignore)
    flags = ("--dtype", "bfloat16", "--no-packed-weights-cache", "--quantization")
    runner.measure(Row("meant", "bf16", scratch / "meant", (*flags, "none")))
    method = layout.config["quant_method"]
    found = runner.measure(Row("quantised", "bf16", scratch / "quantised", (*flags, method)))
    weights = _weights_in_memory(scratch / "quantised-bf16.log")
    shutil.rmtree(scratch)
    return _line(name, weights, found)


def _line(name: str, weights: str, found: RowFigures) -> str:
    each = found.texts.values()
    cells = (
        name,
        weights,
        " and ".join(_change(text) for text in each),
        " and ".join(f"{text.agreement.same_top:.1f} %" for text in each if text.agreement),
        " and ".join(f"{text.agreement.common_prefix:.0f}" for text in each if text.agreement),
    )
    return f"| {' | '.join(cells)} |"


def _change(text: TextFigures) -> str:
    change = text.change
    return (
        "–" if change is None else f"{change.percent:+.2f} ± {change.high - change.percent:.2f} %"
    )


def _weights_in_memory(log: Path) -> str:
    """What the engine's summary says."""
    for line in log.read_text(encoding="utf-8").splitlines():
        if found := re.search(r"weights ([\d.]+ MiB), activations", line):
            return found[1]
    return "–"


def _write_meant(dense: Path, meant: dict[str, torch.Tensor], out: Path) -> None:
    shutil.copytree(dense, out, ignore=shutil.ignore_patterns("*.safetensors"))
    rounded = {name: weight.to(torch.bfloat16).contiguous() for name, weight in meant.items()}
    save_file(rounded, out / "model.safetensors", metadata={"format": "pt"})


def _checkpoint(gguf: Path) -> Path:
    target = gguf.with_name("smollm2-135m-instruct-bf16")
    if not (target / "config.json").exists():
        make_checkpoint(gguf, target)
    return target


def _ignore(_done: int, _total: int) -> None:
    """Nobody watches."""


if __name__ == "__main__":
    main()
