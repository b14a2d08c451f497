"""Paged attention against its reference, on ragged batches over a scattered cache."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels.gpu.launch_table import attention_launch
from kernels.gpu.paged_attention import paged_attention, partial_sums
from kernels.reference.paged_attention import paged_attention as reference_attention
from tests.gpu_check.comparing import Comparison
from tests.gpu_check.device import Device
from tests.gpu_check.outcome import Findings
from tests.kernels.paged_batches import PagedBatch, paged_batch

# (query_len, seq_len): decoding at edges of splits, a prompt, chunks of longer ones.
RAGGED = [(1, 1), (1, 256), (1, 257), (9, 9), (130, 130), (7, 519), (64, 1000)]
SMALL = [(1, 1), (3, 70)]
# (num_heads, num_kv_heads, head_dim, block_size): SmolLM2, Qwen2.5, Llama, and odd ones.
HEADS = [(9, 3, 64, 16), (12, 2, 128, 16), (8, 2, 128, 32), (6, 6, 96, 16), (5, 1, 80, 32),
         (8, 1, 256, 16)]  # fmt: skip
MASKS = [(None, None), (40, None), (257, 0.5), (None, 30.0)]  # window, soft-cap


def check_attention(device: Device, dtype: torch.dtype) -> Findings:
    """Heads, lengths, windows and caps; alone and with programs that share rows."""
    comparison = Comparison(dtype)
    heads, all_masks, lengths = HEADS, MASKS, RAGGED
    if dtype is not torch.bfloat16:  # compiling takes most of the time
        heads, all_masks = HEADS[:2], MASKS[2:3]
    if device.is_interpreted:
        heads, all_masks, lengths = ((3, 1, 16, 16),), MASKS[:1], SMALL
    for num_heads, num_kv_heads, head_dim, block_size in heads:
        batch = paged_batch(
            lengths,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=block_size,
        )
        masks = all_masks if head_dim == 64 else MASKS[:1]
        for window, softcap in masks:
            how = {"window": window, "softcap": softcap}
            expected = reference_attention(*batch.arguments(), scale=head_dim**-0.5, **how)
            case = f"{num_heads}/{num_kv_heads} heads of {head_dim}, {how}"
            for shared in (False, True):
                result = attend(batch, device, dtype, shared=shared, **how)
                comparison.near(case + (", shared" if shared else ""), result, expected)
    return comparison.findings()


def check_fp8_cache(device: Device, dtype: torch.dtype) -> Findings:
    """Keys and values in e4m3 are read as the numbers that they stand for."""
    comparison = Comparison(dtype)
    lengths = RAGGED if not device.is_interpreted else SMALL
    head_dim = 64 if not device.is_interpreted else 16
    batch = paged_batch(lengths, num_heads=6, num_kv_heads=2, head_dim=head_dim)
    scales = torch.tensor([[0.5, 0.03125], [2.0, 0.25]])
    codes = [
        (cache / scale[:, None, None]).to(torch.float8_e4m3fn)
        for cache, scale in zip((batch.k_cache, batch.v_cache), scales, strict=True)
    ]
    read = [code.float() * scale[:, None, None] for code, scale in zip(codes, scales, strict=True)]
    stored = replace(batch, k_cache=read[0], v_cache=read[1])
    how = {"window": None, "softcap": None}
    expected = reference_attention(*stored.arguments(), scale=head_dim**-0.5, **how)
    k_scale, v_scale = scales.to(device.torch_device)
    result = attend(
        replace(batch, k_cache=codes[0], v_cache=codes[1]),
        device, dtype, shared=True, k_scale=k_scale, v_scale=v_scale, **how,
    )  # fmt: skip
    comparison.near("an e4m3 cache", result, expected)
    return comparison.findings()


def attend(
    batch: PagedBatch, device: Device, dtype: torch.dtype, *, shared: bool, **how: object
) -> torch.Tensor:
    """The kernel's result on the device, in the type; a cache of e4m3 stays one."""
    query, k_cache, v_cache, *indices = batch.arguments()
    max_seq_len = int(batch.seq_lens.max())
    _, num_heads, head_dim = query.shape
    partials = None
    if shared:
        partials = partial_sums(
            len(batch.seq_lens),
            1,
            num_heads,
            head_dim,
            max_seq_len,
            launch=attention_launch(device.torch_device, head_dim),
            device=device.torch_device,
        )
    caches = (
        cache.to(device.torch_device, dtype if cache.dtype.itemsize > 1 else cache.dtype)
        for cache in (k_cache, v_cache)
    )
    return paged_attention(
        query.to(device.torch_device, dtype),
        *caches,
        *(index.to(device.torch_device) for index in indices),
        scale=head_dim**-0.5,
        max_query_len=int(batch.query_start_loc.diff().max()),
        max_seq_len=max_seq_len,
        partials=partials,
        **how,
    )
