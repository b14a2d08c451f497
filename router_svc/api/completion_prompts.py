"""From a completion request's prompts to token ids: texts, ids, gaps to fill, cut where asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from router_svc.errors import invalid
from router_svc.text.infill import Infill, infill_of

if TYPE_CHECKING:
    from octavo.inference.v1 import inference_pb2 as pb

    from router_svc.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """One prompt: its ids, and for an echo its text, which may leave control tokens out."""

    token_ids: list[int]
    text: str
    skips_special: bool


async def completion_prompts(
    request: pb.CreateCompletionRequest, model: ServedModel, kept: int | None
) -> list[CompletionPrompt]:
    """Every prompt as its last `kept` token ids, and as text if it is echoed.

    Raises ApiError for ids outside the vocabulary, and for a suffix that the model cannot take.
    """
    infill = _infill_of(request, model)
    match request.prompt.WhichOneof("kind"):
        case "text":
            given: list[str | pb.TokenIds] = [request.prompt.text]
        case "texts":
            given = list(request.prompt.texts.items)
        case "token_ids":
            given = [request.prompt.token_ids]
        case _:
            given = list(request.prompt.token_ids_list.items)
    only = len(given) == 1 and request.prompt.WhichOneof("kind") in ("text", "token_ids")
    prompts = []
    for i, one in enumerate(given):
        param = "prompt" if only else f"prompt[{i}]"
        prompts.append(await model.run(partial(_prompt, request, model, one, param, infill, kept)))
    return prompts


def infill_end_ids(request: pb.CreateCompletionRequest, model: ServedModel) -> tuple[int, ...]:
    """Tokens that end the text between a prompt and its suffix, besides the model's own."""
    infill = _infill_of(request, model)
    return infill.end_ids if infill is not None else ()


def _infill_of(request: pb.CreateCompletionRequest, model: ServedModel) -> Infill | None:
    if not request.suffix:
        return None
    if request.echo:
        raise invalid("suffix", "suffix and echo exclude each other")
    infill = infill_of(model.tokenizer)
    if infill is None:
        raise invalid("suffix", "this model's tokeniser has no tokens to fill a gap with")
    return infill


def _prompt(
    request: pb.CreateCompletionRequest,
    model: ServedModel,
    given: str | pb.TokenIds,
    param: str,
    infill: Infill | None,
    kept: int | None,
) -> CompletionPrompt:
    tokenizer = model.tokenizer
    special = request.add_special_tokens or not request.HasField("add_special_tokens")
    skip = request.skip_special_tokens or not request.HasField("skip_special_tokens")
    if isinstance(given, str):
        ids = tokenizer.encode(
            given, add_special_tokens=special and infill is None, parse_special=True
        )
    else:
        ids = list(given.items)
        model.check_token_ids(ids, param)
    if infill is not None:
        after = tokenizer.encode(request.suffix, add_special_tokens=False, parse_special=True)
        # Of what the tokeniser puts around a text, a prompt with a gap has its beginning alone.
        first = tokenizer.encode("", add_special_tokens=special, parse_special=True)[:1]
        ids = [*(first if first == [tokenizer.bos_id] else ()), *infill.prompt(ids, after)]
    if kept is not None and kept < len(ids):
        ids = ids[-kept:]
    elif isinstance(given, str):
        return CompletionPrompt(ids, given, skips_special=False)
    text = model.text_of(ids, skip_special_tokens=skip) if request.echo else ""
    return CompletionPrompt(ids, text, skips_special=skip)
