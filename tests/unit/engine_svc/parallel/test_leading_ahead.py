"""Rank 0 makes the calls of the others in their order, also for steps that nobody asks for."""

from __future__ import annotations

import numpy as np
import pytest

from engine_svc.parallel.leader import LeadingAsyncDecoder
from kernels.backend import StepInputs
from tests.support.picks import picks_of


class Own:
    """Notes when a step is begun, and when its logits are gathered."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self, inputs: StepInputs) -> Own:
        self.calls.append("layers")
        return self

    def result(self) -> None:
        self.calls.append("logits")


class Ranks:
    """Hears of steps."""

    def tell(self, numbers: np.ndarray) -> None:
        """Does nothing with it."""


def step(*logits_rows: int) -> StepInputs:
    one = np.ones(1, np.int32)
    return StepInputs(
        token_ids=one,
        positions=one,
        slot_mapping=one,
        query_start_loc=np.array([0, 1], np.int32),
        seq_lens=one,
        block_tables=one[:, None],
        picks=picks_of([]),
        logits_rows=np.array(logits_rows, np.int32),
    )


@pytest.mark.parametrize("asks", [True, False])
def test_logits_are_gathered_once_and_before_the_next_step(asks: bool) -> None:
    own = Own()
    leader = LeadingAsyncDecoder(own, own, Ranks())

    begun = leader.begin(step(0))
    if asks:
        begun.result()
    leader.begin(step())
    leader.begin(step())

    assert own.calls == ["layers", "logits", "layers", "layers"]
