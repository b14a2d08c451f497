"""Octavo's contracts, and the offline API: `from octavo import LLM, SamplingParams`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router_svc.offline import (
        LLM,
        LoRARequest,
        RequestOutput,
        SamplingParams,
        StructuredOutputsParams,
    )

__all__ = ["LLM", "LoRARequest", "RequestOutput", "SamplingParams", "StructuredOutputsParams"]


def __getattr__(name: str) -> object:
    # The contracts must stay importable without the router (PEP 562: only these names load it).
    if name in __all__:
        return getattr(import_module("router_svc.offline"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
