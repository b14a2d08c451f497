"""A `PagedDecoder` as a device would be: it computes by itself, and as late as it may.

A step is computed when somebody waits for its results, with all that were begun before it and no
other. So whatever the engine did since the step was begun has been done by then: it planned the
next one, gave blocks away, filled its arrays again.
"""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np

from kernels.backend import AsyncDecoder, PickInputs, StepInputs, StepResult
from tests.support.marked_adapter import MarkedAdapter
from tests.support.paged_decoder import PagedDecoder


class AsyncPagedDecoder(PagedDecoder, AsyncDecoder):
    """Implements `AsyncDecoder`, and holds its caller to the contract."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.num_ahead = 0  # steps begun while the results of another were not known
        self.broken: set[int] = set()  # numbers of steps that fail, counted from 0
        self.refused: set[int] = set()  # and of those that cannot be begun
        self._handles: list[weakref.ref[_Begun]] = []  # of the last two steps
        self._begun: list[StepInputs] = []
        self._results: list[StepResult] = []
        self._picked = np.empty(0, dtype=np.int32)  # by the last step that was computed

    def begin(self, inputs: StepInputs) -> _Begun:
        """Takes a copy of the inputs."""
        held = [handle() for handle in self._handles]
        waiting = [handle for handle in held if handle is not None and not handle.told]
        assert len(waiting) < 2, "three steps in flight"
        assert not any(handle.has_logits for handle in waiting), "logits were not fetched"
        self.num_ahead += bool(waiting)
        number = len(self._begun)
        self._begun.append(_copied(inputs))
        if number in self.refused:
            raise OSError("the device takes no step")
        begun = _Begun(self, number, has_logits=len(inputs.logits_rows) > 0)
        self._handles = [*self._handles[-1:], weakref.ref(begun)]
        return begun

    def set_adapter(self, slot: int, adapter: MarkedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it, between steps."""
        assert len(self._results) == len(self._begun), "a step is being computed"
        super().set_adapter(slot, adapter)

    def result(self, number: int) -> StepResult:
        """Computes what was begun, up to a step, whose results it returns."""
        while len(self._results) <= number:
            inputs = self._begun[len(self._results)]
            picked = inputs.picked
            if picked is not None:
                tokens = inputs.token_ids
                tokens[picked >= 0] = np.maximum(self._picked[picked[picked >= 0]], 0)
            self._results.append(self.step(inputs))
            self._picked = self._results[-1].token_ids
        if number in self.broken:
            raise OSError("the device is lost")
        return self._results[number]


class _Begun:
    """Implements `BegunStep`."""

    def __init__(self, decoder: AsyncPagedDecoder, number: int, *, has_logits: bool) -> None:
        self.told = False
        self.has_logits = has_logits
        self._decoder = decoder
        self._number = number

    def result(self) -> StepResult:
        assert not self.told, "results are asked for once"
        self.told = True
        return self._decoder.result(self._number)


def _copied(inputs: StepInputs) -> StepInputs:
    picks = inputs.picks
    return dataclasses.replace(
        inputs, **_copies(inputs), picks=dataclasses.replace(picks, **_copies(picks))
    )


def _copies(arrays: StepInputs | PickInputs) -> dict[str, np.ndarray]:
    values = {field.name: getattr(arrays, field.name) for field in dataclasses.fields(arrays)}
    return {name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)}
