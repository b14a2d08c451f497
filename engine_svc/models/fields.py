"""Typed, bounded access to a model's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SIZE = 2**31 - 1  # sizes are int32 in every kernel


@dataclass(frozen=True, slots=True)
class Fields:
    """A configuration over a family's defaults.

    A key that is absent takes the default. An explicit null means "none" for `optional_size`, and
    the default everywhere else. All getters raise ModelError, naming the key.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """The raw value, or its default, or None."""
        value = self.values.get(key)
        return self.defaults.get(key) if value is None else value

    def size(self, key: str) -> int:
        """A positive int32."""
        value = self.get(key)
        if value is None:
            raise ModelError(f"configuration: {key} is missing")
        return _checked_size(key, value)

    def optional_size(self, key: str) -> int | None:
        """A positive int32, or None where it is null or has no default."""
        value = self.values.get(key, self.defaults.get(key))
        return None if value is None else _checked_size(key, value)

    def number(self, key: str) -> float:
        """A finite positive number."""
        value = self.get(key)
        if value is None:
            raise ModelError(f"configuration: {key} is missing")
        return checked_number(key, value)

    def optional_number(self, key: str) -> float | None:
        """A finite positive number, or None."""
        value = self.get(key)
        return None if value is None else checked_number(key, value)

    def flag(self, key: str) -> bool:
        """A boolean, false where it has no default."""
        value = self.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ModelError(f"configuration: {key} must be true or false, got {value!r}")
        return value


def checked_number(key: str, value: Any) -> float:
    """`value` as a float, if it is a finite positive number. Raises ModelError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e38:
        raise ModelError(f"configuration: {key} must be a positive number, got {value!r}")
    return float(value)


def _checked_size(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SIZE:
        raise ModelError(
            f"configuration: {key} must be an integer from 1 to {_MAX_SIZE}, got {value!r}"
        )
    return value
