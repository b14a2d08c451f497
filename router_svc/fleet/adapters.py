"""Which LoRA adapters a fleet has, and which version it uses of each.

    engine   has                    the fleet uses "sql" v1, which A had first
    A        sql v1, chat v1        ──▶ requests for "sql" go to A
    B        sql v2                     not to B, which the log names
    C        chat v1                ──▶ "chat": A and C

Once no ready engine has the version in use, one that another has takes its place. An adapter whose
engines are away stays known, as a model does, until one of them is back without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router_svc.errors import ApiError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from router_svc.fleet.member import Member
    from router_svc.generation_types import Adapter

log = logging.getLogger(__name__)


class AdapterBook:
    """Found out anew from what `members` gives each time: only the versions in use are kept."""

    def __init__(self, members: Callable[[], Sequence[Member]]) -> None:
        self._members = members
        self._in_use: dict[str, Adapter] = {}
        self._complaints: dict[str, set[str]] = {}  # what was logged of an engine

    def all(self) -> list[Adapter]:
        """The adapters that requests may name, by name."""
        names = {name for member in self._present() for name in member.adapters}
        known = (self.find(name) for name in sorted(names | self._in_use.keys()))
        return [adapter for adapter in known if adapter is not None]

    def find(self, name: str) -> Adapter | None:
        """The adapter of a name, in the version that the fleet uses; None if nobody has it."""
        used = self._in_use.get(name)
        present = self._present()
        having = [(member, each) for member in present if (each := member.adapters.get(name))]
        ready = [each for member, each in having if member.may_serve]
        if used is not None and used in ready:
            return used
        if ready:
            found = ready[0]
        elif having:
            away = [each for _, each in having]
            found = used if used is not None and used in away else away[0]
        elif used is not None and not any(member.may_serve for member in present):
            return used  # nobody is there to say that it is gone
        else:
            self._in_use.pop(name, None)
            return None
        if used is not None and used != found:
            log.warning("adapter %s has the version %s from now on, and had %s", name,
                        found.version, used.version)  # fmt: skip
        self._in_use[name] = found
        return found

    def missing(self, adapter: Adapter) -> ApiError | None:
        """Why no engine will have an adapter again; None while one may, which is merely away."""
        present = self._present()
        if any(member.adapters.get(adapter.name) == adapter for member in present):
            return None
        if not any(member.may_serve for member in present):
            return None
        if self.find(adapter.name) is not None:
            return ApiError(
                ErrorKind.UNAVAILABLE,
                f"the adapter {adapter.name!r} was replaced by another version; try again",
                code="adapter_replaced",
            )
        return ApiError(
            ErrorKind.NOT_FOUND,
            f"the adapter {adapter.name!r} is no longer loaded by any engine",
            param="model",
            code="model_not_found",
        )

    def check(self, member: Member) -> None:
        """Logs once which adapters of an engine are not used, and why."""
        complaints = set(self._complaints_of(member))
        for complaint in sorted(complaints - self._complaints.get(member.name, set())):
            log.error("engine %s is not used for %s", member.name, complaint)
        names = {each.name for each in self._members()}
        kept = {name: known for name, known in self._complaints.items() if name in names}
        self._complaints = kept | {member.name: complaints}

    def _complaints_of(self, member: Member) -> Iterator[str]:
        for adapter in member.adapters.values():
            used = self.find(adapter.name)
            if used is not None and used != adapter:
                yield (
                    f"the adapter {adapter.name}: it has the version {adapter.version},"
                    f" the engines in use {used.version}"
                )

    def _present(self) -> list[Member]:
        return [member for member in self._members() if not member.leaving]
