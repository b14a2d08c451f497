"""The files that sentence-transformers puts beside an encoder: pooling, and the longest input.

modules.json                 Transformer → Pooling → Normalize, with the folder of each
1_Pooling/config.json        which poolings
sentence_bert_config.json    max_seq_length
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from engine_svc.loader.special_tokens import read_json
from engine_svc.models.errors import ModelError
from kernels.encoder import Pooling, PoolingSpec

if TYPE_CHECKING:
    from pathlib import Path

_MODULES = "modules.json"
_PREFIX = "pooling_mode_"
# The flag of each pooling, in the order in which several are put one after another.
_FLAGS = {
    f"{_PREFIX}cls_token": Pooling.CLS,
    f"{_PREFIX}max_tokens": Pooling.MAX,
    f"{_PREFIX}mean_tokens": Pooling.MEAN,
    f"{_PREFIX}mean_sqrt_len_tokens": Pooling.MEAN_SQRT_LEN,
    f"{_PREFIX}weightedmean_tokens": Pooling.WEIGHTED_MEAN,
    f"{_PREFIX}lasttoken": Pooling.LAST_TOKEN,
}
_MAX_LENGTH = 1 << 24


def read_pooling(directory: Path) -> tuple[PoolingSpec, str | None]:
    """How rows become a vector, and a notice where no file says it.

    Raises ModelError for modules that are not served here and for files that are wrong.
    """
    modules = _read_modules(directory)
    if modules is None:
        default = PoolingSpec((Pooling.MEAN,), normalize=False)
        return default, f"no {_MODULES}: pooling by mean, not normalised, as sentence-transformers"
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"{_MODULES}: {' → '.join(kinds) or 'nothing'} is not supported, only "
            "Transformer → Pooling, perhaps with Normalize"
        )
    if modules[0][1]:
        raise ModelError(f"{_MODULES}: the Transformer must be in the model's own directory")
    folder = modules[1][1]
    config = read_json(directory / folder / "config.json")
    return PoolingSpec(_modes(config, f"{folder}/config.json"), "Normalize" in kinds), None


def read_max_length(directory: Path) -> int | None:
    """Most tokens of an input as the model's author has it, or None."""
    lengths = [
        read_json(directory / "sentence_bert_config.json").get("max_seq_length"),
        read_json(directory / "tokenizer_config.json").get("model_max_length"),
    ]
    for length in lengths:
        # Tokenisers without a limit have a huge one.
        if type(length) is int and 1 <= length <= _MAX_LENGTH:
            return length
    return None


def _read_modules(directory: Path) -> list[tuple[str, str]] | None:
    """Kind and folder of every module."""
    path = directory / _MODULES
    if not path.is_file():
        return None
    try:
        entries: Any = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ModelError(f"{_MODULES} is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise ModelError(f"{_MODULES} must hold a list")
    modules = []
    for entry in entries:
        kind, folder = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (0, 0)
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise ModelError(f"{_MODULES}: every module needs a type and a path")
        if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
            raise ModelError(f"{_MODULES}: {folder!r} is not a folder of the model")
        modules.append((kind.rpartition(".")[2], folder))
    return modules


def _modes(config: dict[str, Any], file: str) -> tuple[Pooling, ...]:
    """The poolings by the flags, or by name as newer versions have them."""
    named = config.get("pooling_mode")
    if named is not None:
        names = named if isinstance(named, list) else [named]
        if not names or any(name not in list(Pooling) for name in names):
            raise ModelError(f"{file}: pooling_mode {named!r} is not supported")
        return tuple(Pooling(name) for name in names)
    unknown = [
        key for key, on in config.items() if key.startswith(_PREFIX) and on and key not in _FLAGS
    ]
    if unknown:
        raise ModelError(f"{file}: {unknown[0]} is not supported")
    modes = tuple(mode for key, mode in _FLAGS.items() if config.get(key))
    if not modes:
        raise ModelError(f"{file} names no pooling")
    return modes
