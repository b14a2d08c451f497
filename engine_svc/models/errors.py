"""The one error that a model which cannot be served gives."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be served. The message names the file, key or tensor and says why."""
