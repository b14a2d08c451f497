"""The pass between the qkv product and attention, interpreted, against the operations it fuses."""

from __future__ import annotations

import pytest
import torch
from compile_checks import TARGETS, Target, assert_fits, compile_for

from kernels.gpu import qk_norm_rope_cache_write as module
from kernels.gpu.qk_norm_rope_cache_write import qk_norm_rope_cache_write
from kernels.reference.kv_cache_write import kv_cache_write
from kernels.reference.rms_norm import norm_scale, rms_norm
from kernels.reference.rope import rope, rope_table
from kernels.spec import RopeSpec

EPS = 1e-6
POSITIONS = torch.tensor([0, 1, 17, 500], dtype=torch.int32)
SLOTS = torch.tensor([17, 0, 79, 15], dtype=torch.int32)
# A unit in the last place: means are summed up in another order.
TOLERANCE = {
    torch.float32: {"rtol": 2e-6, "atol": 2e-6},
    torch.float16: {"rtol": 2**-9, "atol": 2**-10},
}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("offset", [None, 0.0, 1.0], ids=["no norm", "norm", "norm of (1 + w)"])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"),
    [(9, 3, 64), (2, 2, 80), (6, 1, 96), (32, 8, 128), (4, 1, 256)],
)
def test_it_is_norm_then_rope_then_cache_write(
    num_heads: int, num_kv_heads: int, head_dim: int, offset: float | None, dtype: torch.dtype
) -> None:
    qk_heads = num_heads + num_kv_heads
    qkv = random(len(SLOTS), qk_heads + num_kv_heads, head_dim).to(dtype)
    weight = random(qk_heads, head_dim, seed=1)
    qk_norm = None if offset is None else norm_scale(weight, offset, dtype)
    table = rope_table(RopeSpec(), head_dim, 512, dtype)
    caches, expected = (torch.zeros(2, 5, num_kv_heads, 16, head_dim, dtype=dtype) for _ in "12")
    original = qkv.clone()

    qk_norm_rope_cache_write(
        qkv,
        POSITIONS,
        table.cos,
        table.sin,
        *caches,
        SLOTS,
        num_heads=num_heads,
        qk_norm=qk_norm,
        eps=EPS,
    )

    qk = original[:, :qk_heads]
    if qk_norm is not None:
        qk = rms_norm(qk, qk_norm, EPS)
    qk = rope(qk, *table.rows(POSITIONS))
    kv_cache_write(qk[:, num_heads:], original[:, qk_heads:], *expected, SLOTS)
    torch.testing.assert_close(qkv[:, :num_heads], qk[:, :num_heads], **TOLERANCE[dtype])
    assert torch.equal(qkv[:, num_heads:], original[:, num_heads:])
    torch.testing.assert_close(caches[0], expected[0], **TOLERANCE[dtype])
    assert torch.equal(caches[1], expected[1])


def test_a_row_without_a_slot_turns_its_queries_and_writes_nothing() -> None:
    qkv = random(4, 3, 64)
    table = rope_table(RopeSpec(), 64, 512, torch.float32)
    caches = torch.zeros(2, 5, 1, 16, 64)
    expected = rope(qkv[:, :1], *table.rows(POSITIONS))

    qk_norm_rope_cache_write(
        qkv,
        POSITIONS,
        table.cos,
        table.sin,
        *caches,
        torch.full_like(SLOTS, -1),
        num_heads=1,
        qk_norm=None,
        eps=EPS,
    )

    torch.testing.assert_close(qkv[:, :1], expected, rtol=2e-6, atol=2e-6)
    assert not caches.any()


def test_a_float8_cache_is_written_as_by_kv_cache_write() -> None:
    qkv = 20 * random(4, 6, 64)
    table = rope_table(RopeSpec(), 64, 512, torch.float32)
    scales = torch.tensor([[0.25, 3.0], [1.0, 0.125]])
    caches = torch.zeros(2, 5, 2, 16, 64).to(torch.float8_e4m3fn)
    expected = torch.zeros(2, 5, 2, 16, 64)
    turned = rope(qkv[:, :4], *table.rows(POSITIONS))
    key, value = turned[:, 2:] / scales[0, :, None], qkv[:, 4:] / scales[1, :, None]

    qk_norm_rope_cache_write(
        qkv,
        POSITIONS,
        table.cos,
        table.sin,
        *caches,
        SLOTS,
        num_heads=2,
        qk_norm=None,
        eps=EPS,
        k_scale=scales[0],
        v_scale=scales[1],
    )

    kv_cache_write(key.clamp(-448, 448), value.clamp(-448, 448), *expected, SLOTS)
    assert torch.equal(caches.float(), expected.to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"sm_{target.capability}")
def test_it_compiles(target: Target) -> None:
    bf16 = dict.fromkeys(["qkv_ptr", "cos_ptr", "sin_ptr", "norm_ptr"], "*bf16")
    caches = dict.fromkeys(["k_cache_ptr", "v_cache_ptr"], "*u8")
    indices = dict.fromkeys(["positions_ptr", "slot_mapping_ptr"], "*i32")
    scales = dict.fromkeys(["k_scale_ptr", "v_scale_ptr"], "*fp32")
    sizes = {"NUM_HEADS": 32, "NUM_KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK_SIZE": 16}

    compiled = compile_for(
        module._norm_rope_write,
        bf16 | caches | indices | scales | {"qkv_stride": "i32:16", "eps": "fp32"},
        sizes | {"HEADS": 16, "HALF": 64, "NORM": True, "FP8": True},
        target,
    )

    assert_fits(compiled, target)
    assert "ld.global.v4" in compiled.ptx  # 16 bytes at a time
