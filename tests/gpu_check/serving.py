"""Tokens a second: the decoder step by step, and the server under load.

Decoding reads all weights once a step, and each request's keys and values; a prompt multiplies each
token with all weights. Bytes and operations over the measured limits are the least time they take.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from kernels.backend import Decoder, StepInputs
from kernels.collectives import Single
from kernels.gpu.decoder import GpuDecoder
from kernels.sharding import Shard
from kernels.spec import DecoderSpec
from tests.gpu_check.device import Device
from tests.gpu_check.models import (
    SHAPES,
    kv_bytes_per_token,
    random_on_device,
    read_bytes,
    small_families,
    smollm2_file,
    weights_type,
)
from tests.gpu_check.outcome import Findings, Skip
from tests.support.picks import picks_of

STREAMS = (1, 8, 64, 256)
_PROMPT_TOKENS = 512
_STEPS = 64
_WARM_STEPS = 4
_BATCHED_TOKENS = 8192
_BLOCK = 16
_BENCH_SECONDS = 60.0


class Crowd:
    """Requests that grow one by one, each with blocks of its own, scattered over the pool."""

    def __init__(self, decoder: Decoder, most: int, max_tokens: int, vocab_size: int) -> None:
        self._decoder = decoder
        self._vocab_size = vocab_size
        width = -(-max_tokens // _BLOCK)
        decoder.allocate_kv(most * width + 1, _BLOCK)
        order = np.random.default_rng(0).permutation(most * width).astype(np.int32) + 1
        self._tables = order.reshape(most, width)
        self.forget()

    def forget(self) -> None:
        """All requests begin anew."""
        self._lengths = np.zeros(len(self._tables), np.int32)
        self._tokens = np.zeros(len(self._tables), np.int32)

    @property
    def context(self) -> float:
        """Tokens of a request, on average over those that have any."""
        return float(self._lengths[self._lengths > 0].mean())

    def prefill(self, first: int, last: int, num_tokens: int, per_step: int) -> None:
        """Gives requests [first, last) a prompt each, as many as a step may have at a time."""
        generator = np.random.default_rng(first)
        size = max(1, per_step // num_tokens)
        for start in range(first, last, size):
            requests = np.arange(start, min(start + size, last))
            ids = generator.integers(0, self._vocab_size, len(requests) * num_tokens)
            self._step(requests, ids.astype(np.int32), num_tokens)

    def decode(self, streams: int, steps: int) -> None:
        """Adds a token to each of the first requests, so many times."""
        requests = np.arange(streams)
        for _ in range(steps):
            self._step(requests, self._tokens[:streams].copy(), 1)

    def _step(self, requests: np.ndarray, token_ids: np.ndarray, each: int) -> None:
        positions = self._lengths[requests][:, None] + np.arange(each, dtype=np.int32)
        tables = self._tables[requests]
        slots = np.take_along_axis(tables, positions // _BLOCK, 1) * _BLOCK + positions % _BLOCK
        self._lengths[requests] += each
        lengths = self._lengths[requests]
        starts = np.arange(len(requests) + 1, dtype=np.int32) * each
        widest = -(-int(lengths.max()) // _BLOCK)
        result = self._decoder.step(
            StepInputs(
                token_ids=token_ids,
                positions=positions.astype(np.int32).ravel(),
                slot_mapping=slots.astype(np.int32).ravel(),
                query_start_loc=starts,
                seq_lens=lengths,
                block_tables=np.ascontiguousarray(tables[:, :widest]),
                picks=picks_of((starts[1:] - 1).tolist()),
                logits_rows=np.empty(0, np.int32),
            )
        )
        assert (result.token_ids >= 0).all(), "a row was not finite"
        self._tokens[requests] = result.token_ids


def measure_decoder(device: Device, name: str) -> Findings:
    """Prefill, then decoding at each number of streams, of a model in bfloat16."""
    spec, dtype = SHAPES[name], torch.bfloat16
    streams, prompt, steps, batched = STREAMS, _PROMPT_TOKENS, _STEPS, _BATCHED_TOKENS
    if device.is_interpreted:
        spec, dtype = small_families(tiny=True)["llama"], torch.float32
        streams, prompt, steps, batched = (1, 2), 5, 1, 64
    weights = sum(torch.Size(shape).numel() for shape in spec.weight_shapes().values())
    per_token, layers = kv_bytes_per_token(spec, dtype), weights_type(name, dtype)
    max_tokens = prompt + len(streams) * (_WARM_STEPS + steps)
    room = device.free_bytes - 1.1 * weights * dtype.itemsize - 3 * 2**30
    if not device.is_interpreted:
        streams = tuple(n for n in streams if n * max_tokens * per_token < room)
        device.need(1.1 * weights * dtype.itemsize + max_tokens * per_token + 3 * 2**30)
    start = time.perf_counter()
    crowd = _crowd(device, spec, dtype, layers, streams[-1], max_tokens, batched)
    ready = time.perf_counter() - start
    rows, filled = [], 0
    read = read_bytes(spec, dtype, layers)
    for count in streams:
        tokens = (count - filled) * prompt
        seconds = _timed(lambda n=count, m=filled: crowd.prefill(m, n, prompt, batched))
        limit = device.limits.share(seconds, read, 2 * weights * tokens)
        rows.append(
            _row(name, f"prefill of {prompt}", count - filled, tokens / seconds, "–", limit)
        )
        filled = count
        crowd.decode(count, _WARM_STEPS)
        context = crowd.context + steps / 2
        seconds = _timed(lambda n=count: crowd.decode(n, steps)) / steps
        num_bytes = read + count * context * per_token
        limit = device.limits.share(seconds, num_bytes, 2 * weights * count)
        milliseconds = f"{seconds * 1e3:.2f}"
        what = f"decode at {context:.0f}"
        rows.append(_row(name, what, count, count / seconds, milliseconds, limit))
    return Findings(f"ready after {ready:.1f} s, graphs included", tuple(rows))


def _row(
    model: str, what: str, streams: int, rate: float, milliseconds: str, limit: tuple[str, str]
) -> tuple[str, ...]:
    return (model, what, str(streams), f"{rate:,.0f}", milliseconds, *limit)


def _timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _crowd(
    device: Device,
    spec: DecoderSpec,
    dtype: torch.dtype,
    layers: torch.dtype,
    most: int,
    max_tokens: int,
    batched: int,
) -> Crowd:
    on = device.torch_device
    decoder = GpuDecoder(
        Shard(spec, 0, 1), dtype, random_on_device(spec, dtype, on, layers), on,
        max_num_batched_tokens=batched, max_num_seqs=most, kv_dtype=dtype,
        collectives=Single(),
    )  # fmt: skip
    crowd = Crowd(decoder, most, max_tokens, spec.vocab_size)
    crowd.prefill(0, 1, max_tokens - 1, batched)  # compiles what prompts need
    crowd.decode(1, 1)
    crowd.forget()
    return crowd


def measure_server(device: Device, model: Path | None) -> Findings:
    """`octavo serve --device cuda` under `octavo bench`, HTTP and tokeniser included."""
    if device.is_interpreted:
        raise Skip("there is nothing to measure in the interpreter")
    path = smollm2_file(model)
    if "--device" not in _help():
        raise Skip("`octavo serve` has no --device yet")
    from tests.support.server import running_server

    with tempfile.TemporaryDirectory() as scratch:
        log, out = Path(scratch) / "log", Path(scratch) / "levels.json"
        flags = ("--device", "cuda", "--max-model-len", "2048", "--max-num-seqs", "256")
        with running_server(path, *flags, log=log) as server:
            command = [
                *_OCTAVO, "bench", "--url", f"{server.url}/v1", "--json", str(out),
                "--concurrency", ",".join(map(str, STREAMS)), "--tokenizer", str(path),
            ]  # fmt: skip
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=_BENCH_SECONDS
            )
            assert done.returncode == 0, f"octavo bench: {done.stderr.strip()[-500:]}"
        levels = json.loads(out.read_text())["levels"]
    return Findings("128 tokens in, 128 out", tuple(_level_row(level) for level in levels))


_OCTAVO = (sys.executable, "-m", "router_svc")


def _help() -> str:
    done = subprocess.run(
        [*_OCTAVO, "serve", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout


def _level_row(level: dict) -> tuple[str, ...]:
    return _row(
        "SmolLM2-135M",
        "octavo serve, HTTP",
        level["concurrency"],
        level["output_tokens_per_second"],
        f"{level['inter_token_p50']:.2f}",
        ("–", "–"),
    )
