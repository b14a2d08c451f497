"""Does a checkpoint hold exactly the weights that its spec names, in their shapes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHOWN = 5  # names in a message


def check_weights(
    wanted: Mapping[str, tuple[int, ...]], present: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Raises ModelError naming weights that are missing or have another shape.

    Both arguments map a name in the checkpoint to a shape.
    """
    if missing := [name for name in wanted if name not in present]:
        raise ModelError(f"{where}: {len(missing)} weights are missing: {some(missing)}")
    for name, shape in wanted.items():
        if present[name] != shape:
            raise ModelError(
                f"{where}: {name} has shape {list(present[name])}, "
                f"the configuration asks for {list(shape)}"
            )


def some(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
