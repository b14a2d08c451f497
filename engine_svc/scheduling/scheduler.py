"""Keeps all requests of an engine, from arrival to finish, and says what each step computes.

One rule: every request has `num_tokens` known and `num_computed_tokens` computed tokens, and a step
gives requests some of the difference until its budget is spent (`step_planner`). Chunked prefill,
prefix hits, a resumed answer and recompute after a preemption are all this rule.

    add ──► WAITING ──admit──► RUNNING ──► FINISHED
               ▲                  │  stop · length · failed
               └─────preempt──────┘  cancelled · expired (from either state)

The engine loop is one thread: expire, schedule, execute, update. Nothing here locks or blocks.
Where a device computes by itself, the next step is planned before `update`; see steps_in_flight.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine_svc.batch import ScheduledBatch, tokens_by_request
from engine_svc.scheduling.block_pool import IntegrityError
from engine_svc.scheduling.deadlines import Deadlines
from engine_svc.scheduling.queue_limits import QueueFull, check_length, check_room
from engine_svc.scheduling.request import FinishReason, RequestStatus
from engine_svc.scheduling.scheduler_config import SchedulerConfig
from engine_svc.scheduling.step_budget import StepBudget
from engine_svc.scheduling.step_outputs import (
    AdmittedRequest,
    Draft,
    FailedRequest,
    FinishedRequest,
    NewToken,
    StepOutputs,
)
from engine_svc.scheduling.step_planner import StepPlanner
from engine_svc.scheduling.steps_in_flight import StepsInFlight, foreseen, needs_results
from engine_svc.scheduling.waiting_queue import WaitingQueue
from engine_svc.speculation.speculator import Speculator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine_svc.batch import PromptLogprobsPart, SampledToken, SampledTokens, ScheduledChunk
    from engine_svc.scheduling.kv_cache_manager import KVCacheManager
    from engine_svc.scheduling.request import Request
    from engine_svc.scheduling.step_planner import StepPlan

__all__ = [
    "AdmittedRequest",
    "FailedRequest",
    "FinishedRequest",
    "NewToken",
    "QueueFull",
    "Scheduler",
    "SchedulerConfig",
    "StepOutputs",
]


class Scheduler:
    """Continuous batching over a bounded queue and a paged KV cache."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError if the pool cannot hold one request of the greatest length."""
        needed = kv.blocks_for(config.max_model_len)
        if kv.num_blocks < needed:
            raise ValueError(
                f"max_model_len {config.max_model_len} needs {needed} blocks of {kv.block_size} "
                f"tokens, but the KV pool has {kv.num_blocks} "
                f"({kv.num_blocks * kv.block_size} tokens)"
            )
        self._config = config
        self._kv = kv
        self._clock = clock
        self._budget = StepBudget(
            config.target_step_seconds, kv.block_size, config.max_num_batched_tokens
        )
        self._live: dict[int, Request] = {}
        self._waiting = WaitingQueue(fair=config.fair_share)
        self._running: dict[int, Request] = {}  # in order of admission
        self._speculator = None if config.speculation is None else Speculator(config.speculation)
        self._planner = StepPlanner(
            config, kv, self._budget, self._waiting, self._running, self._speculator
        )
        self._deadlines = Deadlines()
        self._num_steps = 0
        self._num_arrivals = 0
        self._in_flight = StepsInFlight()
        # What the next batch and the next outputs will tell.
        self._removed: list[int] = []
        self._admitted: list[AdmittedRequest] = []
        self._preempted: list[int] = []

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that hold none."""
        return len(self._waiting)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Known tokens still to be computed, but for the one that each decoding request has."""
        running = (request.num_uncomputed_tokens for request in self._running.values())
        return self._waiting.num_tokens + sum(count for count in running if count > 1)

    @property
    def step_seconds(self) -> float:
        """Smoothed duration of a step, in seconds; 0 before the first."""
        return self._budget.step_seconds

    @property
    def queue_wait_seconds(self) -> tuple[float, ...]:
        """Seconds that all requests waited, for each `WaitReason` in their order."""
        return self._planner.waits.seconds

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._live)

    def add(self, request: Request) -> FinishedRequest | None:
        """Adds one request; see `add_group`."""
        finished = self.add_group([request])
        return finished[0] if finished else None

    def add_group(self, requests: Sequence[Request]) -> tuple[FinishedRequest, ...]:
        """Queues all of them or none.

        Returns those that have nothing left to do, being resumed at a limit; they are not queued
        and no outputs will name them. One with prompt log-probabilities to report is queued all
        the same. An empty queue takes any group, as no wait would ever make more room for it.
        Raises QueueFull, and ValueError for a prompt that is empty or longer than max_model_len.
        """
        for request in requests:
            check_length(request, self._config.max_model_len)
            if request.key in self._live:
                raise ValueError(f"key {request.key} is in use")
        if len({request.key for request in requests}) < len(requests):
            raise ValueError("two requests of a group have the same key")
        limits = [request.reached_limit(self._config.max_model_len) for request in requests]
        pairs = list(zip(requests, limits, strict=True))
        done = {
            request.key: FinishedRequest(request.key, *limit)
            for request, limit in pairs
            if limit is not None and not request.wants_prompt_logprobs and not request.embeds
        }
        queued = [request for request in requests if request.key not in done]
        check_room(queued, self._waiting, self._config)
        for request, limit in pairs:
            if request.key in done:
                self._close(request, done[request.key].reason)
            else:
                request.scores_only = limit is not None
                self._enqueue(request)
        return tuple(done.values())

    def cancel(self, key: int) -> bool:
        """Ends a request and frees its blocks now; False if it is not here, or no longer."""
        request = self._live.get(key)
        if request is None:
            return False
        self._take_out(request, FinishReason.CANCELLED)
        return True

    def expire(self, now: float) -> list[Request]:
        """Ends and returns requests past their deadline; `Request.stage` says how far each came."""
        keys = self._deadlines.pop_expired(now)
        expired = [self._live[key] for key in keys if key in self._live]
        for request in expired:
            self._take_out(request, FinishReason.EXPIRED)
        return expired

    def flush_cache(self) -> int:
        """Forgets every cached block that no request uses; returns how many."""
        return self._kv.flush()

    def schedule(self) -> ScheduledBatch | None:
        """Plans the next step; None if there is nothing to compute.

        Raises RuntimeError if the last step has not been passed to `update`.
        """
        self._in_flight.check_none()
        if not self._live:
            return None
        return self._begin(self._planner.plan(self._clock()))

    def schedule_ahead(self) -> ScheduledBatch | None:
        """Plans the step after the one in flight, whose results are not known yet.

        None if there is nothing to compute, or if that depends on the results. Raises RuntimeError
        if not exactly one step is in flight.
        """
        batch, running = self._in_flight.only(), self._running
        if not self._live or self._leaves_room_for_guesses(batch):
            return None
        if any(needs_results(running.get(chunk.key), chunk) for chunk in batch.chunks):
            return None
        with foreseen(batch, running, self._config.max_model_len):
            if self._planner.needs_preemption:
                return None
            return self._begin(self._planner.plan(self._clock(), guesses=False))

    def abandon(self, batch: ScheduledBatch) -> None:
        """Expects no results of the oldest step in flight; nobody in it is alive."""
        self._in_flight.oldest(batch)
        self._in_flight.end()

    def update(
        self, batch: ScheduledBatch, sampled: SampledTokens, step_seconds: float
    ) -> StepOutputs:
        """Takes in what a step computed, and tells what became of each request.

        Requests that were cancelled or expired meanwhile are passed over. Raises RuntimeError if
        `batch` is not the oldest step in flight, lacks a token or has one too many.
        """
        num_decodes = self._in_flight.oldest(batch).num_decodes
        failed = dict(sampled.failed)
        sampled_by_key = tokens_by_request(batch, sampled, failed)
        self._in_flight.end()
        num_drafts = sum(len(chunk.draft_token_ids) for chunk in batch.chunks)
        num_prefill_tokens = batch.num_tokens - num_drafts - num_decodes
        self._budget.observe(num_decodes, num_prefill_tokens, step_seconds)
        admitted = tuple(event for event in self._admitted if event.key in self._live)
        preempted = tuple(key for key in self._preempted if key in self._live)
        self._admitted.clear()
        self._preempted.clear()
        live = self._running.keys() - failed.keys()
        prompt_logprobs = self._take_prompt_logprobs(sampled.prompt_logprobs, failed)
        now = self._clock()
        tokens: list[NewToken] = []
        finished: list[FinishedRequest] = []
        failures: list[FailedRequest] = []
        drafts: list[Draft] = []
        for chunk in batch.chunks:
            request = self._running.get(chunk.key)
            if request is None:
                continue
            if chunk.key in failed:
                self._take_out(request, FinishReason.FAILED)
                failures.append(FailedRequest(chunk.key, failed[chunk.key]))
                continue
            news = sampled_by_key.get(chunk.key, [])
            limit = self._advance(request, chunk, news, tokens, now)
            if chunk.draft_token_ids:
                drafts.append(Draft(len(chunk.draft_token_ids), len(news) - 1))
            if self._speculator is not None:
                self._speculator.observe(request, len(chunk.draft_token_ids), len(news) - 1)
            if limit is not None:
                self._take_out(request, limit[0])
                finished.append(FinishedRequest(chunk.key, *limit))
        return StepOutputs(
            admitted,
            preempted,
            prompt_logprobs,
            tuple(tokens),
            tuple(finished),
            tuple(failures),
            tuple(drafts),
            tuple(item for item in sampled.embeddings if item.key in live),
        )

    def check_integrity(self) -> None:
        """Proves that nothing leaked: requests, tables, references, free list, hashes, counters.

        Raises IntegrityError that names what is wrong.
        """
        self._waiting.check_integrity()
        waiting = {request.key for request in self._waiting}
        if waiting & self._running.keys() or waiting | self._running.keys() != self._live.keys():
            raise IntegrityError(
                f"{len(self._live)} requests live, but {len(waiting)} wait "
                f"and {len(self._running)} run"
            )
        for request in self._running.values():
            if request.status is not RequestStatus.RUNNING or request.num_uncomputed_tokens < 1:
                raise IntegrityError(
                    f"request {request.key} runs as {request.status.name} "
                    f"with {request.num_uncomputed_tokens} tokens to compute"
                )
        speculation = self._config.speculation
        max_drafts = 0 if speculation is None else speculation.num_speculative_tokens
        self._kv.check_integrity(self._running, max_drafts)

    def _leaves_room_for_guesses(self, batch: ScheduledBatch) -> bool:
        """Whether so few requests decode after a step that they may get guesses, which start from
        its tokens. Those gain more than a step ahead does."""
        num_decodes = sum(chunk.samples for chunk in batch.chunks)
        if self._speculator is None or not num_decodes:
            return False
        return self._speculator.room(num_decodes) > 0

    def _begin(self, plan: StepPlan) -> ScheduledBatch | None:
        self._removed += plan.preempted
        self._preempted += plan.preempted
        self._admitted += plan.admitted
        if not plan.chunks:
            return None
        batch = ScheduledBatch(
            step=self._num_steps,
            removed=tuple(self._removed),
            joined=tuple(plan.joined),
            chunks=tuple(plan.chunks.values()),
        )
        self._num_steps += 1
        self._removed.clear()
        self._in_flight.begin(batch, len(plan.decodes))
        return batch

    def _enqueue(self, request: Request) -> None:
        request.serial = self._num_arrivals
        self._num_arrivals += 1
        self._live[request.key] = request
        self._waiting.push(request)
        self._planner.waits.arrived(request)
        if request.deadline is not None:
            self._deadlines.add(request.deadline, request.key, self._live)

    def _advance(
        self,
        request: Request,
        chunk: ScheduledChunk,
        sampled: list[SampledToken],
        tokens: list[NewToken],
        now: float,
    ) -> tuple[FinishReason, int | None] | None:
        """Takes in a chunk and the tokens it brought, up to the request's limit, if there is one.

        What was computed beyond the last token taken was for a wrong guess; it will be overwritten.
        """
        limit, num_taken = None, 0
        while num_taken < len(sampled) and limit is None:
            tokens.append(_append(request, sampled[num_taken], now))
            num_taken += 1
            limit = request.reached_limit(self._config.max_model_len)
        num_known = chunk.num_tokens - len(chunk.draft_token_ids)
        request.num_computed_tokens = chunk.first_position + num_known + max(num_taken - 1, 0)
        if self._config.enable_prefix_caching:
            self._kv.publish(request)
        if not sampled and not request.num_uncomputed_tokens:  # it only computed its prompt
            limit = request.reached_limit(self._config.max_model_len)
        return limit

    def _take_prompt_logprobs(
        self, parts: Sequence[PromptLogprobsPart], failed: dict[int, str]
    ) -> tuple[PromptLogprobsPart, ...]:
        """Drops positions told before: a preempted request computes some of its prompt again."""
        news = []
        for part in parts:
            request = self._running.get(part.key)
            if request is None or part.key in failed:
                continue
            repeated = max(request.next_prompt_logprob - part.first_position, 0)
            if repeated >= len(part.entries):
                continue
            first = part.first_position + repeated
            news.append(replace(part, first_position=first, entries=part.entries[repeated:]))
            request.next_prompt_logprob = part.first_position + len(part.entries)
        return tuple(news)

    def _take_out(self, request: Request, reason: FinishReason) -> None:
        """Ends a request that waits or runs, and frees what it holds."""
        if request.status is RequestStatus.RUNNING:
            del self._running[request.key]
            # Blocks of a failed request may hold what made it fail; nobody else shall find them.
            self._kv.free(request, distrust=reason is FinishReason.FAILED)
            self._removed.append(request.key)
        else:
            self._waiting.remove(request)
            request.waited_for = request.waited_for or self._planner.waits.main_reason(
                request, self._clock()
            )
        del self._live[request.key]
        self._close(request, reason)

    def _close(self, request: Request, reason: FinishReason) -> None:
        if self._speculator is not None:
            self._speculator.forget(request.key)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        request.finished_at = self._clock()


def _append(request: Request, sampled: SampledToken, now: float) -> NewToken:
    if request.first_token_at is None:
        request.first_token_at = now
    position = len(request.output_token_ids)
    request.output_token_ids.append(sampled.token_id)
    request.grammar_ended = request.grammar_ended or sampled.ends
    return NewToken(request.key, sampled.token_id, position, sampled.logprobs)
