"""Opens a model from a path, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_svc.loader.gguf_file import open_gguf
from engine_svc.loader.hf_directory import open_directory
from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from engine_svc.loader.opened import OpenedModel


def open_model(path: Path) -> OpenedModel:
    """Reads and checks a safetensors directory or a GGUF file, without reading its weights.

    A directory without config.json may hold one GGUF file. No code that comes with a model is run.
    Raises ModelError naming what is missing, wrong or not supported.
    """
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path.name} is not a .gguf file")
        return open_gguf(path)
    if not path.is_dir():
        raise ModelError(f"there is no model at {path}")
    if not (path / "config.json").is_file() and len(files := sorted(path.glob("*.gguf"))) == 1:
        return open_gguf(files[0])
    return open_directory(path)
