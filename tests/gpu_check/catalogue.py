"""All checks, in order. Modules are imported by the check that needs them: one that is broken, or
not there, fails its own checks only."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

import torch

from tests.gpu_check.comparing import name_of
from tests.gpu_check.outcome import Check, Findings, Section

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gpu_check.device import Device

FAMILIES = ("gemma3", "llama", "qwen2", "qwen3", "mistral")
WIDEST = FAMILIES[:2]  # has the most, and the least, of what there is
SHAPES = ("SmolLM2-135M", "Qwen2.5-1.5B", "Llama-3.1-8B", "Llama-3.1-8B in fp8")
_BY_TYPE = {
    "rms_norm, add_rms_norm": "row_checks:check_norms",
    "silu_mul, gelu_tanh_mul": "row_checks:check_activations",
    "codes of 8 bits": "row_checks:check_codes",
    "qk_norm_rope_cache_write": "row_checks:check_rotation",
    "kv_cache_write": "row_checks:check_cache_write",
    "paged_attention": "attention_checks:check_attention",
    "paged_attention, e4m3 cache": "attention_checks:check_fp8_cache",
    "gemm, skinny_gemm": "matrix_checks:check_products",
    "w4a16": "matrix_checks:check_w4",
    "fp8 weights": "matrix_checks:check_fp8",
}
_EQUAL_BITS = {
    "gemm, skinny_gemm": "kernel_invariance:check_products",
    "w4a16": "kernel_invariance:check_w4",
    "fp8 weights, rounded rows": "kernel_invariance:check_fp8",
    "paged_attention": "kernel_invariance:check_attention",
}
_BENCHMARKS = {
    "the card": "kernel_benchmarks:measure_limits",
    "attention, decode": "kernel_benchmarks:measure_decode_attention",
    "attention, prefill": "kernel_benchmarks:measure_prefill_attention",
    "gemm, skinny_gemm": "kernel_benchmarks:measure_products",
    "w4a16": "kernel_benchmarks:measure_w4",
    "fp8 weights": "kernel_benchmarks:measure_fp8",
    "rms_norm, silu_mul": "kernel_benchmarks:measure_rows",
    "sampling": "kernel_benchmarks:measure_sampling",
}


def checks_of(device: Device, model: Path | None) -> list[Check]:
    """What can be found out about a device.

    In each section what matters most comes first: where nothing is compiled yet, its end may come
    before that of the checks.
    """
    checks = [Check(Section.KERNELS, "sampling", _later("sampling_checks:check_sampling", device))]
    checks += [
        Check(Section.KERNELS, f"{name}, {name_of(dtype)}", _later(where, device, dtype))
        for dtype in device.dtypes
        for name, where in _BY_TYPE.items()
        if not (name == "w4a16" and dtype is torch.float32 and not device.is_interpreted)
    ]
    checks += [
        Check(
            Section.KERNELS,
            f"gemm of {name_of(code)}",
            _later("matrix_checks:check_coded_products", device, code),
        )
        for code in (torch.int8, torch.float8_e4m3fn)
    ]
    checks.append(
        Check(
            Section.DECODER,
            "SmolLM2's tokens, float32",
            _later("decoder_checks:check_tokens", device, model),
        )
    )
    checks += [
        Check(
            Section.DECODER,
            f"{family}, {name_of(dtype)}",
            _later("decoder_checks:check_family", device, dtype, family),
        )
        for dtype in device.dtypes
        for family in (FAMILIES[:1] if device.is_interpreted else FAMILIES)
    ]
    checks += [
        Check(
            Section.DECODER,
            f"{FAMILIES[0]} by cuBLAS, {name_of(dtype)}",
            _later("decoder_checks:check_vendor_products", device, dtype, FAMILIES[0]),
        )
        for dtype in device.dtypes
    ]
    checks += [
        Check(
            Section.DECODER,
            f"adapters, {name_of(dtype)}",
            _later("adapter_checks:check_adapters", device, dtype),
        )
        for dtype in device.dtypes
    ]
    checks += [
        Check(
            Section.DECODER,
            f"two ranks, {family}, {name_of(dtype)}",
            _later("rank_checks:check_ranks", device, dtype, family),
        )
        for dtype in device.dtypes
        for family in WIDEST[: 1 if device.is_interpreted else 2]
    ]
    checks.append(
        Check(
            Section.DECODER,
            "two ranks, one killed",
            _later("rank_checks:check_loss", device, model),
        )
    )
    checks += [
        Check(Section.INVARIANCE, f"{name}, {name_of(dtype)}", _later(where, device, dtype))
        for dtype in device.dtypes
        for name, where in _EQUAL_BITS.items()
        if not (name == "w4a16" and dtype is torch.float32 and not device.is_interpreted)
    ]
    checks += [
        Check(
            Section.INVARIANCE,
            f"decoder, {family}, {name_of(dtype)}",
            _later("decoder_invariance:check_decoder", device, dtype, family),
        )
        for dtype in device.dtypes
        for family in WIDEST[: 1 if device.is_interpreted else 2]
    ]
    checks += [
        Check(
            Section.INVARIANCE,
            f"decoder, llama in fp8, {name_of(dtype)}",
            _later("decoder_invariance:check_fp8_decoder", device, dtype),
        )
        for dtype in device.dtypes
    ]
    checks += [
        Check(Section.BENCHMARKS, name, _later(where, device))
        for name, where in _BENCHMARKS.items()
    ]
    checks += [
        Check(Section.SERVING, name, _later("serving:measure_decoder", device, name))
        for name in (SHAPES[-1:] if device.is_interpreted else SHAPES)
    ]
    checks.append(
        Check(Section.SERVING, "octavo serve", _later("serving:measure_server", device, model))
    )
    return checks


def _later(where: str, *arguments: object) -> partial[Findings]:
    return partial(_call, where, *arguments)


def _call(where: str, *arguments: object) -> Findings:
    module, function = where.split(":")
    findings: Findings = getattr(importlib.import_module(f"tests.gpu_check.{module}"), function)(
        *arguments
    )
    return findings
