"""Loads a LoRA adapter into all engines of a fleet, or has all of them let it go.

load     all or nothing: if one engine fails, those that had not got it before let it go again
unload   as far as it goes: an engine that fails keeps it, and the error says which one that is
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router_svc.engines.adapter_calls import info_of, load_adapter, unload_adapter
from router_svc.errors import ApiError, ErrorKind, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from router_svc.fleet.member import Member
    from router_svc.generation_types import Adapter

_UNDO_SECONDS = 30.0
# Fields of an engine's request by the names that the public API has for them.
_PARAMS = {"name": "lora_name", "source": "lora_path"}


@dataclass(frozen=True, slots=True)
class Updated:
    """Names of the engines that have done as they were told, and of those that were away."""

    adapter: Adapter
    engines: list[str]
    not_reached: list[str]


async def load(members: Sequence[Member], name: str, source: str, seconds: float) -> Updated:
    """Loads an adapter. Raises ApiError, naming engines and reasons, if one of them fails."""
    ready, away = _split(members, lambda member: member.may_serve)
    if not ready:
        raise ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
    had: dict[str, Adapter | None] = {}

    async def load_on(member: Member) -> None:
        had[member.name] = (await info_of(member.channel)).adapters.get(name)
        await load_adapter(member.channel, name, source, seconds)

    failures = await _on_all(ready, load_on)
    refused = [engine for engine, error in failures.items() if error.kind.is_clients_fault]
    loaded = [m for m in ready if m.name not in failures and name in m.adapters]
    failures |= {
        member.name: ApiError(ErrorKind.INTERNAL, "it has not got it afterwards")
        for member in ready
        if member not in loaded and member.name not in failures
    }
    adapter = loaded[0].adapters.get(name) if loaded else None
    failures |= {
        member.name: ApiError(
            ErrorKind.INVALID_REQUEST, f"it has other files there than {loaded[0].name}"
        )
        for member in loaded
        if member.adapters.get(name) != adapter
    }
    if adapter is not None and not failures:
        return Updated(adapter, [member.name for member in ready], away)
    # Whoever failed may have it all the same, if only its answer was lost. What an engine has that
    # refused it is another router's.
    new = [m for m in ready if m.name not in refused and m.name in had and had[m.name] is None]
    kept = await _on_all(new, lambda each: unload_adapter(each.channel, name, _UNDO_SECONDS))
    ending = f"; it may still be loaded on {', '.join(kept)}" if kept else ""
    raise _failed(f"the adapter {shortened(name)!r} was not loaded", failures, ending)


async def unload(members: Sequence[Member], name: str, seconds: float) -> Updated:
    """Has all engines let an adapter go. Raises ApiError: 404 if none has it, or as `load`."""
    there, away = _split(members, lambda member: member.channel.connection is not None)
    having = [(member, adapter) for member in there if (adapter := member.adapters.get(name))]
    if not having:
        raise ApiError(
            ErrorKind.NOT_FOUND,
            f"no engine has an adapter {name!r}",
            param="lora_name",
            code="model_not_found",
        )
    engines = [member for member, _ in having]
    failures = await _on_all(engines, lambda each: unload_adapter(each.channel, name, seconds))
    freed = [member.name for member in engines if member.name not in failures]
    if failures:
        ending = f"; unloaded on {', '.join(freed)}" if freed else ""
        raise _failed(f"the adapter {shortened(name)!r} is still loaded", failures, ending)
    return Updated(having[0][1], freed, away)


def _split(
    members: Sequence[Member], is_there: Callable[[Member], bool]
) -> tuple[list[Member], list[str]]:
    """Members that can be asked, and the names of the others."""
    there = [member for member in members if is_there(member)]
    away = [member.name for member in members if member not in there and not member.leaving]
    return there, away


async def _on_all(
    members: Sequence[Member], work: Callable[[Member], Coroutine[None, None, None]]
) -> dict[str, ApiError]:
    """What went wrong, by the engine's name."""
    ends = await asyncio.gather(*(work(member) for member in members), return_exceptions=True)
    failures = {}
    for member, end in zip(members, ends, strict=True):
        if isinstance(end, ApiError):
            failures[member.name] = end
        elif end is not None:
            raise end
    return failures


def _failed(what: str, failures: Mapping[str, ApiError], ending: str) -> ApiError:
    kinds = {_kind_of(error) for error in failures.values()}
    kind = next(iter(kinds)) if len(kinds) == 1 else ErrorKind.INVALID_REQUEST
    if len(kinds) > 1 and not all(each.is_clients_fault for each in kinds):
        kind = ErrorKind.UNAVAILABLE
    reasons = "; ".join(f"{engine}: {_reason(error)}" for engine, error in failures.items())
    params = {_PARAMS.get(error.param or "") for error in failures.values()}
    param = next(iter(params)) if len(params) == 1 else None
    return ApiError(kind, f"{what}: {reasons}{ending}", param=param, code="lora_update_failed")


def _reason(error: ApiError) -> str:
    return error.message.removeprefix(f"{error.param}: ")


def _kind_of(error: ApiError) -> ErrorKind:
    # An engine that has as many adapters as it can hold takes no more however long one waits.
    full = error.kind is ErrorKind.RATE_LIMITED
    return ErrorKind.INVALID_REQUEST if full else error.kind
