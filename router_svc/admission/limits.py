"""What a tenant may have, as a key file says it."""

from __future__ import annotations

from dataclasses import dataclass, fields

_MOST = 10**12


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one tenant; None is none.

    Those of a minute hold for all workers together, `concurrent_requests` for each.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    @classmethod
    def of(cls, given: object) -> Limits:
        """Reads a mapping of the fields' names. Raises ValueError, which says what is wrong."""
        names = [field.name for field in fields(cls)]
        if not isinstance(given, dict) or not given or not set(given) <= set(names):
            raise ValueError(f"limits map some of {', '.join(names)} to numbers")
        for name, value in given.items():
            if type(value) is not int or not 0 < value <= _MOST:
                raise ValueError(f"{name} must be a whole number above 0")
        return cls(**given)
