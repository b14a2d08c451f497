"""What an adapter costs a step: CPU time of steps in which all rows have one beside none, in turn.

    python -m tests.bench.adapter_cost MODEL [--rank 16] [--quantization none|int8|int4]

Steps are of the C++ back end, by themselves: decodes of 1, 8 and 32 requests with 200 tokens each,
every second one with another adapter, and a chunk of prefill. Printed is the median over rounds of
the ratio of CPU times, all threads together, which a busy machine disturbs least.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from engine_svc.loader.open_model import open_model
from kernels.backend import PickInputs, Precision, StepInputs
from kernels.cpu.backend import CpuBackend
from kernels.lora import LoraAdapter, LowRank, adapted_names

if TYPE_CHECKING:
    from kernels.cpu.decoder import CpuDecoder
    from kernels.spec import DecoderSpec

BLOCK_SIZE = 16
CONTEXT = 200


def make_adapter(spec: DecoderSpec, rank: int, seed: int) -> LoraAdapter:
    """Of all matrices, so small that it hardly changes what is computed."""
    generator, shapes = np.random.default_rng(seed), spec.weight_shapes()
    matrices = {}
    for name in adapted_names(spec):
        out, cols = shapes[name]
        a = generator.standard_normal((rank, cols), np.float32)
        b = generator.standard_normal((out, rank), np.float32) * np.float32(1e-4)
        matrices[name] = LowRank(a, b)
    return LoraAdapter(matrices)


def make_step(num_requests: int, new_tokens: int) -> StepInputs:
    """`num_requests` that each compute `new_tokens` after CONTEXT others; no adapters."""
    length = CONTEXT + new_tokens
    blocks = -(-length // BLOCK_SIZE)
    tables = np.arange(num_requests * blocks, dtype=np.int32).reshape(num_requests, blocks)
    positions = np.tile(np.arange(CONTEXT, length, dtype=np.int32), num_requests)
    owners = np.repeat(np.arange(num_requests), new_tokens)
    slots = tables[owners, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    last = np.arange(1, num_requests + 1, dtype=np.int32) * new_tokens - 1
    nothing = np.zeros(num_requests)
    picks = PickInputs(last, nothing, last * 0, nothing + 1, nothing, nothing)
    return StepInputs(
        token_ids=np.full(len(positions), 42, np.int32),
        positions=positions,
        slot_mapping=slots.astype(np.int32),
        query_start_loc=np.arange(num_requests + 1, dtype=np.int32) * new_tokens,
        seq_lens=np.full(num_requests, length, np.int32),
        block_tables=tables,
        picks=picks,
        logits_rows=last[:0],
    )


def cost(decoder: CpuDecoder, step: StepInputs, rounds: int) -> tuple[float, float]:
    """Milliseconds of CPU time of the step without adapters, and the ratio with them to that."""
    adapted = replace(step, adapters=np.arange(len(step.seq_lens), dtype=np.int32) % 2)
    plain, ratios = [], []
    for _ in range(rounds):
        seconds = decoder.step(step).cpu_seconds
        plain.append(1000 * seconds)
        ratios.append(decoder.step(adapted).cpu_seconds / seconds)
    return statistics.median(plain), statistics.median(ratios)


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--rank", default=16)
@click.option("--rounds", default=30)
@click.option("--quantization", default="none")
def main(model: Path, rank: int, rounds: int, quantization: str) -> None:
    """Measures and prints a table."""
    opened = open_model(model)
    backend = CpuBackend(len(os.sched_getaffinity(0)))
    precision = Precision("bfloat16", quantization, "auto")
    decoder = backend.load(opened.spec, opened.source, precision, lambda done, total: None)
    decoder.allocate_kv(1024, BLOCK_SIZE)
    packed = [decoder.pack_adapter(make_adapter(opened.spec, rank, seed)) for seed in (1, 2)]
    for slot, adapter in enumerate(packed):
        decoder.set_adapter(slot, adapter)
    table = Table(
        title=f"{model.name}, {quantization}, rank {rank}, {packed[0].nbytes / 1e6:.1f} MB each"
    )
    for heading in ("Step", "CPU without, ms", "With / without"):
        table.add_column(heading, justify="left" if heading == "Step" else "right")
    for label, num_requests, new_tokens in (
        ("1 decode", 1, 1),
        ("8 decodes", 8, 1),
        ("32 decodes", 32, 1),
        ("prefill of 256", 1, 256),
    ):
        milliseconds, ratio = cost(decoder, make_step(num_requests, new_tokens), rounds)
        table.add_row(label, f"{milliseconds:.1f}", f"{ratio:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
