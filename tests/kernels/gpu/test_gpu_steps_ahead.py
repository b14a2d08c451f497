"""Steps of a GPU's decoder that are begun before the last one's tokens are known, interpreted."""

from __future__ import annotations

import time

import pytest
import torch
from compile_checks import TARGETS, Target, assert_fits, compile_for

from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.request import Request
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig
from engine_svc.steps import steps_of
from engine_svc.worker.executor import Executor, LocalExecutor
from engine_svc.worker.executor_ahead import AheadExecutor
from engine_svc.worker.model_runner import ModelRunner
from kernels.backend import Precision
from kernels.gpu import picked_tokens
from kernels.gpu.backend import GpuBackend
from kernels.gpu.decoder import GpuDecoder
from kernels.gpu.picked_tokens import take_picked
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec
from tests.kernels.decoder_steps import DictSource, random_weights

TINY = DecoderSpec(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=32,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=64,
    attention_scale=0.25,
)


def load() -> GpuDecoder:
    backend = GpuBackend(torch.device("cpu"), max_num_batched_tokens=12, max_num_seqs=4)
    source = DictSource(random_weights(TINY))
    exact = Precision("float32", weights="auto", kv_cache="auto")
    decoder = backend.load(TINY, source, exact, lambda _done, _total: None)
    decoder.allocate_kv(16, 16)
    return decoder


def answers(decoder: GpuDecoder, *, ahead: bool) -> tuple[list[list[int]], list[bool]]:
    """Of three requests that start and end one after another; and whether each step awaits a token
    of the one before."""
    limits = {"max_num_seqs": 3, "max_model_len": 64, "max_num_batched_tokens": 12}
    runner = ModelRunner(decoder, vocab_size=48, block_size=16, **limits)
    executor: Executor = AheadExecutor(runner, decoder) if ahead else LocalExecutor(runner)
    config = SchedulerConfig(max_num_queued_reqs=9, max_num_queued_tokens=999, **limits)
    scheduler = Scheduler(config, KVCacheManager(16, 16))
    requests = [
        Request(key, "r", 0, tuple(range(key, 5 * key + 4)), sampling, arrival=0.0)
        for key, sampling in enumerate(
            (
                SamplingParams(temperature=0.0, max_tokens=2),
                SamplingParams(temperature=1.0, seed=5, max_tokens=4),
                SamplingParams(temperature=0.0, max_tokens=3),
            )
        )
    ]
    scheduler.add_group(requests)
    steps, awaits = steps_of(executor, scheduler, time.monotonic), []
    while scheduler.has_work or steps.in_flight:
        step = steps.advance(0.0)
        if step is not None and step.sampled is not None:
            scheduler.update(step.batch, step.sampled, 0.0)
            awaits.append(any(chunk.awaits for chunk in step.batch.chunks))
    scheduler.check_integrity()
    return [request.output_token_ids for request in requests], awaits


def test_answers_are_the_same_one_step_ahead():
    decoder = load()
    single, awaits_single = answers(decoder, ahead=False)

    ahead, awaits = answers(decoder, ahead=True)

    assert ahead == single
    assert not any(awaits_single)
    assert awaits == [False] + [True] * (len(awaits) - 1)


def test_a_token_of_the_step_before_goes_where_it_is_awaited_and_none_becomes_token_0():
    token_ids = torch.arange(200, dtype=torch.int32)
    picked = torch.tensor([12, 9, -1, 31], dtype=torch.int32)
    sources = torch.full((200,), -1, dtype=torch.int32)
    sources[[0, 1, 150, 199]] = torch.tensor([3, 0, 2, 3], dtype=torch.int32)
    named = picked[sources.clamp(min=0)].clamp(min=0)
    expected = torch.where(sources < 0, token_ids, named)

    take_picked(token_ids, sources, picked)

    assert token_ids.tolist() == expected.tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_taking_tokens_compiles_for_every_target(target: Target):
    types = dict.fromkeys(("token_ids_ptr", "sources_ptr", "picked_ptr"), "*i32")

    compiled = compile_for(picked_tokens._take, types | {"num_rows": "i32"}, {"BLOCK": 128}, target)

    assert_fits(compiled, target)
