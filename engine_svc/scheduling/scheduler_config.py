"""The scheduler's limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_svc.speculation.config import SpeculationConfig


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits. Raises ValueError that names the field and the numbers."""

    max_num_seqs: int  # requests that run together
    max_num_batched_tokens: int  # tokens of one step
    max_model_len: int  # tokens of prompt and output together
    max_num_queued_reqs: int
    max_num_queued_tokens: int
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True  # if not, a prompt is computed in one step
    fair_share: bool = True  # turns between tenants, by tokens
    target_step_seconds: float = 0.1  # for steps in which somebody streams
    speculation: SpeculationConfig | None = None

    def __post_init__(self) -> None:
        """Checks the fields."""
        positive = {
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "max_num_queued_reqs": self.max_num_queued_reqs,
            "max_num_queued_tokens": self.max_num_queued_tokens,
        }
        for name, value in positive.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.target_step_seconds <= 0:
            raise ValueError(f"target_step_seconds must be above 0, got {self.target_step_seconds}")
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                "without chunked prefill, max_num_batched_tokens must be at least max_model_len "
                f"({self.max_model_len}), got {self.max_num_batched_tokens}"
            )
