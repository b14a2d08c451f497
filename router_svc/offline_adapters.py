"""LoRA adapters of the offline API, which loads them when a call first names them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.flags import engine_args

from router_svc.fleet import adapter_updates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router_svc.fleet.fleet import Fleet
    from router_svc.generation_types import Adapter

_LOAD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """An adapter that a call's answers are made with, as vLLM's users write it.

    Without a path it is one of `lora_modules`. The number means nothing here: names tell apart.
    """

    lora_name: str
    lora_int_id: int = 0
    lora_path: str = ""

    @property
    def source(self) -> str:
        """The path as the engine takes it, which may run elsewhere."""
        return str(Path(self.lora_path).resolve()) if self.lora_path else ""


def own_engine_args(flags: Mapping[str, Any]) -> list[str]:
    """Arguments of an engine that is the caller's own: calls may name adapters by any path."""
    anywhere = {"lora_dir": "/"} if flags.get("enable_lora") else {}
    return engine_args(anywhere | dict(flags))


class OfflineAdapters:
    """Adapters of an engine that nobody else uses."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loaded: dict[tuple[str, str], Adapter] = {}

    async def find(self, request: LoRARequest) -> Adapter:
        """The adapter, loaded if need be. Raises ApiError, ValueError if it is not there."""
        path = request.source
        key = request.lora_name, path
        if key not in self._loaded:
            if path:
                updated = await adapter_updates.load(
                    self._fleet.members, request.lora_name, path, _LOAD_SECONDS
                )
                self._loaded[key] = updated.adapter
            elif found := self._fleet.adapters.find(request.lora_name):
                self._loaded[key] = found
            else:
                raise ValueError(f"no adapter {request.lora_name!r} is loaded; give its lora_path")
        return self._loaded[key]
