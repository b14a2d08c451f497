"""What the flags say of adapters: which, how many, how large, and where more may come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_NAME = 512  # characters
_MODULE_KEYS = frozenset({"name", "path", "base_model_name"})


@dataclass(frozen=True, slots=True)
class LoraModule:
    """An adapter that is loaded at the start."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Adapters of an engine; by default it takes none."""

    num_slots: int = 0  # most adapters that are loaded together
    max_rank: int | None = None
    modules: tuple[LoraModule, ...] = ()
    directory: Path | None = None  # adapters within may be loaded while the engine runs

    @property
    def enabled(self) -> bool:
        """Whether there are any."""
        return self.num_slots > 0


def parse_adapters(params: Mapping[str, Any]) -> AdapterConfig:
    """From click's parameters. Raises ValueError, naming the flag, for what does not go together.

    A served model's name is not known here; see `check_name`.
    """
    texts, directory = params["lora_modules"], params["lora_dir"]
    if not params["enable_lora"]:
        for flag, value in (("--lora-modules", texts), ("--lora-dir", directory)):
            if value:
                raise ValueError(f"{flag} needs --enable-lora")
        return AdapterConfig()
    modules = tuple(_module(text) for text in texts)
    names = [module.name for module in modules]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--lora-modules has the name {name!r} twice")
    if len(modules) > params["max_loras"]:
        raise ValueError(
            f"--lora-modules has {len(modules)} adapters, more than --max-loras "
            f"{params['max_loras']}"
        )
    if directory is not None and not Path(directory).is_dir():
        raise ValueError(f"--lora-dir {directory} is not a directory")
    return AdapterConfig(
        num_slots=params["max_loras"],
        max_rank=params["max_lora_rank"],
        modules=modules,
        directory=None if directory is None else Path(directory).resolve(),
    )


def check_name(name: str, served_names: Iterable[str]) -> None:
    """Raises ValueError for a name that an adapter cannot have."""
    if not 1 <= len(name) <= _MAX_NAME:
        raise ValueError(f"must have between 1 and {_MAX_NAME} characters, not {len(name)}")
    if not name.isprintable() or "," in name or name != name.strip():
        raise ValueError(
            f"{name!r} has characters that no name may have: commas, control "
            "characters, or spaces at an end"
        )
    if name in served_names:
        raise ValueError(f"{name!r} is the name of the model itself (--served-model-name)")


def _module(text: str) -> LoraModule:
    if text.startswith("{"):
        name, path = _from_json(text)
    else:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise ValueError(f"--lora-modules {text}: must be NAME=PATH, or JSON")
    try:
        check_name(name, ())
    except ValueError as error:
        raise ValueError(f"--lora-modules {text}: the name {error}") from error
    return LoraModule(name, Path(path))


def _from_json(text: str) -> tuple[str, str]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"--lora-modules {text}: {error}") from error
    if unknown := value.keys() - _MODULE_KEYS:
        raise ValueError(f"--lora-modules {text}: unknown keys {', '.join(sorted(unknown))}")
    name, path = value.get("name"), value.get("path")
    if not isinstance(name, str) or not isinstance(path, str) or not path:
        raise ValueError(f"--lora-modules {text}: needs a name and a path")
    return name, path
