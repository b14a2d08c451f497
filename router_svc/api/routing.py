"""Explains which engine would answer a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api.chat_prompt import chat_prompt
from router_svc.api.tooling import ToolUse
from router_svc.errors import invalid

if TYPE_CHECKING:
    from router_svc.call_context import CallContext
    from router_svc.fleet.member import Member
    from router_svc.fleet.policies import Ranked
    from router_svc.generation_types import Adapter
    from router_svc.served_model import ServedModel


async def explain(
    request: pb.ExplainRouteRequest, model: ServedModel, context: CallContext
) -> pb.ExplainRouteResponse:
    """Every engine of the model, the one that would be chosen first."""
    if request.HasField("prompt") == bool(request.messages):
        raise invalid("prompt", "give either prompt or messages, and not both")
    if request.messages:
        conversation = pb.CreateChatCompletionRequest(messages=request.messages)
        token_ids = (await chat_prompt(conversation, model, ToolUse())).token_ids
    else:
        token_ids = await model.encode(request.prompt, add_special_tokens=True)
    explained = model.engine.explain(token_ids, context.salt(request.cache_salt), model.adapter)
    return pb.ExplainRouteResponse(
        policy=model.engine.policy,
        prompt_tokens=len(token_ids),
        candidates=[_candidate(member, ranked, model.adapter) for member, ranked in explained],
    )


def _candidate(member: Member, ranked: Ranked | None, adapter: Adapter | None) -> pb.RouteCandidate:
    known = member.candidate(0) if ranked is None else ranked.candidate
    reason = "left alone after failures"
    if not member.may_serve:
        reason = "not ready"
    elif adapter is not None and not member.has(adapter):
        other = adapter.name in member.adapters
        reason = "has another version of the adapter" if other else "does not have the adapter"
    return pb.RouteCandidate(
        engine=member.name,
        may_serve=ranked is not None,
        circuit=member.circuit.state,
        cost=None if ranked is None else ranked.cost,
        reason=reason if ranked is None else ranked.reason,
        cached_tokens=known.cached_tokens,
        queued_tokens=known.queued_tokens,
        running=known.num_running,
        kv_usage=known.kv_usage,
    )
