"""What --speculative-config may say, under vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, fields

import orjson

_METHOD = "ngram"


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """N-gram speculation. Raises ValueError that names the field and the numbers."""

    num_speculative_tokens: int  # most guesses for a request in a step
    prompt_lookup_max: int = 4  # tokens of a match; longer ones are not sought
    prompt_lookup_min: int = 2
    max_step_tokens: int = 8  # of a step with guesses: so many cost little more than one

    def __post_init__(self) -> None:
        """Checks the fields."""
        for name in ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError(
                f"prompt_lookup_min {self.prompt_lookup_min} is above "
                f"prompt_lookup_max {self.prompt_lookup_max}"
            )


def parse_speculative_config(text: str) -> SpeculationConfig:
    """The configuration in a flag's JSON. Raises ValueError, worded for people.

    As with vLLM, the one of prompt_lookup_max and prompt_lookup_min that is not given is as the
    other.
    """
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError("must be a JSON object")
    if given.pop("method", None) != _METHOD:
        raise ValueError(f'must have "method": "{_METHOD}", the only one there is')
    names = [field.name for field in fields(SpeculationConfig) if field.name != "max_step_tokens"]
    for name, value in given.items():
        if name not in names:
            raise ValueError(f"has an unknown key {name!r}; known are method, {', '.join(names)}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be an integer, got {value!r}")
    if "num_speculative_tokens" not in given:
        raise ValueError("must have num_speculative_tokens")
    lookups = {name: given[name] for name in names[1:] if name in given}
    if len(lookups) == 1:
        (only,) = lookups.values()
        given |= dict.fromkeys(names[1:], only)
    return SpeculationConfig(**given)
