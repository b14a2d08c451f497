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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from octavo.cache_dir import default_cache_dir
from octavo.inference.v1 import embeddings_pb2
from octavo.inference.v1 import inference_pb2 as pb
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from router_svc.api.chat_prompt import chat_prompt
from router_svc.api.embeddings import create as create_embeddings
from router_svc.api.tooling import tool_use_of
from router_svc.call_context import CallContext
from router_svc.fleet.fleet import Fleet
from router_svc.gen.inference_decode import decode_create_chat_completion_request
from router_svc.gen.inference_validate import validate_create_chat_completion_request
from router_svc.generation import generate
from router_svc.generation_types import ChoiceDelta, GenerationRequest, PromptLogprobs, Started
from router_svc.launcher import EngineProcess
from router_svc.model_store import DEFAULT_MODEL, resolve_model
from router_svc.offline_adapters import LoRARequest, OfflineAdapters, own_engine_args
from router_svc.offline_types import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    SamplingParams,
    StructuredOutputsParams,
)
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from router_svc.engines.info import EngineInfo
    from router_svc.generation_types import Adapter, Constraint, Sampling
    from router_svc.served_model import ChatPrompt

__all__ = [
    "LLM",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "LoRARequest",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
]

T = TypeVar("T")

Prompt: TypeAlias = str | Sequence[int]
Message: TypeAlias = Mapping[str, Any]

_READY_TIMEOUT_SECONDS = 600.0
_MAX_IN_FLIGHT = 256  # well below the engine's queue, so that no batch is refused


class LLM:
    """A model on an engine of its own, which ends with this object (or the `with` block).

    Keyword arguments are the engine's flags with underscores: `LLM(model, dtype="float32",
    max_model_len=2048)`. Raises ModelNotFoundError, or RuntimeError if the engine does not start.
    """

    def __init__(self, model: str = DEFAULT_MODEL, **engine_flags: Any) -> None:
        path = resolve_model(model, default_cache_dir())
        self._tokenizer = Tokenizer.load(path)
        template = ChatTemplate.load(path, self._tokenizer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="octavo")
        self._thread.start()
        self._engine = EngineProcess(path, own_engine_args(engine_flags), shutdown_timeout=5.0)
        self._fleet = Fleet(self._tokenizer.sha256)
        self._adapters = OfflineAdapters(self._fleet)
        formats = OutputFormats.choose(template, tool_parser=None, reasoning_parser=None)
        self._model = ServedModel(self._fleet, self._tokenizer, template, formats)
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
        lora_request: LoRARequest | None = None,
        show_progress: bool = True,
    ) -> list[RequestOutput]:
        """Continues every prompt, in the prompts' order; all run together as memory allows.

        A prompt is a text or token ids. Raises ApiError for the first request that fails, or for an
        adapter that cannot be loaded.
        """
        batch = _as_batch(prompts)
        encoded = [
            (p, self._tokenizer.encode(p, add_special_tokens=True, parse_special=True))
            if isinstance(p, str)
            else (None, list(p))
            for p in batch
        ]
        return self._generate(encoded, sampling_params, show_progress, lora_request)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        lora_request: LoRARequest | None = None,
        show_progress: bool = True,
    ) -> list[RequestOutput]:
        """Answers one conversation or several, in the form of OpenAI's messages and tools.

        Outputs are the model's text, calls of tools as it writes them. Raises ApiError, naming the
        field, for a conversation that does not fit.
        """
        options = {
            "tools": None if tools is None else list(tools),
            "chat_template_kwargs": chat_template_kwargs,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
        }
        requests = [
            decode_create_chat_completion_request({"messages": list(each), **options}, "")
            for each in _as_conversations(messages)
        ]
        for request in requests:
            validate_create_chat_completion_request(request)
        prompts = self._run(self._chat_prompts(requests))
        formats = self._model.formats
        markers = formats.tools.markers if tools and formats.tools else ()
        return self._generate(
            [(prompt.text, prompt.token_ids) for prompt in prompts],
            sampling_params,
            show_progress,
            lora_request,
            shown_special_ids=frozenset(self._tokenizer.special_ids(markers).values()),
        )

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """A vector for each text or list of token ids, in their order; see /v1/embeddings.

        Raises ApiError, naming the field, for an input that is refused.
        """
        batch = _as_batch(prompts)
        texts = [prompt for prompt in batch if isinstance(prompt, str)]
        if texts and len(texts) < len(batch):
            raise ValueError("texts and token ids cannot be mixed in one call")
        given = (
            pb.Prompt(texts=pb.TextList(items=texts))
            if texts
            else pb.Prompt(
                token_ids_list=pb.TokenIdsList(items=[pb.TokenIds(items=ids) for ids in batch])  # type: ignore[arg-type] # no texts are left
            )
        )
        request = embeddings_pb2.CreateEmbeddingsRequest(
            input=given, dimensions=dimensions, truncate_prompt_tokens=truncate_prompt_tokens
        )
        call = CallContext(uuid.uuid4().hex)
        answer = self._run(create_embeddings(request, self._model, call))
        return [
            EmbeddingRequestOutput(
                f"{call.request_id}-{one.index}", EmbeddingOutput(list(one.embedding.floats.items))
            )
            for one in answer.data
        ]

    async def _chat_prompts(
        self, requests: Sequence[pb.CreateChatCompletionRequest]
    ) -> list[ChatPrompt]:
        return [await chat_prompt(each, self._model, tool_use_of(each)) for each in requests]

    def _generate(
        self,
        prompts: Sequence[tuple[str | None, list[int]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        show_progress: bool,
        lora_request: LoRARequest | None,
        shown_special_ids: frozenset[int] = frozenset(),
    ) -> list[RequestOutput]:
        if not self._info.generates:
            raise ValueError("this model reads texts, it does not generate any")
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            params = [sampling_params or SamplingParams()] * len(prompts)
        else:
            params = list(sampling_params)
        if len(params) != len(prompts):
            raise ValueError(f"{len(params)} sampling_params for {len(prompts)} prompts")
        distinct = {id(each): _Prepared.of(each, self._tokenizer) for each in params}
        adapter = None if lora_request is None else self._run(self._adapters.find(lora_request))
        requests = [
            _request(ids, distinct[id(each)], self._info, shown_special_ids, adapter)
            for (_, ids), each in zip(prompts, params, strict=True)
        ]
        outputs = [
            RequestOutput(
                r.request_id,
                text,
                list(r.prompt_token_ids),
                [CompletionOutput(i) for i in range(r.n)],
            )
            for r, (text, _) in zip(requests, prompts, strict=True)
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


class _Prepared(NamedTuple):
    """Parameters with what takes long to make of them, which many prompts share."""

    params: SamplingParams
    sampling: Sampling
    constraint: Constraint | None

    @classmethod
    def of(cls, params: SamplingParams, tokenizer: Tokenizer) -> _Prepared:
        wanted = params.structured_outputs
        constraint = None if wanted is None else wanted.constraint()
        return cls(params, params.sampling(tokenizer), constraint)


def _request(
    ids: list[int],
    prepared: _Prepared,
    info: EngineInfo,
    shown_special_ids: frozenset[int],
    adapter: Adapter | None,
) -> GenerationRequest:
    params = prepared.params
    ids = _kept(ids, params, info.max_model_len)
    rest = info.max_model_len - len(ids)
    if rest < 1:
        raise ValueError(f"a prompt has {len(ids)} tokens, the context holds {info.max_model_len}")
    return GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt_token_ids=ids,
        sampling=prepared.sampling,
        n=params.n,
        max_tokens=rest if params.max_tokens is None else min(params.max_tokens, rest),
        min_tokens=params.min_tokens,
        stop=(params.stop,) if isinstance(params.stop, str) else tuple(params.stop),
        stop_token_ids=tuple(params.stop_token_ids),
        include_stop=params.include_stop_str_in_output,
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        shown_special_ids=shown_special_ids,
        logprobs=params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
        constraint=prepared.constraint,
        adapter=adapter,
    )


def _kept(ids: list[int], params: SamplingParams, max_model_len: int) -> list[int]:
    kept = params.truncate_prompt_tokens
    if kept is None:
        return ids
    if kept == -1:
        return ids[-max(1, max_model_len - (params.max_tokens or 1)) :]
    if not 1 <= kept <= max_model_len:
        raise ValueError(
            f"truncate_prompt_tokens must be -1 or between 1 and {max_model_len}, not {kept}"
        )
    return ids[-kept:]


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
