"""Where Octavo keeps what it has fetched, converted or packed."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache_dir() -> Path:
    """$OCTAVO_CACHE, else `octavo` in XDG's cache directory. It need not exist."""
    if override := os.environ.get("OCTAVO_CACHE"):
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "octavo"
