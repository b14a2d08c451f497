"""What a grammar costs: tokens a second with a JSON schema beside the same without, in one run.

    python -m tests.bench.structured MODEL [--streams 8] [--rounds 12] [ENGINE FLAGS]

Rounds take turns, so that a machine that drifts does so for both. A round is one prompt with as
many choices as there are streams, each of the same number of tokens; the schema is of a list that
never ends by itself. Printed for each temperature: the median over rounds, and the ratio of each
constrained round to the free one before it: quartiles and median. CPU is the engine process's, all
threads together: on a machine that others use it says more than the time that passes.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import click
import psutil
from octavo.engine.v1 import engine_pb2 as pb
from rich.console import Console
from rich.table import Table

from router_svc.text.gguf_tokenizer import load_gguf_tokenizer
from router_svc.text.hf_tokenizer import load_hf_tokenizer
from tests.support.constrained import PROMPT, engine_process, request

SCHEMA = {
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
            "note": {"type": "string"},
        },
        "required": ["name", "age", "colours", "note"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement."""

    tokens_per_second: float
    cpu_ms_per_token: float


def measure(stub, engine: psutil.Process, message: pb.GenerateRequest) -> Round:
    """Runs one request; counted from its first tokens on, which come after the prefill."""
    start, cpu, count = 0.0, 0.0, 0
    for event in stub.Generate(message):
        if event.WhichOneof("event") != "delta":
            continue
        if not start:
            start, cpu = time.perf_counter(), _cpu_seconds(engine)
            continue
        count += len(event.delta.token_ids)
    seconds = time.perf_counter() - start
    return Round(count / seconds, 1000 * (_cpu_seconds(engine) - cpu) / count)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--streams", default=8)
@click.option("--rounds", default=12)
@click.option("--tokens", default=100, help="Of each stream and round.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(model: Path, streams: int, rounds: int, tokens: int, flags: tuple[str, ...]) -> None:
    """Measures MODEL with the given engine FLAGS."""
    parts = (load_hf_tokenizer if model.is_dir() else load_gguf_tokenizer)(model)
    prompt = parts.backend.encode(PROMPT, add_special_tokens=False).ids
    table = Table(title=f"{model.name}, {streams} streams {' '.join(flags)}")
    for column in ("temp.", "free tok/s", "JSON tok/s", "ratio", "CPU ms/token", "CPU ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    constraint = pb.Constraint(json_schema=json.dumps(SCHEMA))
    stopping = pb.StoppingParams(max_tokens=tokens, ignore_eos=True)
    with engine_process(model, "--max-model-len=1024", *flags) as stub:
        (engine,) = psutil.Process().children()
        for temperature in (0.0, 1.0):
            pairs = []
            for seed in range(rounds + 1):
                ask = {"seed": seed, "temperature": temperature, "n": streams, "stopping": stopping}
                free = measure(stub, engine, request(prompt, **ask))
                pairs.append((free, measure(stub, engine, request(prompt, constraint, **ask))))
            table.add_row(f"{temperature:g}", *_cells(pairs[1:]))  # the first warms up
    Console(width=110).print(table)


def _cells(pairs: list[tuple[Round, Round]]) -> list[str]:
    speeds = [[one.tokens_per_second for one in side] for side in zip(*pairs, strict=True)]
    cpu = [[one.cpu_ms_per_token for one in side] for side in zip(*pairs, strict=True)]
    free_ms, json_ms = map(statistics.median, cpu)
    return [
        *(f"{statistics.median(side):.0f}" for side in speeds),
        _spread([b / a for a, b in zip(*speeds, strict=True)]),
        f"{free_ms:.2f} → {json_ms:.2f}",
        _spread([b / a for a, b in zip(*cpu, strict=True)]),
    ]


def _spread(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{low:.2f} {middle:.2f} {high:.2f}"


if __name__ == "__main__":
    main()
