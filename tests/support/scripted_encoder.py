"""An encoder whose results are plain to see and whose steps a test can hold up or make fail."""

from __future__ import annotations

import threading

import numpy as np

from kernels.encoder import EncoderInputs


class ScriptedEncoder:
    """Gives [sum of the token ids, tokens, tokens of type 1] for each input.

    While it is held, a step waits for `release`; a step with the token `POISON` fails, and an input
    with `NAN` gives what is not finite.
    """

    POISON = 13
    NAN = 14
    weight_bytes = 0

    def __init__(self) -> None:
        self.steps: list[list[list[int]]] = []  # token ids of the inputs of each step
        self.entered = threading.Semaphore(0)  # one for each step that has begun
        self._go = threading.Event()
        self._go.set()

    def hold(self) -> None:
        """Has steps wait from now on."""
        self._go.clear()

    def release(self) -> None:
        """Lets them go on."""
        self._go.set()

    def encode(self, inputs: EncoderInputs) -> np.ndarray:
        """One step."""
        bounds = inputs.input_starts[1:-1]
        parts = np.split(inputs.token_ids, bounds)
        self.steps.append([part.tolist() for part in parts])
        self.entered.release()
        self._go.wait()
        if self.POISON in inputs.token_ids:
            raise RuntimeError("this step is to fail")
        types = np.split(inputs.token_types, bounds)
        rows = [
            (np.nan if self.NAN in part else part.sum(), len(part), kinds.sum())
            for part, kinds in zip(parts, types, strict=True)
        ]
        return np.array(rows, dtype=np.float32)
