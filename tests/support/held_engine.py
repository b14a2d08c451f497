"""The real engine process over a decoder that takes a step only when the test lets it.

    python -m tests.support.held_engine GATE_FILE MODEL … (further arguments as of engine_svc)

So a test knows which token a client cannot have yet, without any clock: it lets one step pass, and
the client must see its token before the next may.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine_svc.__main__ import main
from engine_svc.planning import decoder
from engine_svc.service.async_engine import AsyncEngine
from engine_svc.service.live_request import LiveRequest
from kernels.backend import MemoryNeeds, StepInputs, StepResult
from kernels.lora import LoraAdapter
from router_svc.text.tokenizer import Tokenizer
from tests.support.marked_adapter import MarkedAdapter, mark

_POLL_SECONDS = 0.001
_TEXT = "An octavo is a sheet folded into sixteen pages. "
_EVER = np.iinfo(np.int64).max


class Gate:
    """How many steps may pass, how many have, and how many requests have come.

    They are in memory that test and engine share.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        mode = "w+" if create else "r+"
        self._counts = np.memmap(path, dtype=np.int64, mode=mode, shape=(3,))

    def open(self) -> None:
        """Lets all steps pass."""
        self._counts[0] = _EVER

    def hold(self) -> None:
        """Lets none pass from now on, but for one that may be under way."""
        self._counts[0] = self._counts[1]

    def let_pass(self, steps: int = 1) -> None:
        """Lets so many more steps pass."""
        self._counts[0] += steps

    @property
    def num_requests(self) -> int:
        """Requests that the engine has got so far, though none of their steps may have passed."""
        return int(self._counts[2])

    def count_request(self) -> None:
        """One more has come."""
        self._counts[2] += 1

    @property
    def is_spent(self) -> bool:
        """Whether all steps that may pass have."""
        return bool(self._counts[1] >= self._counts[0])

    def enter(self) -> None:
        """Takes a step; waits until that is allowed."""
        while self.is_spent:
            time.sleep(_POLL_SECONDS)
        self._counts[1] += 1


class HeldDecoder:
    """Picks the next token of a text at every step that may pass; logits are all the same."""

    weight_bytes = 0

    def __init__(self, text: npt.NDArray[np.int32], vocab_size: int, gate: Gate) -> None:
        self._text = text
        self._vocab_size = vocab_size
        self._gate = gate

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """There is none."""

    def pack_adapter(self, adapter: LoraAdapter) -> MarkedAdapter:
        """Its mark, which changes nothing."""
        return mark(adapter)

    def set_adapter(self, slot: int, adapter: MarkedAdapter | None) -> None:
        """Nothing depends on it."""

    def step(self, inputs: StepInputs) -> StepResult:
        """Waits for its turn."""
        self._gate.enter()
        time.sleep(_POLL_SECONDS)  # an open gate is no reason to take all of a core
        at = inputs.positions[inputs.picks.rows] % len(self._text)
        logits = np.zeros((len(inputs.logits_rows), self._vocab_size), dtype=np.float32)
        return StepResult(self._text[at], logits)


class HeldBackend:
    """Loads nothing."""

    name = "held"
    description = "nothing: steps wait until they may pass"

    def __init__(self, text: npt.NDArray[np.int32], gate: Gate) -> None:
        self._text = text
        self._gate = gate

    def plan(self, *_: object, **__: object) -> MemoryNeeds:
        """As good as nothing."""
        return MemoryNeeds(weights=0, activations=0, kv_per_block=1024)

    def load(self, spec, *_: object) -> HeldDecoder:
        """No weight is read."""
        return HeldDecoder(self._text, spec.vocab_size, self._gate)


if __name__ == "__main__":
    gate_file, model, *rest = sys.argv[1:]
    tokenizer = Tokenizer.load(Path(model))
    ids = tokenizer.encode(_TEXT, add_special_tokens=False, parse_special=False)
    gate = Gate(Path(gate_file), create=False)
    backend = HeldBackend(np.array(ids, dtype=np.int32), gate)
    decoder.choose_backend = lambda *_, **__: (backend, None)
    submit = AsyncEngine.submit

    def counted(engine: AsyncEngine, *request: Any) -> LiveRequest:
        """Submits it, then tells."""
        live = submit(engine, *request)
        gate.count_request()
        return live

    AsyncEngine.submit = counted  # type: ignore[method-assign] # of this process alone
    main([model, *rest])
