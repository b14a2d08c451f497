"""The real engine process, with its real kernels, whose steps wait until the test lets them pass.

    python -m tests.support.gated_engine GATE_FILE MODEL … (further arguments as of engine_svc)

So an answer that a test interrupts is under way still, however long the test takes to do so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine_svc.__main__ import main
from kernels.backend import StepInputs, StepResult
from kernels.cpu.decoder import CpuDecoder
from tests.support.held_engine import Gate

if __name__ == "__main__":
    gate_file, model, *rest = sys.argv[1:]
    gate = Gate(Path(gate_file), create=False)
    compute = CpuDecoder.step

    def step(decoder: CpuDecoder, inputs: StepInputs) -> StepResult:
        """Waits for its turn."""
        gate.enter()
        return compute(decoder, inputs)

    CpuDecoder.step = step  # type: ignore[method-assign] # of this process alone
    main([model, *rest])
