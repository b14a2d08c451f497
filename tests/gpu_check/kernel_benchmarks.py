"""Kernels against torch, and as shares of what this card's memory and arithmetic give.

A kernel is bound by memory or by arithmetic, whichever needs longer at the measured limits. That
time over its own is its share of the limit. Matrices are gone through in copies that no cache
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from kernels.gpu.activation import silu_mul
from kernels.gpu.fp8_linear import Fp8Linear
from kernels.gpu.gemm import gemm, prove_row_tiles
from kernels.gpu.launch_table import attention_launch
from kernels.gpu.paged_attention import paged_attention, partial_sums
from kernels.gpu.quantization import QuantisedRows, RowFormat, quantise_rows
from kernels.gpu.rms_norm import add_rms_norm, rms_norm
from kernels.gpu.w4a16 import w4a16
from tests.gpu_check.device import Device
from tests.gpu_check.matrix_checks import random_fp8, random_matrix, random_w4
from tests.gpu_check.outcome import Findings
from tests.gpu_check.timing import copies_beyond_cache, seconds_of

_DTYPE = torch.bfloat16
_BLOCK = 16
_EPS = 1e-5
# The matrices of Llama-3.1-8B, [out, in]: qkv, o, gate and up, down.
_MATRICES = ((6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336))
_ROWS = (1, 8, 64, 256, 2048)
# (query heads, key-value heads, head_dim) of SmolLM2 and Llama-3.1-8B.
_HEADS = ((9, 3, 64), (32, 8, 128))
_DECODES = ((1, 8192), (8, 4096), (64, 2048), (256, 1024))  # requests, context
_PROMPTS = (512, 2048, 8192)

Calls = Sequence[Callable[[], object]]


class _Rows:
    """Rows of the table of benchmarks."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._rows: list[tuple[str, ...]] = []

    def add(
        self,
        kernel: str,
        shape: str,
        ours: Calls,
        theirs: Calls | None,
        *,
        num_bytes: float,
        operations: float = 0.0,
    ) -> None:
        """Measures both, on the same work of so many bytes and operations a call."""
        seconds = seconds_of(ours, self._device.torch_device)
        torch_seconds = None if theirs is None else seconds_of(theirs, self._device.torch_device)
        bound, share = self._device.limits.share(seconds, num_bytes, operations)
        self._rows.append((
            kernel,
            shape,
            f"{seconds * 1e6:,.1f}",
            "–" if torch_seconds is None else f"{torch_seconds * 1e6:,.1f}",
            "–" if torch_seconds is None else f"{torch_seconds / seconds:.2f}",
            bound,
            share,
        ))  # fmt: skip

    def findings(self, note: str = "") -> Findings:
        """All rows."""
        return Findings(note, tuple(self._rows))


def measure_limits(device: Device) -> Findings:
    """The limits that everything else is a share of."""
    limits = device.limits
    return Findings(
        f"copies {limits.bandwidth / 1e9:,.0f} GB/s (read and written), torch.mm in bfloat16 "
        f"{limits.flops / 1e12:,.1f} TFLOP/s, L2 cache {limits.l2_bytes / 2**20:.0f} MiB"
    )


def _randn(device: Device, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=device.torch_device, dtype=_DTYPE)


def _heads(device: Device) -> Sequence[tuple[int, int, int]]:
    return _HEADS if not device.is_interpreted else ((2, 1, 16),)


def _copies(device: Device, num_bytes: int) -> range:
    return range(copies_beyond_cache(num_bytes, device.limits.l2_bytes))


def measure_decode_attention(device: Device) -> Findings:
    """One query a request, against torch's attention over keys that lie side by side."""
    rows = _Rows(device)
    on = device.torch_device
    for num_heads, num_kv_heads, head_dim in _heads(device):
        for requests, context in _DECODES if not device.is_interpreted else ((2, 17),):
            kv_bytes = 2 * requests * context * num_kv_heads * head_dim * _DTYPE.itemsize
            device.need(2.5 * kv_bytes + device.limits.l2_bytes * 12)
            copies = _copies(device, kv_bytes)
            num_blocks = requests * -(-context // _BLOCK)
            caches = [_randn(device, 2, num_blocks, num_kv_heads, _BLOCK, head_dim) for _ in copies]
            order = torch.randperm(num_blocks, device=on, dtype=torch.int32)
            how = {
                "block_tables": order.view(requests, -1),
                "seq_lens": torch.full((requests,), context, device=on, dtype=torch.int32),
                "query_start_loc": torch.arange(requests + 1, device=on, dtype=torch.int32),
                "partials": partial_sums(
                    min(requests, 16), 1, num_heads, head_dim, context,
                    launch=attention_launch(on, head_dim), device=on,
                ),
            }  # fmt: skip
            query = _randn(device, requests, num_heads, head_dim)
            ours = [_paged(query, cache, max_query_len=1, **how) for cache in caches]
            # torch reads what we read, but not by blocks.
            theirs = [
                _scaled(
                    query.view(requests, num_heads, 1, head_dim),
                    cache.view(2, requests, num_kv_heads, -1, head_dim),
                    causal=False,
                )
                for cache in caches
            ]
            rows.add(
                f"attention, decode, {num_heads}/{num_kv_heads} x {head_dim}",
                f"{requests} x {context}",
                ours, theirs, num_bytes=kv_bytes,
                operations=4 * requests * context * num_heads * head_dim,
            )  # fmt: skip
    return rows.findings()


def measure_prefill_attention(device: Device) -> Findings:
    """A whole prompt, against torch's causal attention."""
    rows = _Rows(device)
    on = device.torch_device
    for num_heads, num_kv_heads, head_dim in _heads(device):
        for length in _PROMPTS if not device.is_interpreted else (5,):
            query = _randn(device, length, num_heads, head_dim)
            num_blocks = -(-length // _BLOCK)
            cache = _randn(device, 2, num_blocks, num_kv_heads, _BLOCK, head_dim)
            order = torch.randperm(num_blocks, device=on, dtype=torch.int32)
            ours = _paged(
                query, cache, max_query_len=length,
                block_tables=order.view(1, -1),
                seq_lens=torch.tensor([length], device=on, dtype=torch.int32),
                query_start_loc=torch.tensor([0, length], device=on, dtype=torch.int32),
            )  # fmt: skip
            keys = cache.view(2, 1, num_kv_heads, -1, head_dim)[:, :, :, :length]
            theirs = _scaled(query.transpose(0, 1)[None].contiguous(), keys, causal=True)
            rows.add(
                f"attention, prefill, {num_heads}/{num_kv_heads} x {head_dim}",
                f"1 x {length}",
                [ours], [theirs],
                num_bytes=cache.nbytes + 2 * query.nbytes,
                operations=2 * length * length * num_heads * head_dim,
            )  # fmt: skip
    return rows.findings()


def _paged(query: torch.Tensor, cache: torch.Tensor, **how: object) -> Callable[[], object]:
    max_seq_len = int(how["seq_lens"].max())
    return lambda: paged_attention(
        query, cache[0], cache[1], scale=query.shape[2] ** -0.5, window=None, softcap=None,
        max_seq_len=max_seq_len, **how,
    )  # fmt: skip


def _scaled(query: torch.Tensor, keys: torch.Tensor, *, causal: bool) -> Callable[[], object]:
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        query, keys[0], keys[1], is_causal=causal, enable_gqa=True
    )


def measure_products(device: Device) -> Findings:
    """Llama's matrices in bfloat16 against torch.mm."""
    rows = _Rows(device)
    matrices = _MATRICES if not device.is_interpreted else ((70, 96),)
    tiles = (16,)
    if not device.is_interpreted:
        tiles = prove_row_tiles(matrices, _DTYPE, device.torch_device)
    for num_out, num_in in matrices:
        num_bytes = num_out * num_in * _DTYPE.itemsize
        device.need(len(_copies(device, num_bytes)) * num_bytes + 2**30)
        weights = [
            random_matrix(num_out, num_in, device, seed).to(_DTYPE)
            for seed in _copies(device, num_bytes)
        ]
        for num_rows in _ROWS if not device.is_interpreted else (1,):
            x = _randn(device, num_rows, num_in)
            rows.add(
                "gemm, bf16",
                f"{num_rows} x [{num_out}, {num_in}]",
                [partial(gemm, x, weight, row_tiles=tiles) for weight in weights],
                [partial(torch.mm, x, weight.T) for weight in weights],
                num_bytes=num_bytes + (num_in + num_out) * num_rows * _DTYPE.itemsize,
                operations=2 * num_rows * num_out * num_in,
            )
    return rows.findings(f"row tiles {tiles}")


def measure_w4(device: Device) -> Findings:
    """Weights of 4 bits against torch.mm with the same matrix in bfloat16."""
    rows = _Rows(device)
    for num_out, num_in in _MATRICES if not device.is_interpreted else ((70, 128),):
        nbytes = random_w4(num_out, num_in, 128, device, _DTYPE).nbytes
        device.need(5 * num_out * num_in * _DTYPE.itemsize)
        weights = [random_w4(num_out, num_in, 128, device, _DTYPE) for _ in _copies(device, nbytes)]
        dense = [
            random_matrix(num_out, num_in, device, seed).to(_DTYPE)
            for seed in _copies(device, num_out * num_in * _DTYPE.itemsize)
        ]
        for num_rows in _ROWS[:-1] if not device.is_interpreted else (1,):
            x = _randn(device, num_rows, num_in)
            rows.add(
                "w4a16, groups of 128",
                f"{num_rows} x [{num_out}, {num_in}]",
                [partial(w4a16, x, weight) for weight in weights],
                [partial(torch.mm, x, weight.T) for weight in dense],
                num_bytes=nbytes + (num_in + num_out) * num_rows * _DTYPE.itemsize,
                operations=2 * num_rows * num_out * num_in,
            )
    return rows.findings("torch multiplies with the matrix in bfloat16")


def measure_fp8(device: Device) -> Findings:
    """Weights in float8 with rows that are rounded and that are not, against torch._scaled_mm.

    torch gets rows that are rounded already, which is a kernel less. The limit of arithmetic is
    bfloat16's; float8 has twice that, so that rounded rows may pass it.
    """
    rows = _Rows(device)
    matrices = _MATRICES if not device.is_interpreted else ((64, 128),)
    multiplies = device.is_interpreted or device.has_e4m3_products
    tiles = (16,)
    if multiplies and not device.is_interpreted:
        tiles = prove_row_tiles(matrices, torch.float8_e4m3fn, device.torch_device)
    for num_out, num_in in matrices:
        nbytes = num_out * num_in
        device.need(3 * len(_copies(device, nbytes)) * nbytes + 10 * nbytes)
        ours = [
            random_fp8(num_out, num_in, num_in, device, rounds_rows=multiplies, seed=seed)
            for seed in _copies(device, nbytes)
        ]
        for each in ours if multiplies else ():
            each.use_row_tiles(tiles)
        wide = [Fp8Linear(each.codes, each.scales, rounds_rows=False) for each in ours]
        for num_rows in _ROWS if not device.is_interpreted else (1,):
            x = _randn(device, num_rows, num_in)
            shape = f"{num_rows} x [{num_out}, {num_in}]"
            work = {
                "num_bytes": nbytes + (num_in + num_out) * num_rows * _DTYPE.itemsize,
                "operations": 2 * num_rows * num_out * num_in,
            }
            if multiplies:
                codes = quantise_rows(x, RowFormat.FP8)
                theirs = [partial(_torch_fp8, codes, each) for each in ours]
                rows.add("fp8, rounded rows", shape, _of(ours, x), theirs, **work)
            rows.add("fp8, rows in bf16", shape, _of(wide, x), None, **work)
    return rows.findings(f"row tiles {tiles}")


def _of(matrices: Sequence[Fp8Linear], x: torch.Tensor) -> Calls:
    return [partial(matrix, x) for matrix in matrices]


def _torch_fp8(rows: QuantisedRows, matrix: Fp8Linear) -> torch.Tensor:
    return torch._scaled_mm(
        rows.codes,
        matrix.codes.T,
        scale_a=rows.scales[:, None],
        scale_b=matrix.scales.T,
        out_dtype=_DTYPE,
    )


def measure_rows(device: Device) -> Findings:
    """Norms and activations, which are bound by memory alone."""
    rows = _Rows(device)
    size, inner = (4096, 14_336) if not device.is_interpreted else (64, 96)
    scale = torch.ones(size, device=device.torch_device, dtype=_DTYPE)
    for num_rows in (64, 8192) if not device.is_interpreted else (2,):
        x_bytes = num_rows * size * _DTYPE.itemsize
        pairs = [
            (_randn(device, num_rows, size), _randn(device, num_rows, size))
            for _ in _copies(device, 2 * x_bytes)
        ]
        rows.add(
            "rms_norm",
            f"[{num_rows}, {size}]",
            [partial(rms_norm, x, scale, _EPS) for x, _ in pairs],
            [partial(_torch_norm, x, scale) for x, _ in pairs],
            num_bytes=2 * x_bytes,
        )
        rows.add(
            "add_rms_norm",
            f"[{num_rows}, {size}]",
            [partial(add_rms_norm, x, residual, scale, _EPS) for x, residual in pairs],
            [partial(_torch_add_norm, x, residual, scale) for x, residual in pairs],
            num_bytes=4 * x_bytes,
        )
        del pairs
        gate_up_bytes = num_rows * 2 * inner * _DTYPE.itemsize
        gates = [_randn(device, num_rows, 2 * inner) for _ in _copies(device, gate_up_bytes)]
        rows.add(
            "silu_mul",
            f"[{num_rows}, {inner}]",
            [partial(silu_mul, gate_up) for gate_up in gates],
            [partial(_torch_silu_mul, gate_up) for gate_up in gates],
            num_bytes=1.5 * gate_up_bytes,
        )
    return rows.findings()


def _torch_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, scale.shape, scale, _EPS)


def _torch_add_norm(x: torch.Tensor, residual: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return _torch_norm(residual.add_(x), scale)


def _torch_silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, 1)
    return torch.nn.functional.silu(gate) * up


def measure_sampling(device: Device) -> Findings:
    """Picks from rows of logits, against torch's softmax and multinomial (which knows no top-p)."""
    from kernels.gpu.sampling import DevicePicks, pick_tokens
    from tests.gpu_check.sampling_checks import SETTINGS
    from tests.support.picks import picks_of

    rows = _Rows(device)
    num_rows, vocab = (64, 128_256) if not device.is_interpreted else (2, 200)
    num_bytes = num_rows * vocab * 4
    logits = [
        3 * torch.randn(num_rows, vocab, device=device.torch_device)
        for _ in _copies(device, num_bytes)
    ]
    names = list(SETTINGS) if not device.is_interpreted else ["plain"]
    for name in names:
        setting = SETTINGS[name]
        picks = DevicePicks.of(picks_of(range(num_rows), draw=0.4, **setting), device.torch_device)
        plain = name in ("greedy", "plain")
        torch_way = torch.argmax if name == "greedy" else _multinomial
        rows.add(
            f"sampling, {name}", f"[{num_rows}, {vocab}]",
            [partial(pick_tokens, x, picks) for x in logits],
            [partial(torch_way, x, 1) for x in logits] if plain else None,
            num_bytes=num_bytes,
        )  # fmt: skip
    return rows.findings()


def _multinomial(logits: torch.Tensor, dim: int) -> torch.Tensor:
    """What torch.multinomial computes for one draw a row, but for its look at the values, for which
    the host waits: no capture may have that."""
    weights = torch.softmax(logits, dim)
    return weights.div_(torch.empty_like(weights).exponential_()).argmax(dim)
