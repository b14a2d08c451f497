from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import FinishReason, Request


def make(prompt=(1, 2, 3), output=(), **sampling) -> Request:
    params = SamplingParams(**({"max_tokens": 10} | sampling))
    return Request(0, "r", 0, tuple(prompt), params, 0.0, list(output))


def test_known_tokens_are_the_prompt_and_then_the_output():
    request = make(prompt=(1, 2, 3), output=[4, 5])

    assert request.num_tokens == 5
    assert request.tokens(0, 5) == (1, 2, 3, 4, 5)
    assert request.tokens(1, 3) == (2, 3)
    assert request.tokens(2, 4) == (3, 4)
    assert request.tokens(3, 5) == (4, 5)
    assert request.tokens(4, 5) == (5,)


def test_what_earlier_attempts_produced_counts_as_resumed_and_as_known():
    request = make(output=[7, 8])

    request.output_token_ids.append(9)

    assert request.num_resumed == 2
    assert request.num_uncomputed_tokens == 6


def test_an_end_or_stop_token_ends_the_output_and_is_named():
    stopped = make(output=[4, 9], eos_token_ids=frozenset({9}))
    by_request = make(output=[4, 8], stop_token_ids=frozenset({8}))

    assert stopped.reached_limit(100) == (FinishReason.STOP, 9)
    assert by_request.reached_limit(100) == (FinishReason.STOP, 8)


def test_an_end_token_counts_only_from_min_tokens_on():
    too_early = make(output=[9], eos_token_ids=frozenset({9}), min_tokens=2)
    in_time = make(output=[4, 9], eos_token_ids=frozenset({9}), min_tokens=2)

    assert too_early.reached_limit(100) is None
    assert in_time.reached_limit(100) == (FinishReason.STOP, 9)


def test_max_tokens_is_absolute_over_all_attempts():
    assert make(output=[4] * 9, max_tokens=10).reached_limit(100) is None
    assert make(output=[4] * 10, max_tokens=10).reached_limit(100) == (FinishReason.LENGTH, None)


def test_the_end_of_the_context_ends_the_output():
    assert make(prompt=range(1, 8), output=[1]).reached_limit(9) is None
    assert make(prompt=range(1, 8), output=[1, 2]).reached_limit(9) == (FinishReason.LENGTH, None)


def test_a_stop_token_at_the_limit_is_a_stop():
    request = make(output=[4, 9], max_tokens=2, eos_token_ids=frozenset({9}))

    assert request.reached_limit(100) == (FinishReason.STOP, 9)


def test_the_stage_follows_the_first_schedule_and_the_first_token():
    request = make()
    assert request.stage == "queue"
    request.first_scheduled_at = 1.0
    assert request.stage == "prefill"
    request.first_token_at = 2.0
    assert request.stage == "decode"


def test_prompt_logprobs_are_wanted_until_told_and_never_by_a_resumed_request():
    request = make(prompt=(1, 2, 3), prompt_logprobs=1, prompt_logprobs_from=1)
    assert request.wants_prompt_logprobs
    request.next_prompt_logprob = 3

    assert not request.wants_prompt_logprobs
    assert not make(output=[4], prompt_logprobs=1).wants_prompt_logprobs
    assert not make().wants_prompt_logprobs
