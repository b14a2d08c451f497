"""Activations and soft-caps: right, and blind to where an element lies."""

from __future__ import annotations

import pytest
import torch

from kernels.reference.activation import by_rows, gated_activation, softcap_
from kernels.spec import Activation

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Sizes that fill vectors, that do not, and that do not even fit one thread's share.
SIZES = (1536, 4864, 100, 20_001)


def _random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(dtype)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (Activation.SILU, torch.nn.functional.silu),
        (Activation.GELU_TANH, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_the_gate_is_the_first_half(kind, function) -> None:
    gate_up = _random(5, 192, dtype=torch.float32)
    gate, up = gate_up[:, :96].clone(), gate_up[:, 96:].clone()

    result = gated_activation(kind, gate_up)

    assert result.is_contiguous()
    torch.testing.assert_close(result, function(gate) * up)


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", list(Activation))
def test_a_gated_row_is_the_same_alone_and_in_any_batch(num_threads, dtype, size, kind) -> None:
    num_rows = 70 if size < 10_000 else 9
    gate_up = _random(num_rows, 2 * size, dtype=dtype)
    alone = torch.cat([gated_activation(kind, row.clone()) for row in gate_up.split(1)])

    for count in range(1, num_rows + 1):
        together = gated_activation(kind, gate_up[num_rows - count :].clone())
        assert torch.equal(together, alone[num_rows - count :]), count


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("size", SIZES)
def test_a_capped_row_is_the_same_alone_and_in_any_batch(num_threads, size) -> None:
    x = _random(9, size, dtype=torch.float32)
    alone = torch.cat([softcap_(row.clone(), 2.0) for row in x.split(1)])

    for count in range(1, 10):
        assert torch.equal(softcap_(x[9 - count :].clone(), 2.0), alone[9 - count :]), count


@pytest.mark.parametrize("num_threads", [1, 3], indirect=True)
def test_rows_that_lie_end_to_end_share_no_vector(num_threads) -> None:
    x = _random(70, 100, dtype=torch.float32)
    alone = [torch.nn.functional.silu(row) for row in x.split(1)]

    by_rows(lambda part: torch.nn.functional.silu(part, inplace=True), x)

    assert torch.equal(x, torch.cat(alone))


def test_a_device_that_computes_all_elements_alike_gets_them_in_one_call() -> None:
    logits = torch.empty(64, 256_000, device="meta")
    calls: list[torch.Tensor] = []

    by_rows(calls.append, logits)

    assert len(calls) == 1  # not the thousand that a CPU needs


def test_a_cap_bounds_and_keeps_what_is_small() -> None:
    x = torch.tensor([[-1000.0, -0.01, 0.0, 0.01, 1000.0]])

    capped = softcap_(x, 30.0)

    torch.testing.assert_close(capped, torch.tensor([[-30.0, -0.01, 0.0, 0.01, 30.0]]))
