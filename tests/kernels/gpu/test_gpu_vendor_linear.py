"""Products by the vendor's libraries, for those who need no equal bits; here by torch on a CPU."""

from __future__ import annotations

import pytest
import torch

from engine_svc.loader.open_model import open_model
from engine_svc.planning.decoder import choose_computation, decoder_needs
from kernels.backend import Precision
from kernels.coded import FP8, FP8_WEIGHTS, INT4
from kernels.gpu.backend import GpuBackend
from kernels.gpu.fp8_linear import Fp8Linear
from kernels.gpu.gemm import gemm
from kernels.gpu.linear import W4Linear, coded_linear
from kernels.gpu.vendor_linear import VendorFp8Linear, VendorLinear
from kernels.reference.backend import ReferenceBackend
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.kernels.gpu.test_gpu_decoder import FAMILIES
from tests.support.coded_matrix import coded, coded_fp8
from tests.support.run_engine import settings_of
from tests.support.tiny_models import make_tiny

CPU = torch.device("cpu")
EXACT = Precision("float32", weights="auto", kv_cache="auto")
PROMPT = [3, 50, 7, 7, 61, 12, 40]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def fp8(num_out: int, num_in: int, *, scheme=FP8, batch_invariant: bool = False):
    tensor = coded_fp8(random(num_out, num_in, seed=1), num_in, scheme)
    bias = random(num_out, seed=2).half()
    return coded_linear([tensor], bias, CPU, torch.float16, batch_invariant=batch_invariant)


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])  # biases; a soft cap on the head's logits
def test_a_step_has_the_reference_s_logits(family: str) -> None:
    spec = FAMILIES[family]
    backend = GpuBackend(CPU, max_num_batched_tokens=64, max_num_seqs=8, batch_invariant=False)
    backends = (backend, ReferenceBackend(threads=1))

    def logits(backend: GpuBackend | ReferenceBackend) -> torch.Tensor:
        source = DictSource(random_weights(spec))
        return Run(backend.load(spec, source, EXACT, lambda _done, _total: None)).step(
            ("a", PROMPT)
        )["a"]

    result, expected = map(logits, backends)

    torch.testing.assert_close(result, expected, rtol=1e-4, atol=2e-4)


def test_logits_are_not_rounded_to_the_type_of_the_rows() -> None:
    x, weight = random(3, 64, dtype=torch.float16), random(40, 64, dtype=torch.float16, seed=1)
    bias = random(40, dtype=torch.float16, seed=2)

    result = VendorLinear(weight, bias).float32(x)

    torch.testing.assert_close(result, gemm(x, weight, bias, out_dtype=torch.float32))


def test_float8_is_multiplied_as_with_equal_bits_up_to_rounding() -> None:
    x = random(5, 96, dtype=torch.float16)

    held = fp8(32, 96)

    assert isinstance(held, VendorFp8Linear)
    torch.testing.assert_close(held(x), fp8(32, 96, batch_invariant=True)(x), rtol=1e-2, atol=2e-2)
    assert held.float32(x).dtype == torch.float32


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(lambda: fp8(32, 104), id="columns that are no multiple of 16"),
        pytest.param(lambda: fp8(40, 96), id="outputs that are no multiple of 16"),
        pytest.param(lambda: fp8(32, 96, scheme=FP8_WEIGHTS), id="rows that are not rounded"),
    ],
)
def test_what_the_library_does_not_multiply_stays_ours(held) -> None:
    linear = held()

    assert type(linear) is Fp8Linear
    assert linear(random(2, linear.shape[1], dtype=torch.float16)).isfinite().all()


def test_codes_of_4_bits_stay_ours() -> None:
    tensor = coded((32, 64), INT4)

    held = coded_linear([tensor], None, CPU, torch.float16, batch_invariant=False)

    assert isinstance(held, W4Linear)


@pytest.mark.parametrize(("flags", "by_vendor"), [([], False), (["--no-batch-invariant"], True)])
def test_the_flag_says_who_multiplies(flags, by_vendor, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("engine_svc.planning.decoder.choose_device", lambda _: ("cuda", None))
    monkeypatch.setattr("kernels.gpu.device.current_device", lambda: CPU)
    path = make_tiny("llama", tmp_path)

    computation = choose_computation(settings_of(path, *flags), open_model(path))

    assert ("products by cuBLAS" in computation.description) is by_vendor


def test_memory_is_planned_for_graphs_unless_a_flag_says_that_there_are_none(
    monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr("engine_svc.planning.decoder.choose_device", lambda _: ("cuda", None))
    monkeypatch.setattr("kernels.gpu.device.current_device", lambda: CPU)
    path = make_tiny("llama", tmp_path)

    def activations(*flags: str) -> int:
        settings, opened = settings_of(path, *flags), open_model(path)
        return decoder_needs(settings, opened, choose_computation(settings, opened)).activations

    assert activations("--enforce-eager") < activations()
