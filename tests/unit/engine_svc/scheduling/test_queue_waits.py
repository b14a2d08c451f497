"""What choices wait for: the scheduler's own steps under a clock that the test moves."""

import pytest

from engine_svc.batch import SampledToken, SampledTokens
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.queue_waits import WaitReason
from engine_svc.scheduling.request import Request
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig


class Steps:
    """A scheduler whose steps take a second each."""

    def __init__(self, *, num_blocks=64, **config):
        self.now = 100.0
        limits = {
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "max_model_len": 64,
            "max_num_queued_reqs": 64,
            "max_num_queued_tokens": 1 << 20,
        }
        kv = KVCacheManager(num_blocks, 16)
        self.scheduler = Scheduler(SchedulerConfig(**limits | config), kv, lambda: self.now)
        self.num_requests = 0

    def arrive(self, first_token, num_tokens=4, priority=0):
        """A request whose prompt nobody shares, unless its first token is the same."""
        self.num_requests += 1
        prompt = (first_token,) * num_tokens
        sampling = SamplingParams(max_tokens=32)
        request = Request(
            self.num_requests, "r", 0, prompt, sampling, arrival=self.now, priority=priority
        )
        self.scheduler.add(request)
        return request

    def step(self, seconds=1.0):
        """One step."""
        batch = self.scheduler.schedule()
        self.now += seconds
        tokens = [SampledToken(chunk.key, 7, None) for chunk in batch.chunks if chunk.samples]
        self.scheduler.update(batch, SampledTokens(tuple(tokens)), seconds)

    def waited(self):
        """Seconds by reason, of those that are not 0."""
        pairs = zip(WaitReason, self.scheduler.queue_wait_seconds, strict=True)
        return {str(reason): pytest.approx(seconds) for reason, seconds in pairs if seconds}


def test_who_is_admitted_at_once_waits_for_nothing():
    steps = Steps()
    steps.arrive(1)

    steps.step()
    steps.step()

    assert steps.waited() == {}


def test_who_comes_during_a_step_waits_for_its_end():
    steps = Steps()
    steps.arrive(1)
    steps.step(seconds=0.0)
    steps.arrive(2)
    steps.now += 0.75

    steps.step()

    assert steps.waited() == {"step": 0.75}


def test_two_wait_for_a_place_twice_as_long_together():
    steps = Steps(max_num_seqs=1)
    for first_token in (1, 2, 3):
        steps.arrive(first_token)

    steps.step()
    steps.step()
    steps.step()  # accounts for the two steps before it

    assert steps.waited() == {"batch_full": 4.0}


def test_a_prompt_waits_for_blocks():
    steps = Steps(num_blocks=4)
    steps.arrive(1, num_tokens=40)
    steps.arrive(2, num_tokens=40)

    steps.step()
    steps.step()

    assert steps.waited() == {"no_free_blocks": 1.0}


def test_a_prompt_waits_for_a_steps_tokens():
    steps = Steps(max_num_batched_tokens=16)
    steps.arrive(1, num_tokens=40)
    steps.arrive(2)

    steps.step()
    steps.step()

    assert steps.waited() == {"token_budget": 1.0}


def test_a_prompt_waits_for_the_prefix_that_another_computes():
    steps = Steps()
    steps.arrive(1, num_tokens=40)
    steps.arrive(1, num_tokens=40)

    steps.step()
    steps.step()

    assert steps.waited() == {"prefix_in_progress": 1.0}


def test_who_is_overtaken_by_priority_waits_for_its_turn():
    steps = Steps(max_num_seqs=1)
    steps.arrive(1)
    steps.step(seconds=0.0)
    steps.arrive(2, priority=5)
    steps.arrive(3, priority=0)

    steps.step()
    steps.step()

    assert steps.waited() == {"batch_full": 1.0, "turn": 1.0}


def test_nobody_waits_while_nothing_is_alive():
    steps = Steps(max_num_seqs=1)
    steps.arrive(1)
    steps.arrive(2)
    steps.step()
    steps.scheduler.cancel(1)
    steps.scheduler.cancel(2)
    steps.now += 3600.0
    steps.arrive(3)

    steps.step()

    assert steps.waited() == {}


def test_a_request_knows_what_it_waited_for_most():
    steps = Steps(max_num_seqs=1)
    first = steps.arrive(1)
    steps.step(seconds=0.0)
    second = steps.arrive(2)
    steps.now += 0.25
    steps.step(seconds=2.0)
    steps.scheduler.cancel(first.key)
    steps.step()

    assert (first.waited_for, second.waited_for) == ("step", "batch_full")


def test_so_does_one_that_gives_up():
    steps = Steps(num_blocks=4)
    steps.arrive(1, num_tokens=40)
    second = steps.arrive(2, num_tokens=40)
    steps.step()
    steps.step()

    steps.scheduler.cancel(second.key)

    assert second.waited_for == "no_free_blocks"
