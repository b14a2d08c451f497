"""The machine of test_scheduler_machine, with a step in flight whenever anything happens.

What must hold is the same: the books, and that each request has the tokens it would have alone.
"""

from fake_worker import EngineAhead
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from test_scheduler_machine import SchedulerMachine


class MachineAhead(SchedulerMachine):
    """Everything comes while the worker has a step that nobody knows the results of."""

    make_engine = EngineAhead

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.5]))
    def step(self, seconds):
        had_work = self.engine.scheduler.has_work or bool(self.engine.in_flight)
        outputs = self.engine.step(seconds)
        assert (outputs is not None) == had_work
        if outputs is not None:
            self._take(outputs)

    @precondition(lambda self: self.engine.scheduler.has_work)
    @rule(data=st.data())
    def cancel_during_a_step(self, data):
        """Between the plan of a step ahead and the results of the one before."""
        self.engine.plan()
        self.cancel(data)
        if self.engine.in_flight:
            self._take(self.engine.collect())


TestMachineAhead = MachineAhead.TestCase
TestMachineAhead.settings = settings(max_examples=60, stateful_step_count=40)
