"""Checked access to a `quantization_config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from engine_svc.models.errors import ModelError

_T = TypeVar("_T")
_MAX_GROUP = 1 << 20  # columns


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of the configuration. A key with null counts as absent; all raise ModelError."""

    values: Mapping[str, Any]
    where: str  # for messages

    @classmethod
    def of(cls, value: object, where: str) -> Fields:
        """`value` as an object."""
        if not isinstance(value, Mapping):
            raise ModelError(f"configuration: {where} must be an object, got {value!r}")
        return cls(value, where)

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value."""
        value = self.values.get(key)
        return default if value is None else value

    def refusal(self, key: str, value: object, supported: str) -> ModelError:
        """What to raise for a value that has a meaning, but none here."""
        return ModelError(f"{self.where}: {key} {value!r} is not supported; {supported}")

    def text(self, key: str, default: str) -> str:
        """A string."""
        return self._of_type(key, str, default)

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean."""
        return self._of_type(key, bool, default)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; without a default it has to be there."""
        value = self.get(key, default)
        if type(value) is not int:
            raise ModelError(f"{self.where}: {key} must be an integer, got {value!r}")
        return value

    def group_size(self, default: int | None = None) -> int:
        """Columns of a group, or -1 for all of a row."""
        size = self.integer("group_size", default)
        if size != -1 and not 1 <= size <= _MAX_GROUP:
            raise ModelError(f"{self.where}: group_size must be -1 or positive, got {size}")
        return size

    def sizes(self, key: str) -> tuple[int, int]:
        """Two positive integers."""
        value = self.get(key)
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(type(size) is int and 1 <= size <= _MAX_GROUP for size in value)
        ):
            raise ModelError(f"{self.where}: {key} must be two positive integers, got {value!r}")
        return value[0], value[1]

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; none where it is absent."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ModelError(f"{self.where}: {key} must be a list of strings, got {value!r}")
        return tuple(value)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object; an empty one where it is absent."""
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            raise ModelError(f"{self.where}: {key} must be an object, got {value!r}")
        return value

    def object(self, key: str) -> Fields:
        """An object, with its own checked access."""
        return Fields(self.mapping(key), f"{self.where}.{key}")

    def _of_type(self, key: str, kind: type[_T], default: _T) -> _T:
        value = self.get(key, default)
        if not isinstance(value, kind):
            raise ModelError(f"{self.where}: {key} must be a {kind.__name__}, got {value!r}")
        return value
