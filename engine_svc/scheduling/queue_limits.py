"""Which requests the scheduler takes: what can be computed at all, and how many may wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_svc.scheduling.request import Request
    from engine_svc.scheduling.scheduler_config import SchedulerConfig
    from engine_svc.scheduling.waiting_queue import WaitingQueue


class QueueFull(Exception):  # noqa: N818 -- the engine's answer to load, not a fault
    """As many requests or tokens wait as may. `what` is "requests" or "tokens"."""

    def __init__(self, limit: int, what: str) -> None:
        """Names the limit."""
        super().__init__(f"the queue holds at most {limit} {what}")
        self.limit = limit
        self.what = what


def check_length(request: Request, max_model_len: int) -> None:
    """Raises ValueError for a prompt that is empty or, with resumed output, too long."""
    if not request.prompt_token_ids:
        raise ValueError("prompt_token_ids must not be empty")
    if request.num_tokens > max_model_len:
        raise ValueError(
            f"prompt and resumed output have {request.num_tokens} tokens, "
            f"max_model_len is {max_model_len}"
        )


def check_room(requests: Sequence[Request], queue: WaitingQueue, config: SchedulerConfig) -> None:
    """Raises QueueFull if not all of them may wait; an empty queue takes any."""
    if not queue or not requests:
        return
    if len(queue) + len(requests) > config.max_num_queued_reqs:
        raise QueueFull(config.max_num_queued_reqs, "requests")
    num_tokens = sum(request.num_tokens for request in requests)
    if queue.num_tokens + num_tokens > config.max_num_queued_tokens:
        raise QueueFull(config.max_num_queued_tokens, "tokens")
