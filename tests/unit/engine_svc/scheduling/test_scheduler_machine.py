"""Anything that may happen to a scheduler, in any order, with a pool so small that it hurts.

After each rule the books balance. At the end everything drains, nothing is in use, and each request
has exactly the tokens that it would have had alone.
"""

from functools import cache

from fake_worker import BLOCK, EOS, Engine, echo
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine_svc.scheduling.request import FinishReason, RequestStatus
from engine_svc.scheduling.scheduler import QueueFull
from engine_svc.speculation.config import SpeculationConfig

MAX_LEN = 8 * BLOCK
# Few distinct prefixes, so that requests share them often.
PREFIXES = [(), (1,) * BLOCK, (1,) * (3 * BLOCK), (1, 2, 3, 4, 5, 6, 7, 8, 9), (2,) * (2 * BLOCK)]
prompts = st.builds(
    lambda prefix, tail: (*prefix, *tail),
    st.sampled_from(PREFIXES),
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
)


@cache
def solo(pattern, prompt, choice, max_tokens, min_tokens, eos):
    """What the request generates alone, in a big pool, unchunked, uncached and unguessed."""
    engine = Engine(
        num_blocks=64,
        model=echo(pattern),
        max_num_seqs=1,
        max_model_len=MAX_LEN,
        max_num_batched_tokens=MAX_LEN,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
    )
    request = engine.add(
        prompt, choice=choice, max_tokens=max_tokens, min_tokens=min_tokens, eos_token_ids=eos
    )
    engine.run()
    return tuple(request.output_token_ids), request.finish_reason


class SchedulerMachine(RuleBasedStateMachine):
    """Clients, operators, time and faults against one scheduler."""

    make_engine = Engine

    @initialize(
        spare_blocks=st.integers(0, 4),
        max_num_seqs=st.integers(1, 5),
        max_num_batched_tokens=st.sampled_from([1, 3, 8, MAX_LEN]),
        caching=st.booleans(),
        chunked=st.booleans(),
        pattern=st.lists(st.booleans(), min_size=1, max_size=9).map(tuple),
        num_guesses=st.sampled_from([0, 1, 3, 7]),
    )
    def start(
        self,
        spare_blocks,
        max_num_seqs,
        max_num_batched_tokens,
        caching,
        chunked,
        pattern,
        num_guesses,
    ):
        self.pattern = pattern
        self.engine = self.make_engine(
            num_blocks=MAX_LEN // BLOCK + spare_blocks,
            model=echo(pattern),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens if chunked else MAX_LEN,
            max_model_len=MAX_LEN,
            max_num_queued_reqs=12,
            max_num_queued_tokens=10 * MAX_LEN,
            enable_prefix_caching=caching,
            enable_chunked_prefill=chunked,
            speculation=SpeculationConfig(num_guesses, 3, 1) if num_guesses else None,
        )
        self.requests = []
        self.told = {}  # key → tokens, as the outputs told them
        self.scored = {}  # key → prompt positions told
        self.ended = {}  # key → reason, as the outputs told it

    @rule(
        prompt=prompts,
        n=st.sampled_from([1, 1, 1, 2, 5]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        max_tokens=st.integers(1, 24),
        min_tokens=st.sampled_from([0, 0, 3]),
        stops=st.booleans(),
        resume=st.integers(0, 6),
        patience=st.sampled_from([None, None, 1.0, 5.0]),
        score_from=st.sampled_from([None, None, None, 0, 4, 6]),
    )
    def submit(
        self, prompt, n, priority, max_tokens, min_tokens, stops, resume, patience, score_from
    ):
        eos = frozenset({EOS}) if stops else frozenset()
        min_tokens = min(min_tokens, max_tokens)
        group = []
        for choice in range(n):
            whole, _ = solo(self.pattern, prompt, choice, max_tokens, min_tokens, eos)
            request = self.engine.request(
                prompt,
                choice=choice,
                priority=priority,
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                eos_token_ids=eos,
                resumed=whole[:resume],
                deadline=None if patience is None else self.engine.now + patience,
                prompt_logprobs=None if score_from is None else 0,
                prompt_logprobs_from=score_from or 0,
            )
            group.append(request)
        waiting = self.engine.scheduler.num_waiting
        try:
            finished = self.engine.scheduler.add_group(group)
        except QueueFull:
            assert self.engine.scheduler.num_waiting == waiting > 0
            return
        self.requests += group
        for request in group:
            self.told[request.key] = list(request.output_token_ids)
            self.scored[request.key] = []
        self.ended |= {event.key: event.reason for event in finished}

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.5]))
    def step(self, seconds):
        had_work = self.engine.scheduler.has_work
        outputs = self.engine.step(seconds)
        assert (outputs is not None) == had_work
        if outputs is not None:
            self._take(outputs)

    @rule(number=st.integers(2, 12))
    def steps(self, number):
        for _ in range(number):
            self.step(0.01)

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def cancel(self, data):
        live = [r for r in self.requests if r.status is not RequestStatus.FINISHED]
        request = data.draw(st.sampled_from(live))
        assert self.engine.scheduler.cancel(request.key)
        self.ended[request.key] = FinishReason.CANCELLED

    @precondition(lambda self: self.engine.scheduler.num_running)
    @rule(data=st.data())
    def fail(self, data):
        running = [r for r in self.requests if r.status is RequestStatus.RUNNING]
        request = data.draw(st.sampled_from(running))
        self.engine.worker.failing.add(request.key)
        self.step(0.01)

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def cancel_during_a_step(self, data):
        batch = self.engine.scheduler.schedule()
        sampled = self.engine.worker.execute(batch)
        self.cancel(data)
        self.engine.scheduler.check_integrity()
        self._take(self.engine.scheduler.update(batch, sampled, 0.01))

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def let_time_pass(self, seconds):
        self.engine.now += seconds
        for request in self.engine.scheduler.expire(self.engine.now):
            assert request.deadline <= self.engine.now
            self.ended[request.key] = FinishReason.EXPIRED

    @rule()
    def flush_cache(self):
        self.engine.scheduler.flush_cache()

    @invariant()
    def books_balance(self):
        scheduler, kv = self.engine.scheduler, self.engine.kv
        scheduler.check_integrity()
        live = [r for r in self.requests if r.status is not RequestStatus.FINISHED]
        assert scheduler.num_running + scheduler.num_waiting == len(live)
        assert scheduler.num_running == sum(r.status is RequestStatus.RUNNING for r in live)
        assert all(r.deadline is None or r.deadline > self.engine.now for r in live)
        if not scheduler.num_running:
            assert kv.num_free_blocks == kv.num_blocks

    def teardown(self):
        if not hasattr(self, "engine"):  # a run may end before `start`
            return
        for _ in range(5_000):
            outputs = self.engine.step(0.01)
            if outputs is None:
                break
            self._take(outputs)
        scheduler, kv = self.engine.scheduler, self.engine.kv
        assert not scheduler.has_work
        assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)
        assert scheduler.num_uncomputed_tokens == 0
        assert kv.num_free_blocks == kv.num_blocks
        for request in self.requests:
            self._check_answer(request)

    def _take(self, outputs):
        for event in outputs.tokens:
            assert event.position == len(self.told[event.key])
            self.told[event.key].append(event.token_id)
        for part in outputs.prompt_logprobs:
            positions = range(part.first_position, part.first_position + len(part.entries))
            self.scored[part.key] += positions
        for event in (*outputs.finished, *outputs.failed):
            assert event.key not in self.ended
            self.ended[event.key] = getattr(event, "reason", FinishReason.FAILED)

    def _check_answer(self, request):
        params = request.sampling
        whole, reason = solo(
            self.pattern,
            request.prompt_token_ids,
            request.choice,
            params.max_tokens,
            params.min_tokens,
            params.eos_token_ids,
        )
        told = tuple(self.told[request.key])
        assert self.ended[request.key] is request.finish_reason
        if request.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert request.finish_reason is reason
            assert told == whole
            if params.prompt_logprobs is not None and not request.num_resumed:
                asked = range(params.prompt_logprobs_from, request.num_prompt_tokens)
                assert self.scored[request.key] == list(asked)
        else:
            assert told == whole[: len(told)]


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40)
