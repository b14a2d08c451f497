"""The real engine process over a decoder that only takes time: what is left is the serving path.

    python -m tests.support.paced_engine STEPS_FILE MODEL … (further arguments as of engine_svc)

Every step sleeps as long as one of a small model on two cores would take, without using them, and
picks tokens of an English text. STEPS_FILE is shared memory for whoever measures: see `StepLog`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine_svc.__main__ import main
from engine_svc.planning import decoder
from kernels.backend import MemoryNeeds, StepInputs, StepResult
from kernels.lora import LoraAdapter
from router_svc.text.tokenizer import Tokenizer
from tests.support.marked_adapter import MarkedAdapter, mark

STEP_SECONDS = 0.004
TOKEN_SECONDS = 0.0004
_MAX_LOGITS = 512
_TEXT = (
    "An octavo is a sheet folded into sixteen pages, about as large as a hand; printers of the "
    "sixteenth century made whole libraries that a traveller could carry. The text of a page was "
    "set letter by letter, proved, corrected, and set again: nothing was printed twice the same."
)


class StepLog:
    """When each step ended (time.monotonic) and how many tokens it brought, in shared memory."""

    _CAPACITY = 1 << 20

    def __init__(self, path: Path, *, create: bool) -> None:
        mode = "w+" if create else "r+"
        shape = (self._CAPACITY, 2)
        rows = np.memmap(path, dtype=np.float64, mode=mode, shape=shape)  # zeros: not yet
        self._rows = np.asarray(rows)  # a memmap's own methods are slow
        self._num_steps = 0

    def add(self, num_tokens: int) -> None:
        """A step has ended."""
        self._rows[self._num_steps] = time.monotonic(), num_tokens
        self._num_steps += 1

    def between(self, begin: float, end: float) -> npt.NDArray[np.float64]:
        """The steps that ended in [begin, end): [num_steps, 2], time and tokens."""
        times = self._rows[:, 0]
        known = times[: int(np.argmin(times > 0))]
        first, last = np.searchsorted(known, [begin, end])
        return np.array(self._rows[first:last])


class PacedDecoder:
    """Takes its time and picks the next token of the text."""

    weight_bytes = 0

    def __init__(self, text: npt.NDArray[np.int32], vocab_size: int, log: StepLog) -> None:
        self._text = text
        self._logits = np.zeros((_MAX_LOGITS, vocab_size), dtype=np.float32)
        self._log = log

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """There is none."""

    def pack_adapter(self, adapter: LoraAdapter) -> MarkedAdapter:
        """Its mark, which changes nothing."""
        return mark(adapter)

    def set_adapter(self, slot: int, adapter: MarkedAdapter | None) -> None:
        """Nothing depends on it."""

    def step(self, inputs: StepInputs) -> StepResult:
        """Sleeps; logits are all the same."""
        time.sleep(STEP_SECONDS + TOKEN_SECONDS * len(inputs.token_ids))
        at = inputs.positions[inputs.picks.rows] % len(self._text)
        self._log.add(len(at))
        return StepResult(self._text[at], self._logits[: len(inputs.logits_rows)])


class PacedBackend:
    """Loads nothing."""

    name = "paced"
    description = "nothing: steps only take their time"

    def __init__(self, text: npt.NDArray[np.int32], log: StepLog) -> None:
        self._text = text
        self._log = log

    def plan(self, *_: object, **__: object) -> MemoryNeeds:
        """As good as nothing."""
        return MemoryNeeds(weights=0, activations=0, kv_per_block=1024)

    def load(self, spec, *_: object) -> PacedDecoder:
        """No weight is read."""
        return PacedDecoder(self._text, spec.vocab_size, self._log)


if __name__ == "__main__":
    steps_file, model, *rest = sys.argv[1:]
    tokenizer = Tokenizer.load(Path(model))
    ids = tokenizer.encode(_TEXT, add_special_tokens=False, parse_special=False)
    backend = PacedBackend(np.array(ids, dtype=np.int32), StepLog(Path(steps_file), create=True))
    decoder.choose_backend = lambda *_, **__: (backend, None)
    main([model, *rest])
