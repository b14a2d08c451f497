"""A served model whose engine writes given texts, cut into tokens and deltas as a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from router_svc.engines.info import EngineInfo
from router_svc.fleet.adapters import AdapterBook
from router_svc.generation_types import (
    EngineAdmitted,
    EngineDelta,
    EngineEvent,
    EngineFinish,
    FinishReason,
    GenerationRequest,
    Logprob,
)
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.tokenizer import Tokenizer

INFO = EngineInfo(
    served_names=("written",),
    source="written",
    max_model_len=4096,
    vocab_size=49152,
    max_num_seqs=32,
    max_n=128,
    max_logprobs=20,
    ready_unix_seconds=1,
)


class WritingEngine:
    """Answers choice i with texts[i], `pace` tokens a delta; remembers what it was asked."""

    info = INFO
    ready = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.adapters = AdapterBook(lambda: ())
        self.texts: Sequence[str] = ()
        self.pace = 1
        self.reason = FinishReason.STOP
        self.requests: list[GenerationRequest] = []

    def submit(self, request: GenerationRequest) -> _Writing:
        self.requests.append(request)
        ids = [
            self._tokenizer.encode(text, add_special_tokens=False, parse_special=True)
            for text in self.texts
        ]
        return _Writing(ids, self.pace, self.reason, with_logprobs=request.logprobs is not None)


class _Writing:
    def __init__(
        self, ids: list[list[int]], pace: int, reason: FinishReason, *, with_logprobs: bool
    ) -> None:
        self._ids, self._pace, self._reason = ids, pace, reason
        self._with_logprobs = with_logprobs

    def cancel(self, choice: int | None = None) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        yield EngineAdmitted(0)
        for begin in range(0, max(map(len, self._ids), default=0), self._pace):
            for choice, ids in enumerate(self._ids):
                if part := ids[begin : begin + self._pace]:
                    logprobs = [Logprob(i, -i / 1000, 1, ()) for i in part]
                    yield EngineDelta(choice, begin, part, logprobs if self._with_logprobs else ())
        for choice, ids in enumerate(self._ids):
            yield EngineFinish(choice, self._reason, None, len(ids))


def written_model(
    checkpoint: Path,
    *,
    template: str | None = None,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
) -> tuple[ServedModel, WritingEngine]:
    """A model with a real tokeniser and template over an engine that writes what it is told."""
    tokenizer = Tokenizer.load(checkpoint)
    chat_template = (
        ChatTemplate.load(checkpoint, tokenizer)
        if template is None
        else ChatTemplate(template, tokenizer)
    )
    formats = OutputFormats.choose(
        chat_template, tool_parser=tool_parser, reasoning_parser=reasoning_parser
    )
    engine = WritingEngine(tokenizer)
    return ServedModel(engine, tokenizer, chat_template, formats), engine  # type: ignore[arg-type]
