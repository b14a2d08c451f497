"""The one pipeline from token ids to text, for HTTP and gRPC, streaming or not.

    chat / completions / offline API
              │ GenerationRequest          (token ids, sampling, stop strings)
        generate() ── EngineClient ──► engine's events: admitted, deltas, prompt logprobs, finish
              │ per choice: ChoiceText     (detokenise → stop strings → align tokens with text)
              ▼
        Started, PromptLogprobs, ChoiceDelta …   a whole answer is the concatenation of its deltas

Nothing here knows of protos, HTTP or JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.choice_text import ChoiceText
from router_svc.generation_types import (
    Delta,
    EngineAdmitted,
    EngineClient,
    EngineDelta,
    EngineFinish,
    EnginePromptLogprobs,
    EngineProtocolError,
    GenerationRequest,
    Logprob,
    PromptLogprobs,
    Started,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from router_svc.text.tokenizer import Tokenizer


async def generate(
    request: GenerationRequest, engine: EngineClient, tokenizer: Tokenizer
) -> AsyncGenerator[Delta, None]:
    """Runs one request; ends when every choice has finished.

    Closing the generator aborts the request on the engine. Raises what the engine's stream raises,
    and EngineProtocolError for a stream that ends early.
    """
    choices = {index: ChoiceText(index, request, tokenizer) for index in range(request.n)}
    prompt_entries: list[Logprob | None] = []
    stream = engine.submit(request)
    try:
        async for event in stream:
            match event:
                case EngineDelta() | EngineFinish():
                    choice = choices.get(event.choice)
                    if choice is None:
                        continue  # it met a stop string; the engine had not heard of it yet
                    delta = choice.add(event)
                    if delta is None:
                        continue
                    if delta.finish_reason is not None:
                        del choices[event.choice]
                        if isinstance(event, EngineDelta):
                            stream.cancel(event.choice)
                    yield delta
                    if not choices:
                        return
                case EngineAdmitted(cached_tokens):
                    yield Started(cached_tokens)
                case EnginePromptLogprobs(entries):
                    prompt_entries += entries
                    if len(prompt_entries) == len(request.prompt_token_ids):
                        yield PromptLogprobs(tuple(prompt_entries))
        raise EngineProtocolError("the engine ended the stream before every choice had finished")
    finally:
        stream.cancel()
