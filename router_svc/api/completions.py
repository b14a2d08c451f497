"""Completions: one or several prompts, each continued n times, in OpenAI's older shape."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import params
from router_svc.api.best_of import Likelihoods, num_samples
from router_svc.api.completion_prompts import completion_prompts, infill_end_ids
from router_svc.choice_text import prompt_offsets
from router_svc.errors import invalid
from router_svc.generation import generate
from router_svc.generation_types import (
    ChoiceDelta,
    Delta,
    GenerationRequest,
    Logprob,
    PromptLogprobs,
    Started,
)
from router_svc.structured import constraint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from router_svc.admission.permit import Permit
    from router_svc.api.completion_prompts import CompletionPrompt
    from router_svc.call_context import CallContext
    from router_svc.served_model import ServedModel
    from router_svc.tracing.call import Call

_DEFAULT_MAX_TOKENS = 16
_MAX_CHOICES = 2048  # prompts times n


@dataclass(slots=True)
class _Completion:
    """One request on its way through: a generation per prompt, and what adds up to the usage."""

    request: pb.CreateCompletionRequest
    model: ServedModel
    request_id: str
    prompts: list[CompletionPrompt]
    generations: list[GenerationRequest]
    permit: Permit
    call: Call
    created: int = field(default_factory=lambda: int(time.time()))
    cached_tokens: int = 0
    completion_tokens: int = 0
    likelihoods: Likelihoods = field(default_factory=Likelihoods)
    # Asked for each token, which the message is slow to answer.
    prompt_only: bool = False  # the answer is the echoed prompt alone (max_tokens 0)
    with_logprobs: bool = False
    with_token_ids: bool = False
    _common: pb.CreateCompletionResponse = field(default_factory=pb.CreateCompletionResponse)

    def __post_init__(self) -> None:
        request = self.request
        self.prompt_only = request.HasField("max_tokens") and request.max_tokens == 0
        self.with_logprobs = request.HasField("logprobs")
        self.with_token_ids = request.return_token_ids
        self._common = pb.CreateCompletionResponse(
            id=f"cmpl-{self.request_id}", created=self.created, model=self.model.name
        )

    @property
    def n(self) -> int:
        """Answers sampled for each prompt; the best of them may be fewer."""
        return self.generations[0].n

    @property
    def token_name(self) -> Callable[[int], str]:
        return params.token_names(self.request, self.model.tokenizer)

    @property
    def usage(self) -> pb.Usage:
        prompt_tokens = sum(len(prompt.token_ids) for prompt in self.prompts)
        return params.usage_of(prompt_tokens, self.completion_tokens, self.cached_tokens)

    def note_usage(self) -> None:
        """Tells the call what was used so far."""
        usage = self.usage
        self.call.response_id = self._common.id
        self.call.input_tokens = usage.prompt_tokens
        self.call.output_tokens = usage.completion_tokens
        self.call.cached_tokens = self.cached_tokens

    def chunk(self, *choices: pb.CompletionChoice) -> pb.CreateCompletionResponse:
        chunk = pb.CreateCompletionResponse()
        chunk.CopyFrom(self._common)
        chunk.choices.extend(choices)
        return chunk


async def create(
    request: pb.CreateCompletionRequest, model: ServedModel, context: CallContext
) -> pb.CreateCompletionResponse:
    """The whole answer: the chunks of the stream, joined per choice."""
    params.check_stream_options(request)
    completion = await _prepare(request, model, context, streamed=False)
    joined: dict[int, pb.CompletionChoice] = {}
    async with aclosing(_choices(completion)) as parts:
        async for part in parts:
            whole = joined.setdefault(part.index, pb.CompletionChoice(index=part.index))
            text = whole.text + part.text
            whole.MergeFrom(part)  # appends tokens and log-probabilities
            whole.text = text
    choices = [joined[index] for index in sorted(joined)]
    best = completion.likelihoods.best(choices, max(1, request.n), completion.n)
    answer = completion.chunk(*best)
    answer.usage.CopyFrom(completion.usage)
    return answer


async def stream(
    request: pb.CreateCompletionRequest, model: ServedModel, context: CallContext
) -> AsyncGenerator[pb.CreateCompletionResponse, None]:
    """The answer in chunks, then the usage if asked for."""
    completion = await _prepare(request, model, context, streamed=True)
    options = request.stream_options
    usage_in_all = options.continuous_usage_stats
    async with aclosing(_choices(completion)) as parts:
        async for part in parts:
            chunk = completion.chunk(part)
            if usage_in_all:
                chunk.usage.CopyFrom(completion.usage)
            yield chunk
    if options.include_usage:
        end = completion.chunk()
        end.usage.CopyFrom(completion.usage)
        yield end


async def _prepare(
    request: pb.CreateCompletionRequest,
    model: ServedModel,
    context: CallContext,
    *,
    streamed: bool,
) -> _Completion:
    max_tokens = request.max_tokens if request.HasField("max_tokens") else _DEFAULT_MAX_TOKENS
    if max_tokens == 0 and not request.echo:
        raise invalid("max_tokens", "max_tokens 0 is allowed with echo only")
    prompt_logprobs = request.prompt_logprobs if request.HasField("prompt_logprobs") else None
    if request.echo and request.HasField("logprobs"):
        prompt_logprobs = max(prompt_logprobs or 0, request.logprobs)
    logprobs = request.logprobs if request.HasField("logprobs") else None
    common = params.generation_of(
        request,
        model,
        context,
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )
    common = await params.with_bad_words(common, request, model)
    samples = num_samples(request, common.n, streamed=streamed)
    common = replace(
        common,
        n=samples,
        # The engine always samples one token; for max_tokens 0 it is not shown.
        max_tokens=max(1, max_tokens),
        logprobs=0 if logprobs is None and samples > common.n else common.logprobs,
        stop_token_ids=(*common.stop_token_ids, *infill_end_ids(request, model)),
    )
    if request.HasField("response_format") or request.HasField("structured_outputs"):
        common = replace(common, constraint=await model.run(lambda: constraint_of(request)))
    kept = params.tokens_kept(request, model.info, room=max(1, max_tokens))
    with context.call.phase("tokenise"):
        prompts = await completion_prompts(request, model, kept)
    if len(prompts) * samples > _MAX_CHOICES:
        name = "best_of" if request.HasField("best_of") else "n"
        raise invalid(
            "prompt",
            f"{len(prompts)} prompts times {name} = {samples} are more than {_MAX_CHOICES} choices",
        )
    if len(prompts) == 1:
        generations = [params.with_prompt(common, prompts[0].token_ids, model.info, "prompt")]
    else:
        generations = [
            replace(
                params.with_prompt(common, prompt.token_ids, model.info, f"prompt[{i}]"),
                request_id=f"{common.request_id}-{i}",
            )
            for i, prompt in enumerate(prompts)
        ]
    generations = params.admitted(generations, context, "max_tokens")
    return _Completion(
        request, model, common.request_id, prompts, generations, context.permit, context.call
    )


async def _choices(completion: _Completion) -> AsyncGenerator[pb.CompletionChoice, None]:
    """Parts of all choices as they come, over all prompts."""
    openings: dict[int, list[pb.CompletionChoice]] = {}
    used = 0
    try:
        async with aclosing(_merged(completion)) as events:
            async for prompt_index, delta in events:
                match delta:
                    case ChoiceDelta():
                        if delta.finish_reason is not None:
                            completion.call.finish_reasons.append(delta.finish_reason.value)
                        for opening in openings.pop(prompt_index, ()):
                            yield opening
                        part = _part(completion, prompt_index, delta)
                        if part is not None:
                            yield part
                    case Started(cached_tokens):
                        completion.cached_tokens += cached_tokens
                        used += len(completion.prompts[prompt_index].token_ids)
                        if completion.generations[prompt_index].prompt_logprobs is None:
                            openings[prompt_index] = _openings(completion, prompt_index, ())
                    case PromptLogprobs(entries):
                        openings[prompt_index] = _openings(completion, prompt_index, entries)
    finally:
        completion.permit.settle(used + completion.completion_tokens)
        completion.note_usage()


async def _merged(completion: _Completion) -> AsyncGenerator[tuple[int, Delta], None]:
    """Deltas of all prompts' generations; the first error ends all of them.

    Twice as many choices as the engine runs at once are submitted; more would gain nothing, and
    take the queue from others or overflow it.
    """
    model = completion.model
    if len(completion.generations) == 1:
        generation = completion.generations[0]
        async with aclosing(generate(generation, model.engine, model.tokenizer)) as deltas:
            async for delta in deltas:
                yield 0, delta
        return
    slots = asyncio.Semaphore(max(1, 2 * model.info.max_num_seqs // completion.n))
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue(maxsize=64)

    async def pump(index: int, request: GenerationRequest) -> None:
        try:
            async with (
                slots,
                aclosing(generate(request, model.engine, model.tokenizer)) as deltas,
            ):
                async for delta in deltas:
                    await queue.put((index, delta))
            await queue.put((index, None))
        except Exception as error:  # noqa: BLE001 - handed to the reader, who raises it
            await queue.put((index, error))

    tasks = [asyncio.create_task(pump(i, g)) for i, g in enumerate(completion.generations)]
    try:
        running = len(tasks)
        while running:
            index, item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _openings(
    completion: _Completion, prompt_index: int, entries: Sequence[Logprob | None]
) -> list[pb.CompletionChoice]:
    """What each choice of a prompt begins with: echo, the prompt's ids and log-probabilities."""
    request, tokenizer = completion.request, completion.model.tokenizer
    if not (request.echo or request.HasField("prompt_logprobs") or request.return_token_ids):
        return []
    prompt = completion.prompts[prompt_index]
    opening = pb.CompletionChoice()
    if request.echo:
        opening.text = prompt.text
        if request.HasField("logprobs"):
            offsets = prompt_offsets(
                prompt.token_ids,
                prompt.text,
                tokenizer,
                skip_special_tokens=prompt.skips_special,
            )
            opening.logprobs.CopyFrom(
                _logprobs(
                    prompt.token_ids, entries, offsets, request.logprobs, completion.token_name
                )
            )
    if request.HasField("prompt_logprobs"):
        opening.prompt_logprobs.extend(
            params.prompt_logprobs_of(entries, tokenizer, most=request.prompt_logprobs)
        )
    if request.return_token_ids:
        opening.prompt_token_ids.extend(prompt.token_ids)
    choices = []
    for i in range(completion.n):
        opening.index = prompt_index * completion.n + i
        choice = pb.CompletionChoice()
        choice.CopyFrom(opening)
        choices.append(choice)
    return choices


def _part(
    completion: _Completion, prompt_index: int, delta: ChoiceDelta
) -> pb.CompletionChoice | None:
    request = completion.request
    choice = pb.CompletionChoice(index=prompt_index * completion.n + delta.choice)
    if delta.finish_reason is not None:
        choice.finish_reason = params.FINISH_REASONS[delta.finish_reason]
    if completion.prompt_only:
        choice.finish_reason = pb.FINISH_REASON_LENGTH
        return choice if delta.finish_reason is not None else None
    completion.completion_tokens += len(delta.token_ids)
    if delta.logprobs and request.best_of:
        completion.likelihoods.add(choice.index, delta.logprobs)
    choice.text = delta.text
    if completion.with_logprobs and delta.logprobs:
        shift = len(completion.prompts[prompt_index].text) if request.echo else 0
        offsets = [shift + offset for offset in delta.offsets]
        choice.logprobs.CopyFrom(
            _logprobs(
                delta.token_ids, delta.logprobs, offsets, request.logprobs, completion.token_name
            )
        )
    if completion.with_token_ids:
        choice.token_ids.extend(delta.token_ids)
    if (stop_reason := params.stop_reason_of(delta.stop_reason)) is not None:
        choice.stop_reason.CopyFrom(stop_reason)
    return choice


def _logprobs(
    token_ids: Iterable[int],
    entries: Iterable[Logprob | None],
    offsets: Iterable[int],
    top: int,
    name_of: Callable[[int], str],
) -> pb.CompletionLogprobs:
    message = pb.CompletionLogprobs()
    for token_id, entry, offset in zip(token_ids, entries, offsets, strict=True):
        text = name_of(token_id)
        message.tokens.append(text)
        message.text_offset.append(offset)
        if entry is None:
            message.token_logprobs.add()
            message.top_logprobs.add()
            continue
        message.token_logprobs.add(number=params.finite(entry.logprob))
        items = message.top_logprobs.add().entries.items
        for candidate, logprob in entry.top[:top]:
            if (candidate_text := name_of(candidate)) not in items:
                items[candidate_text] = params.finite(logprob)
        if text not in items:
            items[text] = params.finite(entry.logprob)
    return message
