"""Rank 0's executor: who is told that a rank is lost; and ranks end once, whoever ends them."""

from __future__ import annotations

import pytest

from engine_svc.batch import ScheduledBatch
from engine_svc.parallel.step_wire import STOP
from engine_svc.worker.executor import LocalExecutor, WorkerLostError
from engine_svc.worker.executor_ahead import DispatchingExecutor
from engine_svc.worker.tensor_parallel import TensorParallelAheadExecutor, TensorParallelExecutor

STEP = ScheduledBatch(0, (), (), ())


class Ranks:
    """Notes what rank 0 has them do; `lose` is what a lost rank calls."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.left = self.closed = 0

    def watch(self, on_lost) -> None:
        self.lose = on_lost

    def tell(self, numbers) -> None:
        self.told.append(int(numbers[0]))

    def leave(self) -> None:
        self.left += 1

    def close(self) -> None:
        self.closed += 1


class Processes:
    """Children of which one was killed."""

    def __init__(self) -> None:
        self.killed = 0

    def ended(self, patience: float) -> str:
        return "rank 1 (process 7) was killed by SIGKILL"

    def fate(self, rank: int, patience: float) -> str:
        return f"rank {rank} is silent"

    def wait(self, seconds: float) -> bool:
        return True

    def kill(self) -> None:
        self.killed += 1


class Runner:
    """Its steps fail, as those do that a rank takes no part in."""

    def execute(self, batch: ScheduledBatch) -> None:
        raise WorkerLostError("Connection closed by peer")


class Ahead(DispatchingExecutor):
    """Begins steps, whose results fail; or none, where it is `broken`."""

    broken = False

    def submit(self, batch: ScheduledBatch) -> None:
        raise WorkerLostError("Connection closed by peer")

    def dispatch(self, batch: ScheduledBatch) -> Ahead:
        if self.broken:
            raise WorkerLostError("Connection closed by peer")
        return self

    def result(self) -> None:
        raise WorkerLostError("Connection reset by peer")

    def set_adapter(self, slot, adapter) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Has nothing to let go."""


@pytest.fixture
def parts():
    return LocalExecutor(Runner()), Ranks(), Processes()


def test_a_rank_lost_between_steps_is_told_and_the_others_are_killed(parts) -> None:
    _, ranks, processes = parts
    told: list[str] = []
    executor = TensorParallelExecutor(*parts)
    executor.watch(told.append)

    ranks.lose(2)

    assert told == ["rank 2 is silent"]
    assert (ranks.left, processes.killed) == (1, 1)


def test_a_step_that_fails_says_which_rank_ended_rather_than_that_a_socket_closed(parts) -> None:
    with pytest.raises(WorkerLostError, match=r"rank 1 \(process 7\) was killed by SIGKILL"):
        TensorParallelExecutor(*parts).submit(STEP)


@pytest.mark.parametrize("broken", [False, True])
def test_a_step_ahead_says_so_where_it_is_begun_or_waited_for(parts, broken: bool) -> None:
    worker = Ahead()
    worker.broken = broken
    _, ranks, processes = parts
    executor = TensorParallelAheadExecutor(worker, ranks, processes)

    with pytest.raises(WorkerLostError, match=r"rank 1 \(process 7\) was killed by SIGKILL"):
        executor.dispatch(STEP).result()

    assert (ranks.left, processes.killed) == (1, 1)


def test_a_loss_is_one_whether_a_step_or_the_watch_sees_it_first(parts) -> None:
    _, ranks, processes = parts
    told: list[str] = []
    executor = TensorParallelExecutor(*parts)
    executor.watch(told.append)

    with pytest.raises(WorkerLostError):
        executor.submit(STEP)
    ranks.lose(1)
    executor.close()

    assert told == ["rank 1 (process 7) was killed by SIGKILL"]
    assert processes.killed == 1
    assert ranks.told == []  # nobody is left to be told


def test_an_end_that_is_meant_stops_the_ranks_and_is_no_loss(parts) -> None:
    _, ranks, _ = parts
    told: list[str] = []
    executor = TensorParallelExecutor(*parts)
    executor.watch(told.append)

    executor.close()
    executor.close()
    ranks.lose(1)

    assert ranks.told == [STOP]
    assert (ranks.closed, told) == (1, [])
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(STEP)
