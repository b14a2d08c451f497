"""What start-up leaves to whoever serves adapters: how to read and pack them, and those loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.adapters.config import check_name
from engine_svc.adapters.peft_config import read_peft_config
from engine_svc.adapters.peft_directory import read_adapter
from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_svc.adapters.config import AdapterConfig
    from engine_svc.adapters.peft_directory import BaseModel
    from kernels.backend import Decoder, PackedAdapter
    from kernels.lora import LoraAdapter

_LEAST_MAX_RANK = 16
_SHOWN_DIGITS = 12  # of a version


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter that a slot has; what is packed of it is the decoder's alone."""

    name: str
    version: str
    rank: int
    source: str
    notices: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """One line for people."""
        return (
            f"adapter {self.name}: rank {self.rank}, version {self.version[:_SHOWN_DIGITS]}, "
            f"{self.source}"
        )


@dataclass(frozen=True, slots=True)
class AdapterSetup:
    """Adapters of an engine: what they have to fit, and those loaded already, by slot."""

    base: BaseModel
    served_names: tuple[str, ...]  # of the model, which no adapter may have
    num_slots: int
    max_rank: int
    directory: Path | None  # those within may be loaded at run time
    pack: Callable[[LoraAdapter], PackedAdapter]  # on any thread
    loaded: tuple[LoadedAdapter, ...] = ()

    @property
    def summary(self) -> list[str]:
        """Lines for people."""
        where = "" if self.directory is None else f", more from {self.directory}"
        lines = [f"adapters: up to {self.num_slots} of rank {self.max_rank} at most{where}"]
        for adapter in self.loaded:
            lines.append(adapter.description)
            lines += [f"note: adapter {adapter.name}: {notice}" for notice in adapter.notices]
        return lines

    def load(self, name: str, directory: Path) -> tuple[LoadedAdapter, PackedAdapter]:
        """Reads and packs an adapter. Raises ModelError."""
        try:
            read = read_adapter(directory, self.base, self.max_rank)
            packed = self.pack(read.weights)
        except ValueError as error:  # it does not fit the model as the back end sees it
            raise ModelError(str(error)) from error
        except OSError as error:
            raise ModelError(f"it cannot be read: {error.strerror}") from error
        loaded = LoadedAdapter(name, read.version, read.rank, str(directory), read.notices)
        return loaded, packed


def max_rank_of(config: AdapterConfig) -> int:
    """The largest rank that adapters may have. Raises ModelError for one that cannot be read."""
    if config.max_rank is not None:
        return config.max_rank
    ranks = [_LEAST_MAX_RANK]
    for module in config.modules:
        try:
            ranks.append(read_peft_config(module.path).max_rank)
        except (ModelError, OSError) as error:
            raise ModelError(f"--lora-modules {module.name}={module.path}: {error}") from error
    return max(ranks)


def load_modules(
    config: AdapterConfig, setup: AdapterSetup, decoder: Decoder
) -> tuple[LoadedAdapter, ...]:
    """Loads the adapters of --lora-modules into the first slots. Raises ModelError naming it."""
    loaded = []
    for slot, module in enumerate(config.modules):
        try:
            check_name(module.name, setup.served_names)
            adapter, packed = setup.load(module.name, module.path.absolute())
        except (ModelError, ValueError) as error:
            raise ModelError(f"--lora-modules {module.name}={module.path}: {error}") from error
        decoder.set_adapter(slot, packed)
        loaded.append(adapter)
    return tuple(loaded)
