"""How near a result must be to its reference, by the type that it was computed in."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tests.gpu_check.outcome import Findings

# (relative, absolute), for results of about one. float32 must be that: TF32 would be 1e-3 away.
TOLERANCES = {
    torch.float32: (1e-5, 2e-5),
    torch.float16: (2**-9, 2e-3),
    torch.bfloat16: (2**-6, 1.6e-2),
}


def name_of(dtype: torch.dtype) -> str:
    """Without torch's prefix."""
    return str(dtype).removeprefix("torch.")


@dataclass
class Comparison:
    """Compares results one after another, and keeps the worst.

    A case that is off does not hide the others: `findings` raises AssertionError for all of them.
    """

    dtype: torch.dtype
    worst: float = 0.0
    cases: int = 0
    wrong: list[str] = field(default_factory=list)

    def near(self, case: str, result: torch.Tensor, expected: torch.Tensor) -> None:
        """Notes whether a result is within the type's tolerance."""
        relative, absolute = TOLERANCES[self.dtype]
        result, expected = result.detach().cpu().double(), expected.detach().cpu().double()
        room = absolute + relative * expected.abs()
        share = float(((result - expected).abs() / room).nan_to_num(torch.inf).max())
        self.cases += 1
        self.worst = max(self.worst, share)
        if share > 1:
            off = float((result - expected).abs().max())
            self.wrong.append(f"{case} is off by {off:.2g}, {share:.1f} times the tolerance")

    def equal(self, case: str, result: torch.Tensor, expected: torch.Tensor) -> None:
        """Notes whether a result has the bits that are expected."""
        self.cases += 1
        result, expected = result.detach().cpu(), expected.detach().cpu()
        if not torch.equal(result, expected):
            unequal = int((result != expected).sum())
            self.wrong.append(f"{case}: {unequal} of {expected.numel()} values differ")

    def findings(self, note: str = "") -> Findings:
        """The cases, if all are right."""
        if self.wrong:
            more = f" (and {len(self.wrong) - 3} more)" if len(self.wrong) > 3 else ""
            raise AssertionError("; ".join(self.wrong[:3]) + more)
        told = f"{self.cases} cases"
        if self.worst:
            told += f", at most {self.worst:.0%} of the tolerance"
        return Findings(f"{told}; {note}" if note else told)
