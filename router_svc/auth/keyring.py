"""The keys in use: from flags and from a file that is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from router_svc.auth.keys import DEFAULT_TENANT, ApiKeys, KeyFile, KeyFormatError, read_key_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from router_svc.admission.limits import Limits

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0

_Version = tuple[int, int, int] | None


class KeyRing:
    """Keys of flags, which belong to the tenant "default", and of a file with tenants.

    `keys` is a whole new set after each change, so that a call sees one or the other; `limits`, of
    tenants that have any, too.
    """

    def __init__(self, keys: Sequence[str], path: Path | None = None) -> None:
        """Reads the file. Raises KeyFormatError if it or a key cannot be used."""
        self._own = [(DEFAULT_TENANT, key) for key in keys]
        self._path = path
        self._version = self._look()
        self.keys, self.limits = self._read()

    async def follow(self, poll_seconds: float = _POLL_SECONDS) -> None:
        """Reads the file again whenever it changes, until cancelled.

        A file that cannot be used leaves the keys as they were, with an error in the log.
        """
        while self._path is not None:
            await asyncio.sleep(poll_seconds)
            version = self._look()
            if version == self._version:
                continue
            self._version = version
            try:
                self.keys, self.limits = await asyncio.to_thread(self._read)
            except KeyFormatError as error:
                log.error("the API keys stay as they were: %s", error)
            else:
                log.info("%d API keys are in use after %s changed", len(self.keys), self._path)

    def _read(self) -> tuple[ApiKeys, dict[str, Limits]]:
        file = read_key_file(self._path) if self._path is not None else KeyFile([], {})
        return ApiKeys([*self._own, *file.keys]), file.limits

    def _look(self) -> _Version:
        """What changes with the file, also when another is moved or linked into its place."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ino, found.st_size) if found is not None else None
