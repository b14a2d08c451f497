"""Hidden states of a step's rows, in both back ends: what a decoder gives as an embedding."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kernels.backend import Precision
from kernels.cpu import library
from kernels.cpu.backend import CpuBackend
from kernels.reference.backend import ReferenceBackend
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec
from tests.kernels.decoder_steps import DictSource, Run, random_weights
from tests.support.stored_tensors import values

SPEC = DecoderSpec(
    vocab_size=320,
    hidden_size=104,
    intermediate_size=192,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),) * 2,
    norm_eps=1e-5,
    max_position=256,
    attention_scale=0.25,
)
PROMPTS = {"a": list(range(40, 61)), "b": [7], "c": list(range(100, 130))}
needs_kernels = pytest.mark.skipif(
    not library.available(), reason=f"no C++ kernels: {library.unavailable_reason()}"
)


class Hidden:
    """A decoder that gives hidden states."""

    def __init__(self, back_end: str, dtype: str, weights: str) -> None:
        self.source = DictSource(random_weights(SPEC))
        make = ReferenceBackend if back_end == "torch" else CpuBackend
        precision = Precision(dtype, weights, "auto")
        decoder = make(2).load(SPEC, self.source, precision, lambda _done, _total: None)
        self._run = Run(decoder)
        self._decoder = decoder

    def of(self, chunks: dict[str, list[int]], rows: list[int], logits_rows=()) -> np.ndarray:
        """Hidden states of rows of the next step."""
        inputs = self._run.inputs(*chunks.items(), logits_rows=logits_rows)
        wanted = dataclasses.replace(inputs, hidden_rows=np.array(rows, dtype=np.int32))
        result = self._decoder.step(wanted)
        self.logits = result.logits.copy()
        return result.hidden.copy()


PRECISIONS = [
    pytest.param(("torch", "float32", "auto"), id="torch-float32"),
    pytest.param(("C++", "bfloat16", "none"), id="C++-bfloat16", marks=needs_kernels),
    pytest.param(("C++", "bfloat16", "int8"), id="C++-int8", marks=needs_kernels),
]


@pytest.fixture(params=PRECISIONS)
def make(request: pytest.FixtureRequest):
    return lambda: Hidden(*request.param)


@pytest.fixture
def hidden(make) -> Hidden:
    return make()


def test_the_head_over_hidden_states_gives_the_logits(hidden: Hidden) -> None:
    states = hidden.of(PROMPTS, [20, 21, 51], logits_rows=[20, 21, 51])

    head = values(hidden.source.weights["lm_head"]).numpy()
    error = np.sqrt(np.mean((states @ head.T - hidden.logits) ** 2)) / hidden.logits.std()
    assert error < 0.04  # of 8-bit activations and weights; float32 is far below


def test_they_are_the_same_alone_in_company_and_in_chunks(make) -> None:
    together = make().of(PROMPTS, [20, 21, 51])

    for row, (name, tokens) in zip(together, PROMPTS.items(), strict=True):
        alone = make()
        np.testing.assert_array_equal(alone.of({name: tokens}, [len(tokens) - 1])[0], row)
        if len(tokens) > 1:
            chunked = make()
            chunked.of({name: tokens[:5]}, [4])
            rest = chunked.of({name: tokens[5:]}, [len(tokens) - 6])
            np.testing.assert_array_equal(rest[0], row)


def test_a_row_may_be_asked_for_with_its_logits_or_twice(hidden: Hidden) -> None:
    states = hidden.of({"a": [1, 2, 3]}, [2, 2, 0])

    np.testing.assert_array_equal(states[0], states[1])
    assert states.shape == (3, SPEC.hidden_size)


@needs_kernels
def test_a_row_outside_the_step_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted row 0 is 3: not a row of the step"):
        Hidden("C++", "bfloat16", "none").of({"a": [1, 2, 3]}, [3])


def test_in_float32_they_are_close_to_those_of_the_kernels() -> None:
    if not library.available():
        pytest.skip(f"no C++ kernels: {library.unavailable_reason()}")
    exact = Hidden("torch", "float32", "auto").of(PROMPTS, [20, 21, 51])
    rounded = Hidden("C++", "bfloat16", "none").of(PROMPTS, [20, 21, 51])

    cosines = torch.nn.functional.cosine_similarity(
        torch.from_numpy(exact), torch.from_numpy(rounded)
    )
    assert cosines.min() > 0.9995
