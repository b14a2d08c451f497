"""One stream over several attempts: nothing lost, nothing repeated, and no end of trying again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from router_svc.errors import ApiError, ErrorKind
from router_svc.fleet.failover import MAX_LOST_ENGINES, FailoverStream
from router_svc.generation_types import (
    EngineAdmitted,
    EngineDelta,
    EngineEvent,
    EngineFinish,
    EnginePromptLogprobs,
    FinishReason,
    GenerationRequest,
    Logprob,
    ResumedChoice,
    Sampling,
)

LOST = ApiError(ErrorKind.UNAVAILABLE, "the engine was lost")
FULL = ApiError(ErrorKind.RATE_LIMITED, "the queue is full")
DRAINING = ApiError(ErrorKind.UNAVAILABLE, "the engine is draining", code="draining")
BAD = ApiError(ErrorKind.INVALID_REQUEST, "no such token")


class ScriptedAttempt:
    """Plays one engine's events back."""

    def __init__(self, engine: str, script: list[EngineEvent | ApiError]) -> None:
        self.engine = engine
        self.stream = self
        self.script = script
        self.cancelled: list[int | None] = []
        self.outcome: object = "under way"

    def cancel(self, choice: int | None = None) -> None:
        self.cancelled.append(choice)

    def ended(self, error: ApiError | None) -> None:
        self.outcome = error

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        for item in self.script:
            if isinstance(item, ApiError):
                raise item
            yield item


class ScriptedPlacer:
    """Gives the n-th attempt the n-th script, on engines e0, e1, …; then there is none left."""

    def __init__(self, *scripts: list[EngineEvent | ApiError], retries: int = 10) -> None:
        self.scripts = list(scripts)
        self.retries = retries
        self.requests: list[GenerationRequest] = []
        self.refused: list[frozenset[str]] = []
        self.resumes: list[bool] = []
        self.attempts: list[ScriptedAttempt] = []

    async def place(
        self, request: GenerationRequest, refused: frozenset[str], *, resumes: bool
    ) -> ScriptedAttempt:
        number = len(self.attempts)
        self.requests.append(request)
        self.refused.append(refused)
        self.resumes.append(resumes)
        if number == len(self.scripts):
            raise ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
        self.attempts.append(ScriptedAttempt(f"e{number}", self.scripts[number]))
        return self.attempts[-1]

    def may_retry(self) -> bool:
        self.retries -= 1
        return self.retries >= 0


def admitted(cached: int = 0, seed: int = 42) -> EngineAdmitted:
    return EngineAdmitted(cached, seed)


def delta(first: int, *ids: int, choice: int = 0) -> EngineDelta:
    return EngineDelta(choice, first, ids, ())


def finish(count: int, choice: int = 0) -> EngineFinish:
    return EngineFinish(choice, FinishReason.STOP, None, count)


def request(**options: object) -> GenerationRequest:
    return GenerationRequest("r", (1, 2, 3), Sampling(), **options)  # type: ignore[arg-type]


async def events_of(
    placer: ScriptedPlacer, wanted: GenerationRequest | None = None
) -> list[EngineEvent]:
    return [event async for event in FailoverStream(wanted or request(), placer)]


async def test_a_lost_engine_is_replaced_where_it_stopped() -> None:
    first = [admitted(cached=2), delta(0, 10, 11), LOST]
    second = [admitted(cached=0), delta(2, 12), finish(3)]
    placer = ScriptedPlacer(first, second)

    events = await events_of(placer)

    assert events == [admitted(cached=2), delta(0, 10, 11), delta(2, 12), finish(3)]
    resumed = placer.requests[1]
    assert resumed.attempt == 1
    assert resumed.resume == (ResumedChoice(0, (10, 11), finished=False),)


async def test_the_next_engine_draws_with_the_seed_that_the_first_made_up() -> None:
    placer = ScriptedPlacer([admitted(seed=99), delta(0, 10), LOST], [delta(1, 11), finish(2)])

    await events_of(placer)

    assert placer.requests[0].sampling.seed is None
    assert placer.requests[1].sampling.seed == 99


async def test_choices_that_have_ended_do_not_run_again() -> None:
    first = [admitted(), delta(0, 10), delta(0, 20, choice=1), finish(1), LOST]
    placer = ScriptedPlacer(first, [admitted(), delta(1, 21, choice=1), finish(2, choice=1)])

    events = await events_of(placer, request(n=2))

    assert events[-1] == finish(2, choice=1)
    done, open_ = placer.requests[1].resume
    assert (done.choice, done.finished) == (0, True)
    assert (open_.choice, open_.finished) == (1, False)


async def test_a_choice_that_the_client_had_enough_of_does_not_run_again() -> None:
    placer = ScriptedPlacer(
        [delta(0, 10), delta(0, 20, choice=1), LOST], [delta(1, 21, choice=1), finish(2, choice=1)]
    )
    stream = FailoverStream(request(n=2), placer)
    events = aiter(stream)
    await anext(events)

    stream.cancel(0)
    rest = [event async for event in events]

    assert placer.attempts[0].cancelled == [0]
    assert rest[-1] == finish(2, choice=1)
    assert placer.requests[1].resume[0].finished


async def test_prompt_logprobs_that_were_cut_off_go_on_where_they_were() -> None:
    entries = [None, *(Logprob(i, -1.0, 1, ()) for i in (2, 3))]
    first = [admitted(), EnginePromptLogprobs(entries[:1], 0), LOST]
    second = [admitted(), EnginePromptLogprobs(entries, 0), delta(0, 10), finish(1)]
    placer = ScriptedPlacer(first, second)

    events = await events_of(placer)

    parts = [event for event in events if isinstance(event, EnginePromptLogprobs)]
    assert [entry for part in parts for entry in part.entries] == entries


async def test_a_full_engine_sends_the_request_to_another() -> None:
    placer = ScriptedPlacer([FULL], [admitted(), delta(0, 10), finish(1)])

    events = await events_of(placer)

    assert events[-1] == finish(1)
    assert placer.refused[1] == {"e0"}


async def test_where_all_are_full_the_client_hears_that() -> None:
    with pytest.raises(ApiError, match="the queue is full"):
        await events_of(ScriptedPlacer([FULL], [FULL]))


async def test_a_clients_own_error_is_not_tried_again() -> None:
    placer = ScriptedPlacer([BAD], [admitted()])

    with pytest.raises(ApiError, match="no such token"):
        await events_of(placer)

    assert len(placer.attempts) == 1


async def test_before_the_first_token_a_retry_comes_out_of_the_budget() -> None:
    placer = ScriptedPlacer([LOST], [admitted(), finish(0)], retries=0)

    with pytest.raises(ApiError, match="lost"):
        await events_of(placer)


async def test_an_answer_that_has_begun_is_resumed_whatever_the_budget() -> None:
    placer = ScriptedPlacer([delta(0, 10), LOST], [delta(1, 11), finish(2)], retries=0)

    assert (await events_of(placer))[-1] == finish(2)
    assert placer.resumes == [False, True]


async def test_a_request_under_which_engines_die_one_after_another_is_given_up() -> None:
    scripts = [[delta(i, i), LOST] for i in range(MAX_LOST_ENGINES + 2)]
    placer = ScriptedPlacer(*scripts)

    with pytest.raises(ApiError, match="lost"):
        await events_of(placer)

    assert len(placer.attempts) == MAX_LOST_ENGINES + 1


async def test_engines_that_drain_one_after_another_do_no_harm() -> None:
    drains = [[delta(i, i), DRAINING] for i in range(8)]
    placer = ScriptedPlacer(*drains, [finish(8)])

    assert (await events_of(placer))[-1] == finish(8)


async def test_a_deadline_counts_from_the_first_attempt() -> None:
    placer = ScriptedPlacer([delta(0, 10), LOST], [finish(1)])

    await events_of(placer, request(timeout=5.0))

    first, second = placer.requests
    assert first.timeout is not None
    assert second.timeout is not None
    assert second.timeout < first.timeout <= 5.0


async def test_cancelling_the_request_ends_it_without_another_attempt() -> None:
    placer = ScriptedPlacer([delta(0, 10), LOST], [finish(1)])
    stream = FailoverStream(request(), placer)
    events = aiter(stream)
    await anext(events)

    stream.cancel()

    with pytest.raises(ApiError, match="lost"):
        await anext(events)
    assert placer.attempts[0].cancelled == [None]
    outcome = placer.attempts[0].outcome
    assert isinstance(outcome, ApiError)
    assert outcome.kind is ErrorKind.CANCELLED
    assert len(placer.attempts) == 1


async def test_an_answer_that_has_begun_waits_for_room() -> None:
    full = ApiError(ErrorKind.RATE_LIMITED, "the queue is full", code="queue_full")
    placer = ScriptedPlacer(
        [admitted(), delta(0, 10), LOST], [full], [full], [admitted(), delta(1, 11), finish(2)]
    )

    events = await events_of(placer)

    assert events == [admitted(), delta(0, 10), delta(1, 11), finish(2)]
    assert placer.refused[3] == {"e0", "e1", "e2"}


async def test_an_answer_whose_client_is_too_slow_ends() -> None:
    slow = ApiError(ErrorKind.RATE_LIMITED, "the answer was not read", code="client_too_slow")

    with pytest.raises(ApiError, match="not read"):
        await events_of(ScriptedPlacer([admitted(), delta(0, 10), slow], [finish(1)]))


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([admitted(), delta(0, 10), finish(1)], "outcome=ok prompt_tokens=3 completion_tokens=1"),
        ([admitted(), delta(0, 10)], "outcome=cancelled prompt_tokens=3 completion_tokens=1"),
        ([BAD], "outcome=invalid_request prompt_tokens=3 completion_tokens=0"),
    ],
)
async def test_every_request_leaves_one_line_of_its_end(
    script: list[EngineEvent | ApiError], outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="octavo.router.requests")
    stream = FailoverStream(request(), ScriptedPlacer(script))
    with contextlib.suppress(ApiError):
        _ = [event async for event in stream]

    stream.cancel()  # as the pipeline does at every end
    stream.cancel()

    assert caplog.messages == [f"request_id=r {outcome} engines=e0"]
