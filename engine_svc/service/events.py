"""The messages that tell a client what happened to its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.scheduling.request import FinishReason

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request

_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: pb.FINISH_REASON_CANCELLED,
}


def admitted(instance_id: str, cached_tokens: int, seed: int) -> pb.GenerateResponse:
    """The request was scheduled for the first time."""
    return pb.GenerateResponse(
        admitted=pb.Admitted(instance_id=instance_id, cached_tokens=cached_tokens, seed=seed)
    )


def preempted() -> pb.GenerateResponse:
    """The request lost its blocks and will be recomputed."""
    return pb.GenerateResponse(notice=pb.Notice(kind=pb.Notice.KIND_PREEMPTED))


def heartbeat() -> pb.GenerateResponse:
    """Nothing was produced for a while, but the request is alive."""
    return pb.GenerateResponse(notice=pb.Notice(kind=pb.Notice.KIND_HEARTBEAT))


def finish(
    request: Request,
    reason: FinishReason,
    stop_token_id: int | None,
    *,
    cached_tokens: int,
    completion_tokens: int,
    now: float,
) -> pb.GenerateResponse:
    """One choice ended at `now`, in seconds of the engine's clock."""
    return pb.GenerateResponse(
        finish=pb.Finish(
            choice=request.choice,
            reason=_REASONS[reason],
            stop_token_id=stop_token_id,
            usage=pb.Usage(
                prompt_tokens=request.num_prompt_tokens,
                cached_tokens=cached_tokens,
                completion_tokens=completion_tokens,
            ),
            timings=_timings(request, now),
        )
    )


def _timings(request: Request, now: float) -> pb.Timings:
    scheduled, first = request.first_scheduled_at, request.first_token_at
    if scheduled is None:
        return pb.Timings(queue_seconds=now - request.arrival)
    queued = scheduled - request.arrival
    if first is None:
        return pb.Timings(queue_seconds=queued, prefill_seconds=now - scheduled)
    return pb.Timings(
        queue_seconds=queued, prefill_seconds=first - scheduled, decode_seconds=now - first
    )
