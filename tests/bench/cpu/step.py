"""Where the time of a decoder's step goes, part by part, beside what the machine can do at best.

    python -m tests.bench.cpu.step MODEL --quantization int8 --kv-cache-dtype int8

No server, no scheduler: the decoder alone, on random tokens and scattered blocks.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engine_svc.loader.open_model import open_model
from kernels.backend import PickInputs, Precision, StepInputs
from kernels.cpu.backend import CpuBackend
from tests.bench.cpu.machine import Roof

if TYPE_CHECKING:
    import numpy.typing as npt

    from kernels.cpu.decoder import CpuDecoder

BLOCK_SIZE = 16
NUM_STEPS = 40
PROMPT, CHUNK = 1024, 512


class Sequences:
    """Requests of one length whose blocks lie anywhere in the pool."""

    def __init__(self, decoder: CpuDecoder, count: int, capacity: int, num_blocks: int) -> None:
        self._decoder = decoder
        self._rng = np.random.default_rng(0)
        per_request = -(-capacity // BLOCK_SIZE)
        order = self._rng.permutation(num_blocks)[: count * per_request]
        self._tables = order.reshape(count, per_request).astype(np.int32)
        self._length = 0

    def step(self, num_tokens: int, *, pick: bool) -> float:
        """Feeds each request as many random tokens; returns the seconds that the step took."""
        count = len(self._tables)
        positions = np.tile(np.arange(self._length, self._length + num_tokens), count)
        rows = np.repeat(np.arange(count), num_tokens)
        self._length += num_tokens
        starts = np.arange(0, count * num_tokens + 1, num_tokens)
        blocks = self._tables[rows, positions // BLOCK_SIZE]
        inputs = StepInputs(
            token_ids=self._rng.integers(0, 1000, len(rows)).astype(np.int32),
            positions=positions.astype(np.int32),
            slot_mapping=(blocks * BLOCK_SIZE + positions % BLOCK_SIZE).astype(np.int32),
            query_start_loc=starts.astype(np.int32),
            seq_lens=np.full(count, self._length, np.int32),
            block_tables=self._tables,
            picks=_greedy(starts[1:] - 1 if pick else starts[:0]),
            logits_rows=np.zeros(0, np.int32),
        )
        start = time.perf_counter()
        self._decoder.step(inputs)
        return time.perf_counter() - start


def _greedy(rows: npt.NDArray[np.int64]) -> PickInputs:
    zeros = np.zeros(len(rows))
    none = np.zeros(len(rows), np.int32)
    return PickInputs(rows.astype(np.int32), zeros, none, zeros + 1, zeros, zeros)


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--quantization", type=click.Choice(["auto", "none", "int8", "int4"]), default="auto")
@click.option("--kv-cache-dtype", type=click.Choice(["auto", "int8"]), default="auto")
@click.option("--threads", default=2, show_default=True)
@click.option("--rows", default="1,4,8,32", show_default=True, help="Streams that decode.")
@click.option("--context", default=160, show_default=True, help="Tokens behind each stream.")
def main(
    model: Path, quantization: str, kv_cache_dtype: str, threads: int, rows: str, context: int
) -> None:
    """Times the steps of MODEL's decoder."""
    opened = open_model(model)
    precision = Precision("bfloat16", quantization, kv_cache_dtype)
    backend = CpuBackend(threads)
    decoder = backend.load(opened.spec, opened.source, precision, lambda done, total: None)
    counts = [int(count) for count in rows.split(",")]
    needed = max(PROMPT, *(count * (context + NUM_STEPS + BLOCK_SIZE) for count in counts))
    num_blocks = -(-needed // BLOCK_SIZE) + 1
    decoder.allocate_kv(num_blocks, BLOCK_SIZE)
    with tempfile.TemporaryDirectory() as directory:
        read = Roof(Path(directory) / "roof").read_gb_s(threads)

    table = Table(
        title=f"{model.name}, {quantization} weights, {kv_cache_dtype} KV, {threads} threads"
    )
    for name in ("step", "ms", "tok/s", "weights GB/s", "of read", *decoder.phase_seconds):
        table.add_column(name, justify="right")
    for count in track(counts, "decoding", transient=True):
        sequences = Sequences(decoder, count, context + NUM_STEPS, num_blocks)
        sequences.step(context, pick=False)
        before = decoder.phase_seconds
        seconds = statistics.median(sequences.step(1, pick=True) for _ in range(NUM_STEPS))
        rate = decoder.weight_bytes / seconds / 1e9
        table.add_row(
            f"{count} × 1",
            *(
                f"{seconds * 1e3:.2f}",
                f"{count / seconds:.0f}",
                f"{rate:.1f}",
                f"{rate / read:.0%}",
            ),
            *_parts(decoder, before, NUM_STEPS),
        )
    Sequences(decoder, 1, PROMPT, num_blocks).step(CHUNK, pick=False)
    sequences = Sequences(decoder, 1, PROMPT, num_blocks)
    before = decoder.phase_seconds
    seconds = sum(
        sequences.step(CHUNK, pick=end == PROMPT) for end in range(CHUNK, PROMPT + 1, CHUNK)
    )
    table.add_row(
        f"1 × {PROMPT}",
        *(f"{seconds * 1e3:.1f}", f"{PROMPT / seconds:.0f}", "", ""),
        *_parts(decoder, before, 1),
    )
    console = Console(width=200)
    console.print(table)
    console.print(
        f"read bandwidth {read:.1f} GB/s; parts in ms a step, the last row's of the prompt"
    )


def _parts(decoder: CpuDecoder, before: dict[str, float], steps: int) -> list[str]:
    after = decoder.phase_seconds
    return [f"{(after[name] - before[name]) / steps * 1e3:.2f}" for name in after]


if __name__ == "__main__":
    main()
