"""Tokenise, detokenise, and the list of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api.chat_prompt import chat_prompt
from router_svc.api.tooling import tool_use_of
from router_svc.errors import invalid

if TYPE_CHECKING:
    from router_svc.served_model import ServedModel


async def tokenize(request: pb.TokenizeRequest, model: ServedModel) -> pb.TokenizeResponse:
    """The ids that a generation request with the same text or conversation would have."""
    if request.HasField("prompt") == bool(request.messages):
        raise invalid("prompt", "give either prompt or messages, and not both")
    if request.tools and not request.messages:
        raise invalid("tools", "tools are allowed with messages only")
    if request.messages:
        asked = pb.CreateChatCompletionRequest(tools=request.tools)
        tools = await model.run(lambda: tool_use_of(asked))
        ids = (await chat_prompt(request, model, tools)).token_ids
    else:
        special = request.add_special_tokens or not request.HasField("add_special_tokens")
        ids = await model.encode(request.prompt, add_special_tokens=special)
    return pb.TokenizeResponse(
        count=len(ids),
        max_model_len=model.info.max_model_len,
        tokens=ids,
        token_strs=[model.tokenizer.token_text(i) for i in ids]
        if request.return_token_strs
        else (),
    )


async def detokenize(request: pb.DetokenizeRequest, model: ServedModel) -> pb.DetokenizeResponse:
    """The text of the ids, control tokens included."""
    return pb.DetokenizeResponse(prompt=await model.decode(request.tokens, "tokens"))


def model_of(model: ServedModel, name: str) -> pb.Model:
    """A model, or an adapter of one, as the list shows it."""
    adapter = model.adapter
    return pb.Model(
        id=name,
        created=model.info.ready_unix_seconds,
        root=model.info.source if adapter is None else adapter.source,
        parent=None if adapter is None else model.base_name,
        max_model_len=model.info.max_model_len,
    )
