"""The pipeline over a scripted engine stream: what it yields, what it cancels, what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from router_svc.errors import ApiError, ErrorKind
from router_svc.generation import generate
from router_svc.generation_types import (
    ChoiceDelta,
    EngineAdmitted,
    EngineDelta,
    EngineEvent,
    EngineFinish,
    EnginePromptLogprobs,
    EngineProtocolError,
    FinishReason,
    GenerationRequest,
    Logprob,
    PromptLogprobs,
    Sampling,
    Started,
)
from router_svc.text.tokenizer import Tokenizer


class ScriptedEngine:
    """Plays events back and remembers what was cancelled."""

    def __init__(self, *script: EngineEvent | Exception) -> None:
        self.script = script
        self.cancelled: list[int | None] = []

    def submit(self, _request: GenerationRequest) -> ScriptedEngine:
        return self

    def cancel(self, choice: int | None = None) -> None:
        self.cancelled.append(choice)

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            yield item


@pytest.fixture(scope="module")
def tokenizer(smollm2_checkpoint: Path) -> Tokenizer:
    return Tokenizer.load(smollm2_checkpoint)


def _request(**options: object) -> GenerationRequest:
    return GenerationRequest("r", (1, 2), Sampling(), **options)  # type: ignore[arg-type]


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)


async def _all(engine: ScriptedEngine, request: GenerationRequest, tokenizer: Tokenizer) -> list:
    async with aclosing(generate(request, engine, tokenizer)) as deltas:
        return [delta async for delta in deltas]


async def test_an_answer_is_its_start_its_text_and_its_end(tokenizer: Tokenizer) -> None:
    ids = _ids(tokenizer, "one two")
    finish = EngineFinish(0, FinishReason.LENGTH, None, len(ids))
    engine = ScriptedEngine(EngineAdmitted(16), EngineDelta(0, 0, ids, ()), finish)

    started, text, end = await _all(engine, _request(), tokenizer)

    assert started == Started(16)
    assert text.text == "one two"
    assert end.finish_reason is FinishReason.LENGTH


async def test_a_stop_string_in_one_choice_cancels_that_choice_alone(tokenizer: Tokenizer) -> None:
    ids = _ids(tokenizer, "one two three")
    late = EngineFinish(0, FinishReason.CANCELLED, None, 3)
    engine = ScriptedEngine(
        EngineDelta(0, 0, ids, ()),
        EngineDelta(0, 3, ids, ()),  # sent before the engine heard of the cancel
        late,
        EngineDelta(1, 0, ids[:1], ()),
        EngineFinish(1, FinishReason.LENGTH, None, 1),
    )

    deltas = await _all(engine, _request(n=2, stop=(" two",)), tokenizer)

    texts = {i: "".join(d.text for d in deltas if d.choice == i) for i in (0, 1)}
    assert texts == {0: "one", 1: "one"}
    assert engine.cancelled[0] == 0


async def test_closing_the_pipeline_cancels_the_request(tokenizer: Tokenizer) -> None:
    engine = ScriptedEngine(EngineAdmitted(0), EngineAdmitted(0))
    deltas = generate(_request(), engine, tokenizer)
    await anext(deltas)

    await deltas.aclose()

    assert engine.cancelled == [None]


async def test_prompt_logprobs_come_once_they_are_complete(tokenizer: Tokenizer) -> None:
    second = Logprob(2, -0.5, 1, ())
    engine = ScriptedEngine(
        EnginePromptLogprobs([None]),
        EnginePromptLogprobs([second]),
        EngineFinish(0, FinishReason.STOP, None, 0),
    )

    deltas = await _all(engine, _request(prompt_logprobs=0), tokenizer)

    assert deltas[0] == PromptLogprobs((None, second))
    assert isinstance(deltas[1], ChoiceDelta)


async def test_an_end_without_a_finish_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(EngineProtocolError, match="before every choice had finished"):
        await _all(ScriptedEngine(EngineAdmitted(0)), _request(), tokenizer)


async def test_the_engines_error_is_raised_after_what_came_before(tokenizer: Tokenizer) -> None:
    lost = ApiError(ErrorKind.UNAVAILABLE, "the engine was lost")
    engine = ScriptedEngine(EngineDelta(0, 0, _ids(tokenizer, "one two"), ()), lost)
    deltas = generate(_request(), engine, tokenizer)

    assert (await anext(deltas)).text == "one two"
    with pytest.raises(ApiError, match="lost"):
        await anext(deltas)
