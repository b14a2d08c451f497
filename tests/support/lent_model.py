"""A model that a test can take away, so that an engine which has died cannot come back yet."""

from __future__ import annotations

import shutil
from pathlib import Path


class LentModel:
    """A copy of a model's file at `path`; what runs with it goes on without it."""

    def __init__(self, model: Path, directory: Path) -> None:
        self.path = directory / model.name
        self._away = directory / f"{model.name}.away"
        try:
            self.path.hardlink_to(model)
        except OSError:  # another file system
            shutil.copy(model, self.path)

    def take_away(self) -> None:
        """An engine that is started from now on ends at once, and is started again."""
        self.path.rename(self._away)

    def give_back(self) -> None:
        """The next one that is started serves."""
        self._away.rename(self.path)
