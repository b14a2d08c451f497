"""Batch generation from Python, over the same engine, contract and pipeline as the servers.

from octavo import LLM, SamplingParams

with LLM("smollm2") as llm:
    outputs = llm.generate(["The capital of Japan is"], SamplingParams(temperature=0))
    print(outputs[0].outputs[0].text)
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from octavo.cache_dir import default_cache_dir
from octavo.flags import engine_args
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from router_svc.fleet.fleet import Fleet
from router_svc.generation import generate
from router_svc.generation_types import (
    ChoiceDelta,
    GenerationRequest,
    Logprob,
    PromptLogprobs,
    Sampling,
    Started,
)
from router_svc.launcher import EngineProcess
from router_svc.model_store import DEFAULT_MODEL, resolve_model
from router_svc.text.chat_template import ChatTemplate, encode_chat
from router_svc.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from router_svc.engine_info import EngineInfo

T = TypeVar("T")

Prompt: TypeAlias = str | Sequence[int]
Message: TypeAlias = Mapping[str, Any]

_READY_TIMEOUT_SECONDS = 600.0
_MAX_IN_FLIGHT = 256  # well below the engine's queue, so that no batch is refused


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample, with vLLM's names; None leaves it to the model's generation_config."""

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = 16  # None is the rest of the context
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One of a prompt's n continuations."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)  # empty unless asked for
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its continuations."""

    request_id: str
    prompt: str | None  # None for a prompt given as token ids
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0
    prompt_logprobs: list[Logprob | None] = field(default_factory=list)


class LLM:
    """A model on an engine of its own, which ends with this object (or the `with` block).

    Keyword arguments are the engine's flags with underscores: `LLM(model, dtype="float32",
    max_model_len=2048)`. Raises ModelNotFoundError, or RuntimeError if the engine does not start.
    """

    def __init__(self, model: str = DEFAULT_MODEL, **engine_flags: Any) -> None:
        path = resolve_model(model, default_cache_dir())
        self._tokenizer = Tokenizer.load(path)
        self._template = ChatTemplate.load(path, self._tokenizer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="octavo")
        self._thread.start()
        self._engine = EngineProcess(path, engine_args(engine_flags), shutdown_timeout=5.0)
        self._fleet = Fleet(self._tokenizer.sha256)
        self._info: EngineInfo = self._run(self._start())

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the engine. Calling it again does nothing."""
        if self._loop.is_closed():
            return
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        show_progress: bool = True,
    ) -> list[RequestOutput]:
        """Continues every prompt, in the prompts' order; all run together as memory allows.

        A prompt is a text or token ids. Raises ApiError for the first request that fails.
        """
        batch = _as_batch(prompts)
        encoded = [
            (p, self._tokenizer.encode(p, add_special_tokens=True, parse_special=True))
            if isinstance(p, str)
            else (None, list(p))
            for p in batch
        ]
        return self._generate(encoded, sampling_params, show_progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        show_progress: bool = True,
    ) -> list[RequestOutput]:
        """Answers one conversation or several. Raises TemplateError for one that does not fit."""
        if self._template is None:
            raise ValueError("this model has no chat template")
        encoded: list[tuple[str | None, list[int]]] = []
        for conversation in _as_conversations(messages):
            rendered = self._template.render(
                [dict(message) for message in conversation],
                add_generation_prompt=True,
                continue_final_message=False,
            )
            ids = encode_chat(self._tokenizer, rendered, add_special_tokens=False)
            encoded.append((None, ids))
        return self._generate(encoded, sampling_params, show_progress)

    def _generate(
        self,
        prompts: Sequence[tuple[str | None, list[int]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        show_progress: bool,
    ) -> list[RequestOutput]:
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            params = [sampling_params or SamplingParams()] * len(prompts)
        else:
            params = list(sampling_params)
        if len(params) != len(prompts):
            raise ValueError(f"{len(params)} sampling_params for {len(prompts)} prompts")
        requests = [
            _request(ids, p, self._info) for (_, ids), p in zip(prompts, params, strict=True)
        ]
        outputs = [
            RequestOutput(r.request_id, text, ids, [CompletionOutput(i) for i in range(r.n)])
            for r, (text, ids) in zip(requests, prompts, strict=True)
        ]
        columns = (
            TextColumn("Generating"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, disable=not show_progress) as progress:
            self._run(self._run_all(requests, outputs, progress))
        return outputs

    async def _run_all(
        self,
        requests: Sequence[GenerationRequest],
        outputs: Sequence[RequestOutput],
        progress: Progress,
    ) -> None:
        bar = progress.add_task("", total=len(requests), speed="")
        started = self._loop.time()
        room = asyncio.Semaphore(_MAX_IN_FLIGHT)
        num_tokens = 0

        async def run(request: GenerationRequest, output: RequestOutput) -> None:
            nonlocal num_tokens
            async with room:
                async for delta in generate(request, self._fleet, self._tokenizer):
                    _add(delta, output)
            num_tokens += sum(len(choice.token_ids) for choice in output.outputs)
            speed = num_tokens / max(1e-9, self._loop.time() - started)
            progress.update(bar, advance=1, speed=f"{speed:.0f} tok/s")

        tasks = [
            asyncio.create_task(run(request, output))
            for request, output in zip(requests, outputs, strict=True)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self) -> EngineInfo:
        await self._engine.__aenter__()
        self._fleet.add(self._engine.target)
        failed = asyncio.create_task(self._engine.failed())
        ready = asyncio.create_task(self._fleet.wait_ready(_READY_TIMEOUT_SECONDS))
        await asyncio.wait((failed, ready), return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        if ready.done() and (info := ready.result()) is not None:
            self._engine.was_ready = True
            return info
        ready.cancel()
        await self._stop()
        raise RuntimeError("the engine did not start; it has said why on stderr")

    async def _stop(self) -> None:
        await self._fleet.close()
        await self._engine.__aexit__()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def _as_conversations(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> Sequence[Sequence[Message]]:
    if messages and isinstance(messages[0], Mapping):
        return [messages]  # type: ignore[list-item]
    return messages  # type: ignore[return-value]


def _request(ids: list[int], params: SamplingParams, info: EngineInfo) -> GenerationRequest:
    rest = info.max_model_len - len(ids)
    if rest < 1:
        raise ValueError(f"a prompt has {len(ids)} tokens, the context holds {info.max_model_len}")
    return GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt_token_ids=ids,
        sampling=Sampling(
            temperature=params.temperature,
            top_k=None if params.top_k is None else max(0, params.top_k),
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            frequency_penalty=params.frequency_penalty,
            presence_penalty=params.presence_penalty,
            logit_bias=dict(params.logit_bias),
            seed=params.seed,
        ),
        n=params.n,
        max_tokens=rest if params.max_tokens is None else min(params.max_tokens, rest),
        min_tokens=params.min_tokens,
        stop=(params.stop,) if isinstance(params.stop, str) else tuple(params.stop),
        stop_token_ids=tuple(params.stop_token_ids),
        include_stop=params.include_stop_str_in_output,
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        logprobs=params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
    )


def _add(delta: Started | PromptLogprobs | ChoiceDelta, output: RequestOutput) -> None:
    match delta:
        case Started(cached_tokens):
            output.num_cached_tokens = cached_tokens
        case PromptLogprobs(entries):
            output.prompt_logprobs = list(entries)
        case ChoiceDelta():
            choice = output.outputs[delta.choice]
            choice.text += delta.text
            choice.token_ids += delta.token_ids
            choice.logprobs += delta.logprobs
            if delta.finish_reason is not None:
                choice.finish_reason = delta.finish_reason.value
                choice.stop_reason = delta.stop_reason
