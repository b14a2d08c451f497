"""What a request may contain: every refusal names its field, and nothing is silently dropped."""

import math

import pytest
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.service.errors import RequestError
from engine_svc.service.submission import RequestLimits, parse_submission

LIMITS = RequestLimits(
    max_model_len=64,
    vocab_size=100,
    eos_token_ids=frozenset({2}),
    max_logprobs=5,
    accepts_priority=True,
    tokenizer_sha256="tok",
    weights_version="w1",
)


def parse(limits=LIMITS, **fields):
    request = pb.GenerateRequest(**({"prompt_token_ids": [5, 6, 7]} | fields))
    return parse_submission(request, limits, draw_seed=lambda: 4711)


def refusal(**fields):
    """The field that a refused request names, and the message."""
    with pytest.raises(RequestError) as refused:
        parse(**fields)
    status = refused.value.status
    assert status.code == Code.INVALID_ARGUMENT
    bad_request = BadRequest()
    assert status.details[0].Unpack(bad_request)
    (violation,) = bad_request.field_violations
    return violation.field, violation.description


def sampling(**fields):
    return {"sampling": pb.SamplingParams(**fields)}


def bad_words(*runs, **fields):
    return sampling(bad_words=[pb.TokenSequence(token_ids=run) for run in runs], **fields)


def stopping(**fields):
    return {"stopping": pb.StoppingParams(**fields)}


def test_absent_fields_are_neutral_and_the_output_may_fill_the_context():
    submission = parse()

    assert submission.n == 1
    assert submission.choices == [0]
    assert submission.sampling.temperature == 1.0
    assert submission.sampling.top_k == 0
    assert submission.sampling.max_tokens == 61
    assert submission.sampling.eos_token_ids == {2}
    assert submission.sampling.logprobs is None
    assert submission.timeout is None


def test_zero_is_not_absent():
    assert parse(**sampling(temperature=0.0)).sampling.temperature == 0.0
    assert parse(**sampling(seed=0)).sampling.seed == 0
    assert parse(logprobs=pb.LogprobsParams(top_k=0)).sampling.logprobs == 0


def test_an_absent_seed_is_drawn():
    assert parse().sampling.seed == 4711


def test_bad_words_are_runs_of_tokens():
    assert parse(**bad_words([4], [5, 6])).sampling.bad_words == ((4,), (5, 6))


def test_max_tokens_ends_where_the_context_ends():
    assert parse(**stopping(max_tokens=1_000_000)).sampling.max_tokens == 61


def test_ends_are_masked_until_the_minimum_length_only_if_they_end_anything():
    masked = parse(**stopping(min_tokens=3, stop_token_ids=[9])).sampling
    ignoring = parse(**stopping(min_tokens=3, stop_token_ids=[9], ignore_eos=True)).sampling

    assert masked.masked_until_min_tokens == {2, 9}
    assert ignoring.masked_until_min_tokens == {9}
    assert ignoring.eos_token_ids == frozenset()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt_token_ids": []}, "prompt_token_ids"),
        ({"prompt_token_ids": [1] * 64}, "prompt_token_ids"),
        ({"prompt_token_ids": [1, 100]}, "prompt_token_ids[1]"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"constraint": pb.Constraint()}, "constraint"),
        ({"tenant": "t" * 513}, "tenant"),
        (sampling(temperature=-0.1), "sampling.temperature"),
        (sampling(temperature=math.nan), "sampling.temperature"),
        (sampling(temperature=math.inf), "sampling.temperature"),
        (sampling(top_p=0.0), "sampling.top_p"),
        (sampling(top_p=1.1), "sampling.top_p"),
        (sampling(min_p=-0.1), "sampling.min_p"),
        (sampling(repetition_penalty=0.0), "sampling.repetition_penalty"),
        (sampling(frequency_penalty=2.5), "sampling.frequency_penalty"),
        (sampling(presence_penalty=math.nan), "sampling.presence_penalty"),
        (sampling(logit_bias={100: 1.0}), "sampling.logit_bias[100]"),
        (sampling(logit_bias={1: math.nan}), "sampling.logit_bias[1]"),
        (sampling(allowed_token_ids=[1, 200]), "sampling.allowed_token_ids[1]"),
        (bad_words([1], []), "sampling.bad_words[1].token_ids"),
        (bad_words([1] * 513), "sampling.bad_words[0].token_ids"),
        (bad_words([1, 2], [3, 100]), "sampling.bad_words[1].token_ids[1]"),
        (bad_words(*[[1, 2]] * 2049), "sampling.bad_words"),
        (bad_words(*[[i] for i in range(100)]), "sampling.bad_words"),
        (bad_words([4], [5], allowed_token_ids=[4, 5]), "sampling.bad_words"),
        (stopping(max_tokens=0), "stopping.max_tokens"),
        (stopping(max_tokens=2, min_tokens=3), "stopping.min_tokens"),
        (stopping(stop_token_ids=[100]), "stopping.stop_token_ids[0]"),
        (stopping(stop_token_ids=[1] * 2000), "stopping.stop_token_ids"),
        ({"logprobs": pb.LogprobsParams(top_k=6)}, "logprobs.top_k"),
        ({"logprobs": pb.LogprobsParams(prompt_top_k=6)}, "logprobs.prompt_top_k"),
        (
            {"logprobs": pb.LogprobsParams(prompt_top_k=1, prompt_from=3)},
            "logprobs.prompt_from",
        ),
        ({"resume": [pb.ResumeChoice(choice=1)]}, "resume[0].choice"),
        ({"n": 2, "resume": [pb.ResumeChoice(), pb.ResumeChoice()]}, "resume[1].choice"),
        (
            {"resume": [pb.ResumeChoice(output_token_ids=[1] * 62)]},
            "resume[0].output_token_ids",
        ),
        (
            {"resume": [pb.ResumeChoice(output_token_ids=[1, 101])]},
            "resume[0].output_token_ids[1]",
        ),
        ({"resume": [pb.ResumeChoice(finished=True)]}, "resume"),
        ({"timeout": {"seconds": 0}}, "timeout"),
        ({"timeout": {"seconds": -1}}, "timeout"),
        ({"timeout": {"seconds": 10**9}}, "timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_value_is_refused_by_its_field(fields, field):
    assert refusal(**fields)[0] == field


def test_a_prompt_that_is_too_long_names_both_numbers():
    _, message = refusal(prompt_token_ids=[1] * 70)

    assert "70" in message
    assert "64" in message


def test_a_minimum_length_that_no_allowed_token_can_reach_is_refused():
    fields = sampling(allowed_token_ids=[2]) | stopping(min_tokens=1)

    assert refusal(**fields)[0] == "sampling.allowed_token_ids"


def test_priority_is_refused_rather_than_ignored():
    limits = RequestLimits(
        max_model_len=64,
        vocab_size=100,
        eos_token_ids=frozenset(),
        max_logprobs=5,
        accepts_priority=False,
        tokenizer_sha256="",
        weights_version="",
    )

    assert refusal(limits=limits, priority=1)[0] == "priority"
    assert parse(limits=limits).priority == 0


@pytest.mark.parametrize(
    ("expect", "field"),
    [
        (pb.Expect(tokenizer_sha256="other"), "expect.tokenizer_sha256"),
        (pb.Expect(tokenizer_sha256="tok", weights_version="w2"), "expect.weights_version"),
    ],
)
def test_an_expectation_that_does_not_hold_is_a_failed_precondition(expect, field):
    with pytest.raises(RequestError) as refused:
        parse(expect=expect)

    assert refused.value.status.code == Code.FAILED_PRECONDITION
    info = ErrorInfo()
    assert refused.value.status.details[0].Unpack(info)
    assert info.metadata["field"] == field


def test_an_expectation_that_holds_is_accepted():
    assert parse(expect=pb.Expect(tokenizer_sha256="tok", weights_version="w1")).n == 1


def test_resumed_choices_keep_their_output_and_finished_ones_do_not_run():
    submission = parse(
        n=3,
        resume=[
            pb.ResumeChoice(choice=0, output_token_ids=[8, 9], finished=True),
            pb.ResumeChoice(choice=2, output_token_ids=[8]),
        ],
    )

    assert submission.choices == [1, 2]
    assert submission.resumed[2] == (8,)
