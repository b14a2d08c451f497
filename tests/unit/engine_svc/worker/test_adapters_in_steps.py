"""Adapters in steps: each request gets its own, and a step of none has nothing to say of them."""

from __future__ import annotations

import numpy as np

from engine_svc.batch import NewRequest, ScheduledBatch, ScheduledChunk
from engine_svc.sampling_params import SamplingParams
from engine_svc.worker.executor import LocalExecutor
from engine_svc.worker.model_runner import ModelRunner
from tests.support.marked_adapter import MarkedAdapter
from tests.support.paged_decoder import PagedDecoder, logits_after

PROMPT = (5, 6, 7)
VOCAB = 1000


class WatchedDecoder(PagedDecoder):
    """Keeps what each step says of adapters."""

    def __init__(self) -> None:
        super().__init__(VOCAB)
        self.allocate_kv(num_blocks=16, block_size=4)
        self.told: list[list[int] | None] = []

    def step(self, inputs):
        if inputs.adapters is not None:
            assert inputs.adapters.dtype == np.int32
        self.told.append(None if inputs.adapters is None else inputs.adapters.tolist())
        return super().step(inputs)


def executor_of(decoder: PagedDecoder) -> LocalExecutor:
    limits = {"max_num_seqs": 4, "max_model_len": 64, "max_num_batched_tokens": 64}
    return LocalExecutor(ModelRunner(decoder, vocab_size=VOCAB, block_size=4, **limits))


def joins(*slots: int) -> ScheduledBatch:
    """Requests 0, 1, … with the same prompt and these adapters."""
    params = SamplingParams(temperature=0)
    return ScheduledBatch(
        0,
        (),
        tuple(NewRequest(key, 0, PROMPT, (), params, (), slot) for key, slot in enumerate(slots)),
        tuple(ScheduledChunk(key, 0, 3, (key,), samples=True) for key in range(len(slots))),
    )


def goes_on(*keys: int, step: int = 1) -> ScheduledBatch:
    chunks = (ScheduledChunk(key, 2 + step, 1, (), samples=True) for key in keys)
    return ScheduledBatch(step, (), (), tuple(chunks))


def test_each_request_of_a_step_gets_its_own_adapter():
    decoder = WatchedDecoder()
    executor = executor_of(decoder)
    for slot in (0, 1):
        executor.set_adapter(slot, MarkedAdapter(mark=70 + slot))

    sampled = executor.submit(joins(1, -1, 0))

    assert decoder.told == [[1, -1, 0]]
    wanted = [int(np.argmax(logits_after(PROMPT, VOCAB, mark))) for mark in (71, 0, 70)]
    assert [token.token_id for token in sampled.tokens] == wanted


def test_a_step_without_adapters_says_nothing_of_them():
    decoder = WatchedDecoder()
    executor = executor_of(decoder)
    executor.set_adapter(0, MarkedAdapter(mark=7))
    executor.submit(joins(-1, 0))

    executor.submit(goes_on(0))
    executor.submit(goes_on(1))

    assert decoder.told == [[-1, 0], None, [0]]
