import pytest
from fake_worker import BLOCK, EOS, Engine, next_token

from engine_svc.batch import SampledTokens
from engine_svc.scheduling.block_pool import IntegrityError
from engine_svc.scheduling.request import FinishReason, RequestStatus
from engine_svc.scheduling.scheduler import AdmittedRequest, FinishedRequest, QueueFull
from engine_svc.scheduling.waiting_queue import PATIENCE


def events(engine: Engine, kind: str) -> list:
    return [event for outputs in engine.outputs for event in getattr(outputs, kind)]


# --- one request -------------------------------------------------------------------------------


def test_a_request_is_admitted_prefilled_decoded_and_finished():
    engine = Engine()
    request = engine.add([1, 2, 3], max_tokens=2)

    first, second = engine.step(), engine.step()

    assert first.admitted == (AdmittedRequest(request.key, cached_tokens=0),)
    assert [token.position for token in (*first.tokens, *second.tokens)] == [0, 1]
    assert second.finished == (FinishedRequest(request.key, FinishReason.LENGTH, None),)
    assert request.output_token_ids[0] == next_token([1, 2, 3], choice=0)
    assert engine.step() is None
    assert engine.kv.num_free_blocks == engine.kv.num_blocks


def test_a_long_prompt_is_computed_in_chunks_and_samples_once():
    engine = Engine(max_num_batched_tokens=8)
    request = engine.add(range(20), max_tokens=1)

    engine.run()

    chunks = [chunk for batch in engine.worker.batches for chunk in batch.chunks]
    assert [(c.first_position, c.num_tokens) for c in chunks] == [(0, 8), (8, 8), (16, 4)]
    assert [c.samples for c in chunks] == [False, False, True]
    assert len(request.output_token_ids) == 1


def test_times_are_noted():
    engine = Engine(max_num_batched_tokens=8)
    request = engine.add(range(12), max_tokens=2)
    for now in (1.0, 2.0, 3.0):
        engine.now = now
        engine.step()

    assert request.first_scheduled_at == 1.0
    assert request.first_token_at == 2.0
    assert request.finished_at == 3.0
    assert request.status is RequestStatus.FINISHED


def test_the_stop_token_is_the_last_of_the_output():
    engine = Engine()
    request = engine.add([5], max_tokens=50, eos_token_ids=frozenset({EOS}))

    engine.run()

    assert request.output_token_ids[-1] == EOS
    assert EOS not in request.output_token_ids[:-1]
    assert events(engine, "finished") == [FinishedRequest(request.key, FinishReason.STOP, EOS)]


def test_the_end_of_the_context_finishes_with_length():
    engine = Engine(max_model_len=16)
    request = engine.add(range(10), max_tokens=50)

    engine.run()

    assert request.num_tokens == 16
    assert request.finish_reason is FinishReason.LENGTH


# --- resume ------------------------------------------------------------------------------------


def test_a_resumed_request_goes_on_as_if_never_interrupted():
    engine = Engine()
    whole = engine.add([1, 2, 3], max_tokens=6)
    engine.run()

    resumed = engine.add([1, 2, 3], max_tokens=6, resumed=whole.output_token_ids[:4])
    engine.outputs.clear()
    engine.run()

    assert resumed.output_token_ids == whole.output_token_ids
    assert [token.position for token in events(engine, "tokens")] == [4, 5]
    assert events(engine, "admitted")[0].cached_tokens <= resumed.num_prompt_tokens


@pytest.mark.parametrize(
    ("resumed", "reason", "stop"),
    [([4, EOS], FinishReason.STOP, EOS), ([4, 5, 6], FinishReason.LENGTH, None)],
)
def test_a_request_resumed_at_its_limit_is_finished_at_once(resumed, reason, stop):
    engine = Engine()
    request = engine.request([1, 2], max_tokens=3, resumed=resumed, eos_token_ids=frozenset({EOS}))

    finished = engine.scheduler.add(request)

    assert finished == FinishedRequest(request.key, reason, stop)
    assert request.finish_reason is reason
    assert not engine.scheduler.has_work


def test_of_a_resumed_group_only_the_unfinished_choices_run():
    engine = Engine()
    done = engine.request([1, 2], max_tokens=2, resumed=[4, 5], choice=0)
    open_ = engine.request([1, 2], max_tokens=2, resumed=[4], choice=1)

    finished = engine.scheduler.add_group([done, open_])
    engine.run()

    assert [event.key for event in finished] == [done.key]
    assert [event.key for event in events(engine, "finished")] == [open_.key]


# --- batching ----------------------------------------------------------------------------------


def test_streams_get_their_token_before_prefill_gets_the_rest():
    engine = Engine(max_num_batched_tokens=8)
    streaming = engine.add([1, 2], max_tokens=20)
    engine.step()
    prompt = engine.add(range(40, 60))

    engine.step()

    assert [chunk.key for chunk in engine.last_batch.chunks] == [streaming.key, prompt.key]
    assert engine.scheduled(streaming) == 1
    assert engine.scheduled(prompt) == 7


def test_requests_join_and_leave_a_batch_at_any_step():
    engine = Engine()
    short, long = engine.add([1], max_tokens=2), engine.add([2], max_tokens=6)
    engine.step()
    late = engine.add([3], max_tokens=2)

    engine.step()
    assert {c.key for c in engine.last_batch.chunks} == {short.key, long.key, late.key}
    engine.step()

    assert {c.key for c in engine.last_batch.chunks} == {long.key, late.key}
    assert engine.last_batch.removed == (short.key,)


def test_no_more_run_together_than_may():
    engine = Engine(max_num_seqs=2)
    for start in range(3):
        engine.add([start + 1], max_tokens=3)

    engine.step()

    assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (2, 1)


def test_a_step_with_room_for_fewer_tokens_than_requests_still_serves_all():
    engine = Engine(max_num_seqs=8, max_num_batched_tokens=2)
    requests = [engine.add([start + 1], max_tokens=5) for start in range(6)]

    engine.run()

    assert all(len(request.output_token_ids) == 5 for request in requests)
    assert max(len(batch.chunks) for batch in engine.worker.batches) == 2


def test_slow_steps_make_prefill_beside_a_stream_smaller_but_leave_a_lone_prompt_alone():
    engine = Engine(max_num_batched_tokens=32, target_step_seconds=0.1)
    lone = engine.add(range(40), max_tokens=30)
    engine.step(seconds=0.32)  # 10 ms a token
    assert engine.scheduled(lone) == 32
    engine.step(seconds=0.08)
    engine.step(seconds=0.02)

    beside = engine.add(range(100, 140))
    engine.step(seconds=0.1)

    assert engine.scheduled(lone) == 1
    assert engine.scheduled(beside) == 8  # (100 ms - 20 ms) / 10 ms


def test_without_chunked_prefill_a_prompt_waits_until_it_fits_whole():
    engine = Engine(enable_chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64)
    first, second = engine.add(range(40), max_tokens=1), engine.add(range(100, 140), max_tokens=1)

    engine.step()
    assert engine.scheduled(first) == 40
    assert engine.scheduled(second) == 0
    engine.step()

    assert engine.scheduled(second) == 40


# --- prefix cache ------------------------------------------------------------------------------


def test_cached_tokens_are_full_blocks_and_never_the_whole_prompt():
    engine = Engine(block_size=16, max_num_batched_tokens=128, max_model_len=128)
    half = list(range(56))  # 3.5 blocks
    prompts = [half, half, [*half[:32], 99, 98], half[:32]]

    requests = []
    for prompt in prompts:
        requests.append(engine.add(prompt))
        engine.run()

    assert [request.num_cached_tokens for request in requests] == [0, 48, 32, 16]
    assert [event.cached_tokens for event in events(engine, "admitted")] == [0, 48, 32, 16]


def test_the_cache_can_be_off():
    engine = Engine(enable_prefix_caching=False)
    for _ in range(2):
        engine.add(range(20))
        engine.run()

    assert [event.cached_tokens for event in events(engine, "admitted")] == [0, 0]
    assert engine.kv.pool.num_findable == 0


def test_choices_of_one_prompt_compute_it_once():
    engine = Engine(max_num_batched_tokens=64)
    prompt = range(5 * BLOCK + 1)
    group = [engine.request(prompt, choice=choice) for choice in range(4)]
    engine.scheduler.add_group(group)

    engine.run()

    assert [request.num_cached_tokens for request in group] == [0, 20, 20, 20]
    prefilled = sum(
        c.num_tokens for b in engine.worker.batches for c in b.chunks if c.first_position < 21
    )
    assert prefilled == 21 + 3
    assert len({tuple(request.output_token_ids) for request in group}) == 4


def test_who_waits_for_a_prefix_does_not_block_others():
    engine = Engine(max_num_batched_tokens=12)
    first, twin = engine.add(range(20)), engine.add([*range(18), 7])
    engine.step()
    stranger = engine.add([90, 91])

    engine.step()

    assert first.first_token_at is not None
    assert stranger.first_token_at is not None
    assert twin.status is RequestStatus.WAITING
    engine.run()
    assert twin.num_cached_tokens == 16


@pytest.mark.parametrize("end", ["cancel", "expire", "fail"])
def test_who_waits_for_a_prefix_computes_it_when_the_other_is_gone(end):
    engine = Engine(max_num_batched_tokens=8)
    first, twin = engine.add(range(20), deadline=5.0), engine.add(range(20))
    engine.step()
    assert twin.status is RequestStatus.WAITING

    if end == "cancel":
        engine.scheduler.cancel(first.key)
    elif end == "expire":
        engine.scheduler.expire(5.0)
    else:
        engine.worker.failing.add(first.key)
        engine.step()
    engine.run()

    assert len(twin.output_token_ids) == 4


def test_prompts_with_more_in_the_cache_go_first():
    engine = Engine(max_num_seqs=1)
    engine.add(range(20), max_tokens=1)
    engine.run()
    cold, warm = engine.add(range(100, 120)), engine.add(range(20))

    engine.step()

    assert warm.status is RequestStatus.RUNNING
    assert cold.status is RequestStatus.WAITING


def test_a_flushed_cache_helps_nobody():
    engine = Engine()
    engine.add(range(20))
    engine.run()

    assert engine.scheduler.flush_cache() == 5
    again = engine.add(range(20))
    engine.run()

    assert again.num_cached_tokens == 0


# --- order of the queue ------------------------------------------------------------------------


def test_lower_priority_numbers_go_first_then_arrival():
    engine = Engine(max_num_seqs=1)
    priorities = [5, 0, 5, -1, 0]
    requests = [engine.add([i + 1], priority=p, max_tokens=1) for i, p in enumerate(priorities)]

    engine.run()

    order = [event.key for event in events(engine, "admitted")]
    assert order == [requests[i].key for i in (3, 1, 4, 0, 2)]


def test_an_old_request_of_low_priority_does_not_starve():
    engine = Engine(max_num_seqs=1, max_num_queued_reqs=1000)
    humble = engine.add([1], priority=9, max_tokens=1)

    for number in range(PATIENCE + 2):
        engine.add([2, number], priority=0, max_tokens=1)
        engine.add([3, number], priority=0, max_tokens=1)
        engine.step()

    assert humble.finish_reason is FinishReason.LENGTH
    assert engine.scheduler.num_waiting > PATIENCE


def test_a_cold_prompt_is_not_overtaken_for_ever_by_cached_ones():
    engine = Engine(max_num_seqs=1, max_num_queued_reqs=1000)
    engine.add(range(20), max_tokens=1)
    engine.run()
    cold = engine.add(range(100, 120), max_tokens=1)

    for _ in range(PATIENCE + 2):
        engine.add(range(20), max_tokens=1)
        engine.add(range(20), max_tokens=1)
        engine.step()

    assert cold.first_scheduled_at is not None


# --- preemption --------------------------------------------------------------------------------


def two_that_outgrow_the_pool() -> tuple[Engine, list]:
    engine = Engine(num_blocks=8, max_model_len=32)
    requests = [engine.add([start] * 5, max_tokens=20) for start in (1, 2)]
    return engine, requests


def test_the_last_come_is_preempted_and_both_end_as_they_would_alone():
    engine, (first, second) = two_that_outgrow_the_pool()
    engine.run()

    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    assert events(engine, "preempted") == [second.key]
    for request in (first, second):
        alone = Engine()
        twin = alone.add(request.prompt_token_ids, max_tokens=20)
        alone.run()
        assert request.output_token_ids == twin.output_token_ids
    assert engine.kv.num_free_blocks == 8


def test_a_preempted_request_leaves_the_worker_and_joins_with_its_output():
    engine, (_, second) = two_that_outgrow_the_pool()
    engine.run()

    left = [batch for batch in engine.worker.batches if second.key in batch.removed]
    joined = [j for batch in engine.worker.batches for j in batch.joined if j.key == second.key]
    assert len(left) == 1
    assert [bool(join.output_token_ids) for join in joined] == [False, True]
    assert joined[1].block_ids  # what it computed before was still there
    assert len(events(engine, "admitted")) == 2  # each told once


def test_the_lowest_priority_is_preempted_before_the_last_come():
    engine = Engine(num_blocks=8, max_model_len=32)
    humble = engine.add([1] * 5, max_tokens=20, priority=1)
    engine.step()
    urgent = engine.add([2] * 5, max_tokens=20, priority=0)

    engine.run()

    assert (humble.num_preemptions, urgent.num_preemptions) == (1, 0)
    assert len(humble.output_token_ids) == len(urgent.output_token_ids) == 20


def test_a_request_preempted_after_its_tokens_were_planned_is_not_in_the_step():
    engine = Engine(num_blocks=8, max_model_len=32)
    humble = engine.add([1] * 5, max_tokens=20, priority=1)
    engine.step()
    engine.add([2] * 8, max_tokens=20, priority=0)  # comes to its fifth block first

    while humble.key not in events(engine, "preempted"):
        engine.step()

    assert humble.key in engine.last_batch.removed
    assert engine.scheduled(humble) == 0
    engine.run()
    assert len(humble.output_token_ids) == 20


def test_a_prompt_is_admitted_only_if_all_of_it_fits():
    engine = Engine(num_blocks=8, max_model_len=32, max_num_batched_tokens=12)
    first, second = engine.add(range(20), max_tokens=1), engine.add([7] * 16, max_tokens=1)
    engine.step()
    engine.step()  # has room for tokens, but the first has 5 blocks and the second needs 4

    assert first.finish_reason is FinishReason.LENGTH
    assert second.status is RequestStatus.WAITING
    engine.run()
    assert events(engine, "preempted") == []


def test_a_preempted_request_comes_back_before_those_that_wait():
    engine = Engine(num_blocks=8, max_model_len=32)
    requests = [engine.add([start] * 5, max_tokens=20) for start in (1, 2)]
    while not events(engine, "preempted"):
        engine.step()
    newcomer = engine.add([3], max_tokens=1)

    engine.step()
    assert newcomer.status is RequestStatus.WAITING
    engine.run()

    assert requests[1].finish_reason is FinishReason.LENGTH


def test_a_group_survives_a_pool_that_holds_two_of_its_five_choices():
    engine = Engine(num_blocks=8, max_model_len=32)
    group = [engine.request([7] * 6, max_tokens=18, choice=choice) for choice in range(5)]
    engine.scheduler.add_group(group)
    engine.run()

    assert events(engine, "preempted")
    for request in group:
        alone = Engine()
        twin = alone.add([7] * 6, max_tokens=18, choice=request.choice)
        alone.run()
        assert request.output_token_ids == twin.output_token_ids
    assert engine.kv.num_free_blocks == 8


def test_a_pool_too_small_for_one_request_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"max_model_len 64 needs 16 blocks .* has 15 \(60 tokens"):
        Engine(num_blocks=15, max_model_len=64)


# --- prompt log-probabilities ------------------------------------------------------------------


@pytest.mark.parametrize("length", [7, 8, 9, 15, 16, 17, 33])
def test_each_asked_prompt_position_is_told_once_whatever_the_chunks(length):
    engine = Engine(max_num_batched_tokens=8)
    engine.add(range(length), max_tokens=2)
    engine.run()
    engine.outputs.clear()

    request = engine.add(range(length), max_tokens=2, prompt_logprobs=0, prompt_logprobs_from=5)
    engine.run()

    parts = events(engine, "prompt_logprobs")
    told = [part.first_position + i for part in parts for i in range(len(part.entries))]
    assert told == list(range(5, length))
    assert request.num_cached_tokens == BLOCK


def test_positions_computed_again_after_a_preemption_are_not_told_again():
    engine = Engine(num_blocks=8, max_model_len=32, max_num_batched_tokens=2)
    engine.add([9, 9], max_tokens=28)
    engine.step()
    asked = engine.add([1, 2, 3, 4] * 5, max_tokens=2, prompt_logprobs=0)

    engine.run()

    assert asked.num_preemptions > 0
    parts = events(engine, "prompt_logprobs")
    told = [part.first_position + i for part in parts for i in range(len(part.entries))]
    assert told == list(range(20))


def test_a_request_for_no_output_scores_its_prompt_and_finishes():
    engine = Engine(max_num_batched_tokens=8)
    scored = engine.add(range(20), max_tokens=0, prompt_logprobs=0)
    bare = engine.request([1, 2, 3], max_tokens=0)

    assert engine.scheduler.add(bare) == FinishedRequest(bare.key, FinishReason.LENGTH, None)
    engine.run()

    assert scored.output_token_ids == []
    assert scored.finish_reason is FinishReason.LENGTH
    assert sum(len(part.entries) for part in events(engine, "prompt_logprobs")) == 20


# --- ends from outside -------------------------------------------------------------------------


def test_cancel_frees_at_once_wherever_the_request_is():
    engine = Engine(max_num_seqs=1)
    running, waiting = engine.add(range(20)), engine.add([1, 2])
    engine.step()

    assert engine.scheduler.cancel(running.key)
    assert engine.scheduler.cancel(waiting.key)

    assert not engine.scheduler.has_work
    assert engine.kv.num_free_blocks == engine.kv.num_blocks
    assert running.finish_reason is FinishReason.CANCELLED
    assert not engine.scheduler.cancel(running.key)
    engine.scheduler.check_integrity()


def test_a_request_cancelled_during_a_step_gets_nothing_from_it():
    engine = Engine()
    gone, stays = engine.add([1, 2]), engine.add([3, 4])
    batch = engine.scheduler.schedule()
    engine.scheduler.cancel(gone.key)

    outputs = engine.scheduler.update(batch, engine.worker.execute(batch), 0.001)

    assert [token.key for token in outputs.tokens] == [stays.key]
    assert [event.key for event in outputs.admitted] == [stays.key]
    engine.step()
    assert engine.last_batch.removed == (gone.key,)


def test_deadlines_are_checked_against_the_given_time_and_name_the_stage():
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=8)
    decoding = engine.add([1, 2], deadline=10.0, max_tokens=50)
    engine.step()
    prefilling = engine.add(range(30, 60), deadline=10.0)
    engine.step()
    queued, patient = engine.add([5], deadline=10.0), engine.add([6], deadline=11.0)

    assert engine.scheduler.expire(9.9) == []
    expired = engine.scheduler.expire(10.0)

    assert {(request.key, request.stage) for request in expired} == {
        (decoding.key, "decode"),
        (prefilling.key, "prefill"),
        (queued.key, "queue"),
    }
    assert engine.kv.num_free_blocks == engine.kv.num_blocks
    engine.step()
    assert [chunk.key for chunk in engine.last_batch.chunks] == [patient.key]


def test_deadlines_of_requests_long_gone_do_not_pile_up():
    engine = Engine()
    for _ in range(1000):
        engine.add([1], deadline=1e9, max_tokens=1)
        engine.run()

    assert len(engine.scheduler._deadlines._heap) < 200


def test_a_failed_request_is_told_and_leaves_nothing_findable():
    engine = Engine(max_num_batched_tokens=16)
    broken, healthy = engine.add(range(20)), engine.add([1, 2])
    engine.step()
    engine.worker.failing.add(broken.key)

    outputs = engine.step()

    assert [(event.key, event.message) for event in outputs.failed] == [
        (broken.key, "logits are not finite")
    ]
    assert [token.key for token in outputs.tokens] == [healthy.key]
    assert broken.finish_reason is FinishReason.FAILED
    assert engine.kv.probe(engine.request(range(20))).num_cached_blocks == 0


# --- bounds ------------------------------------------------------------------------------------


def test_beyond_the_limit_of_waiting_requests_a_group_is_refused_whole():
    engine = Engine(max_num_queued_reqs=3)
    engine.add([1])
    engine.add([2])

    with pytest.raises(QueueFull) as refused:
        engine.scheduler.add_group([engine.request([3]), engine.request([4])])

    assert (refused.value.limit, refused.value.what) == (3, "requests")
    assert engine.scheduler.num_waiting == 2
    engine.scheduler.check_integrity()


def test_beyond_the_limit_of_waiting_tokens_a_request_is_refused():
    engine = Engine(max_num_queued_tokens=30)
    engine.add(range(20))

    with pytest.raises(QueueFull) as refused:
        engine.add(range(11))

    assert (refused.value.limit, refused.value.what) == (30, "tokens")
    engine.add(range(10))


def test_an_empty_queue_takes_what_no_wait_would_make_room_for():
    engine = Engine(max_num_queued_tokens=10)

    request = engine.add(range(20))
    engine.run()

    assert request.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "must not be empty"), (range(65), "have 65 tokens, max_model_len is 64")],
)
def test_prompts_that_cannot_run_are_refused(prompt, message):
    engine = Engine()

    with pytest.raises(ValueError, match=message):
        engine.add(prompt)


def test_a_key_is_used_once():
    engine = Engine()
    request = engine.add([1])

    with pytest.raises(ValueError, match=f"key {request.key} is in use"):
        engine.scheduler.add(request)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1, got 0"),
        ({"target_step_seconds": 0.0}, "target_step_seconds must be above 0, got 0.0"),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 63},
            r"max_num_batched_tokens must be at least max_model_len \(64\), got 63",
        ),
    ],
)
def test_limits_that_make_no_sense_are_named(limits, message):
    with pytest.raises(ValueError, match=message):
        Engine(**limits)


# --- gauges and books --------------------------------------------------------------------------


def test_gauges_follow_the_state():
    engine = Engine(max_num_seqs=1, max_num_batched_tokens=8)
    assert engine.scheduler.num_uncomputed_tokens == 0
    first = engine.add(range(20), max_tokens=3)
    engine.add([1, 2, 3])
    assert engine.scheduler.num_uncomputed_tokens == 23

    engine.step()
    assert engine.scheduler.num_uncomputed_tokens == 15
    engine.scheduler.cancel(first.key)
    assert engine.scheduler.num_uncomputed_tokens == 3
    engine.run()

    assert engine.scheduler.num_uncomputed_tokens == 0
    assert engine.scheduler.step_seconds == pytest.approx(0.001)


def test_steps_are_taken_one_at_a_time():
    engine = Engine()
    engine.add([1])
    batch = engine.scheduler.schedule()

    with pytest.raises(RuntimeError, match="step 0 is still in flight"):
        engine.scheduler.schedule()
    with pytest.raises(RuntimeError, match="step 0 brought no token for request 0"):
        engine.scheduler.update(batch, SampledTokens(tokens=()), 0.1)
    engine.scheduler.update(batch, engine.worker.execute(batch), 0.1)
    with pytest.raises(RuntimeError, match="step 0 is not in flight"):
        engine.scheduler.update(batch, SampledTokens(tokens=()), 0.1)


def test_integrity_finds_a_request_that_got_lost():
    engine = Engine()
    request = engine.add([1])
    del engine.scheduler._live[request.key]

    with pytest.raises(IntegrityError, match="0 requests live, but 1 wait and 0 run"):
        engine.scheduler.check_integrity()
