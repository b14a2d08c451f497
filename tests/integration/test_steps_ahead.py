"""A whole engine, from its flags, runs one step ahead of a decoder that computes by itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine_svc.engine import Engine, Report, Stop, Submit
from engine_svc.planning import decoder
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import Request
from kernels.backend import MemoryNeeds
from tests.support.async_paged_decoder import AsyncPagedDecoder
from tests.support.run_engine import greedy_tokens, load
from tests.support.tiny_models import make_tiny

PROMPTS = [(1, 2, 3), tuple(range(40)), (9,)]
NUM_TOKENS = 12


class LateBackend:
    """Makes decoders that compute as late as they may, and reads no weight."""

    name = "late"
    description = "hashes of tokens, as late as may be"

    def plan(self, *_: object, **__: object) -> MemoryNeeds:
        """As good as nothing."""
        return MemoryNeeds(weights=0, activations=0, kv_per_block=1024)

    def load(self, spec, *_: object) -> AsyncPagedDecoder:
        """The decoder, kept to look at."""
        self.decoder = AsyncPagedDecoder(spec.vocab_size)
        return self.decoder


def test_steps_run_ahead_where_the_decoder_says_that_it_computes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LateBackend()
    monkeypatch.setattr(decoder, "choose_backend", lambda *_, **__: (backend, None))
    loaded = load(make_tiny("llama", tmp_path), "--num-gpu-blocks-override", "32")
    expected = greedy_tokens(loaded, PROMPTS, NUM_TOKENS)
    assert backend.decoder.num_ahead == 0
    sampling = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)
    requests = [
        Request(100 + i, "r", 0, prompt, sampling, arrival=0.0) for i, prompt in enumerate(PROMPTS)
    ]
    ended = threading.Event()

    def publish(_report: Report) -> None:
        if all(request.finish_reason for request in requests):
            ended.set()

    engine = Engine(loaded.scheduler, loaded.kv, loaded.executor)
    engine.start(publish, ended.set)
    engine.send(Submit(tuple(requests)))
    assert ended.wait(60)
    engine.send(Stop())
    assert engine.join(60)

    assert [request.output_token_ids for request in requests] == expected
    assert backend.decoder.num_ahead >= NUM_TOKENS - 1
    assert loaded.kv.num_free_blocks == loaded.kv.num_blocks
