"""Fills one step's budget with tokens to compute.

    budget  [ decodes: one token each | running prefills | newly admitted … ]
              everybody who streams     first come         in the order of `waiting_queue`

A step of few decodes and nothing else has guesses at the next tokens added (`Speculator`).

If a running request finds no free block, the last-come of the lowest priority gives up its own and
waits; the first-come of the highest never does, so that work always gets done. A waiting request is
admitted only once running ones have all their blocks for this step and if all its known tokens fit
into the rest: what was preempted does not come back just to be preempted again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine_svc.batch import NewRequest, ScheduledChunk
from engine_svc.scheduling.kv_cache_manager import PrefixProbe
from engine_svc.scheduling.queue_waits import QueueWaits, WaitReason
from engine_svc.scheduling.request import RequestStatus
from engine_svc.scheduling.step_outputs import AdmittedRequest
from engine_svc.scheduling.waiting_queue import AdmissionRound

if TYPE_CHECKING:
    from engine_svc.scheduling.kv_cache_manager import KVCacheManager
    from engine_svc.scheduling.request import Request
    from engine_svc.scheduling.scheduler_config import SchedulerConfig
    from engine_svc.scheduling.step_budget import StepBudget
    from engine_svc.scheduling.waiting_queue import WaitingQueue
    from engine_svc.speculation.speculator import Speculator

_NO_CACHE = PrefixProbe(num_cached_blocks=0, being_computed=False)


class StepPlan:
    """The step being planned."""

    def __init__(self, max_tokens: int) -> None:
        """Starts empty."""
        self.chunks: dict[int, ScheduledChunk] = {}
        self.decodes: set[int] = set()  # keys of chunks that are decodes
        self.joined: list[NewRequest] = []
        self.admitted: list[AdmittedRequest] = []  # those of `joined` that never ran before
        self.preempted: list[int] = []
        self.tokens_left = max_tokens

    def add(self, chunk: ScheduledChunk) -> None:
        """Plans a chunk."""
        self.chunks[chunk.key] = chunk
        self.tokens_left -= chunk.num_tokens

    def extend(self, key: int, drafts: tuple[int, ...], new_blocks: tuple[int, ...]) -> None:
        """Adds guesses to a decoding request's chunk, with blocks for them."""
        chunk = self.chunks[key]
        self.chunks[key] = replace(
            chunk,
            num_tokens=chunk.num_tokens + len(drafts),
            new_block_ids=chunk.new_block_ids + new_blocks,
            draft_token_ids=drafts,
        )
        self.tokens_left -= len(drafts)

    def discard(self, key: int) -> None:
        """Takes a request's chunk, if any, out of the step."""
        chunk = self.chunks.pop(key, None)
        self.decodes.discard(key)
        if chunk is not None:
            self.tokens_left += chunk.num_tokens


class StepPlanner:
    """Moves requests between the queue and the running set, and gives them tokens and blocks."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        budget: StepBudget,
        waiting: WaitingQueue,
        running: dict[int, Request],
        speculator: Speculator | None,
    ) -> None:
        """Works on the scheduler's own queue and running set (key → request, as admitted)."""
        self._config = config
        self._kv = kv
        self._budget = budget
        self._waiting = waiting
        self._running = running
        self._speculator = speculator
        self.waits = QueueWaits()
        # A step can give each running request a token, so that all of them progress.
        self._max_running = min(config.max_num_seqs, config.max_num_batched_tokens)

    @property
    def needs_preemption(self) -> bool:
        """Whether running requests may lack blocks for what the next step computes of them."""
        most = self._config.max_num_batched_tokens
        needed = 0
        for request in self._running.values():
            if count := min(request.num_unplanned_tokens, most):
                planned = request.num_computed_tokens + request.num_in_flight_tokens
                needed += self._kv.num_missing_blocks(request, planned + count)
        return needed > self._kv.num_free_blocks

    def plan(self, now: float, *, guesses: bool = True) -> StepPlan:
        """Plans a step, with guesses or without. A request admitted for the first time gets `now`
        as its start."""
        plan = StepPlan(self._config.max_num_batched_tokens)
        self.waits.account(now, len(self._waiting))
        prefills = []
        for request in list(self._running.values()):
            count = request.num_unplanned_tokens
            if count > 1:
                prefills.append(request)
            elif count == 1 and self._plan_chunk(plan, request, 1):
                plan.decodes.add(request.key)
        # What prefill may not use of the step, so that those who stream are not kept waiting.
        reserved = 0
        if plan.decodes and self._config.enable_chunked_prefill:
            reserved = max(plan.tokens_left - self._budget.prefill_tokens, 0)
        for request in prefills:
            room = plan.tokens_left - reserved
            if room > 0:
                self._plan_chunk(plan, request, min(request.num_unplanned_tokens, room))
        if self._waiting:
            reason, next_one = self._admit(plan, reserved, now)
            self.waits.stopped_by(reason, self._waiting.num_older(next_one))
        # Beside prefill a step has arithmetic enough to do.
        only_decodes = plan.decodes and len(plan.decodes) == len(plan.chunks)
        if guesses and self._speculator is not None and only_decodes:
            self._speculate(plan, self._speculator)
        return plan

    def _speculate(self, plan: StepPlan, speculator: Speculator) -> None:
        """Gives decoding requests guesses, as far as tokens and free blocks go."""
        room = speculator.room(len(plan.decodes))
        for key in list(plan.chunks):
            request = self._running[key]
            useful = request.num_tokens_left(self._config.max_model_len) - 1
            drafts = speculator.propose(request, min(room, useful, plan.tokens_left))
            if not drafts or not plan.chunks[key].samples:
                continue
            blocks = self._kv.grow(request, request.num_tokens + len(drafts))
            if blocks is not None:
                plan.extend(key, drafts, blocks)

    def _plan_chunk(self, plan: StepPlan, request: Request, num_tokens: int) -> bool:
        """Plans a request's next tokens; False if it gave up its blocks, now or before."""
        if request.status is not RequestStatus.RUNNING:
            return False
        first = request.num_computed_tokens + request.num_in_flight_tokens
        last = first + num_tokens
        while (new_blocks := self._kv.grow(request, last)) is None:
            victim = max(self._running.values(), key=lambda r: (r.priority, r.serial))
            self._preempt(plan, victim)
            if victim is request:
                return False
        awaited = request.num_awaited_tokens
        ends = last == request.num_tokens + awaited
        samples, embeds = ends and not request.scores_only, ends and request.embeds
        awaits = ends and awaited > 0
        plan.add(
            ScheduledChunk(request.key, first, num_tokens, new_blocks, samples, (), embeds, awaits)
        )
        return True

    def _preempt(self, plan: StepPlan, request: Request) -> None:
        plan.discard(request.key)
        plan.preempted.append(request.key)
        del self._running[request.key]
        self._kv.free(request)
        request.status = RequestStatus.WAITING
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self._waiting.push_front(request)

    def _admit(
        self, plan: StepPlan, reserved: int, now: float
    ) -> tuple[WaitReason, Request | None]:
        """Admits waiting requests until tokens, blocks or places run out.

        The first that does not fit ends it: were others let past, a long prompt might never run.
        Returns what ended it, with that request if one was tried.
        """
        candidates = AdmissionRound(self._waiting, self._probe)
        while len(self._running) < self._max_running:
            if plan.tokens_left <= reserved:
                return WaitReason.TOKEN_BUDGET, None
            request = candidates.next()
            if request is None:
                return WaitReason.PREFIX_IN_PROGRESS, None
            probe = self._probe(request)
            if self._kv.num_new_blocks(request, probe) > self._kv.num_free_blocks:
                return WaitReason.NO_FREE_BLOCKS, request
            cached = probe.num_cached_blocks * self._kv.block_size
            num_tokens = request.num_tokens - cached
            if num_tokens > plan.tokens_left - reserved:
                if not self._config.enable_chunked_prefill:
                    return WaitReason.TOKEN_BUDGET, request
                num_tokens = plan.tokens_left - reserved
            self._start(plan, request, now)
            self._plan_chunk(plan, request, num_tokens)
        return WaitReason.BATCH_FULL, None

    def _start(self, plan: StepPlan, request: Request, now: float) -> None:
        self._waiting.admit(request)
        block_ids = self._kv.admit(request, use_cache=self._config.enable_prefix_caching)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = len(block_ids) * self._kv.block_size
        self._running[request.key] = request
        if request.first_scheduled_at is None:
            request.first_scheduled_at = now
            request.waited_for = self.waits.main_reason(request, now)
            request.num_cached_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
            plan.admitted.append(AdmittedRequest(request.key, request.num_cached_tokens))
        plan.joined.append(
            NewRequest(
                key=request.key,
                choice=request.choice,
                prompt_token_ids=request.prompt_token_ids,
                output_token_ids=tuple(request.output_token_ids),
                sampling=request.sampling,
                block_ids=block_ids,
                adapter_slot=request.adapter_slot,
            )
        )

    def _probe(self, request: Request) -> PrefixProbe:
        return self._kv.probe(request) if self._config.enable_prefix_caching else _NO_CACHE
