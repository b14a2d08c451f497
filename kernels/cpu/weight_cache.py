"""Packed weights on disk, so that the next start reads them instead of packing them again.

    <directory>/<key>.weights      header, 4096 bytes of JSON padded with spaces │ the buffer

The key names the source's content and the layout. A file gets its name when it is whole, by a
rename, and is believed only if its size and checksum agree: neither a crash nor a full disk leaves
anything that could be taken for weights. What goes wrong here costs time, never a start.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from kernels.backend import OnProgress
    from kernels.cpu.weight_layout import WeightLayout

    Bytes: TypeAlias = npt.NDArray[np.uint8]

_HEADER_BYTES = 4096
_CHUNK_BYTES = 8 << 20
_SUFFIX, _PART_SUFFIX = ".weights", ".part"
_MAX_DIRECTORY_BYTES = 16 << 30
_ABANDONED_SECONDS = 3600.0  # no write takes as long: its process has died


class _DamagedError(Exception):
    """A file is not what its name says."""


@dataclass(frozen=True, slots=True)
class WeightCache:
    """Entries of one source. `fingerprint` changes with the source's content."""

    directory: Path
    fingerprint: str
    on_notice: Callable[[str], None]  # one line for the operator

    def path(self, layout: WeightLayout) -> Path:
        """Where the entry for a layout is, or would be."""
        return self.directory / f"{self._key(layout)}{_SUFFIX}"

    def load(
        self, layout: WeightLayout, buffer: Bytes, on_progress: OnProgress, num_threads: int
    ) -> bool:
        """Fills `buffer` from the entry; False if there is none that is whole.

        What is in the buffer after False is undefined.
        """
        path = self.path(layout)
        try:
            with path.open("rb", buffering=0) as file:
                checksum = self._checked_header(file.read(_HEADER_BYTES), layout)
                size = os.fstat(file.fileno()).st_size
                if size != _HEADER_BYTES + layout.total_bytes:
                    raise _DamagedError(
                        f"it has {size} bytes, not {_HEADER_BYTES + layout.total_bytes}"
                    )
                if _read(file.fileno(), buffer, on_progress, num_threads) != checksum:
                    raise _DamagedError("its checksum is wrong")
        except FileNotFoundError:
            return False
        except OSError as error:
            self.on_notice(f"cannot read packed weights from {path}: {error.strerror}")
            return False
        except _DamagedError as error:
            self.on_notice(f"{path} is damaged and is made anew: {error}")
            return False
        _mark_used(path)
        return True

    def store(self, layout: WeightLayout, buffer: Bytes, num_threads: int) -> None:
        """Writes the entry, and forgets those not used for longest beyond 16 GiB in all."""
        path = self.path(layout)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self.directory)
            free = shutil.disk_usage(self.directory).free
            if free < 2 * layout.total_bytes:  # leave others as much as is taken
                self.on_notice(
                    f"packed weights are not kept: they take {layout.total_bytes:,} bytes and "
                    f"{self.directory} has {free:,} free"
                )
                return
            header = self._header(layout, _checksum(buffer, num_threads))
            _write_whole(path, (header, buffer.data))
            _trim(self.directory, keep=path)
        except OSError as error:
            self.on_notice(f"packed weights are not kept in {self.directory}: {error.strerror}")

    def _key(self, layout: WeightLayout) -> str:
        return hashlib.sha256(f"{self.fingerprint} {layout.digest()}".encode()).hexdigest()[:32]

    def _header(self, layout: WeightLayout, checksum: int) -> bytes:
        fields = {"key": self._key(layout), "bytes": layout.total_bytes, "checksum": checksum}
        return json.dumps(fields).encode().ljust(_HEADER_BYTES)

    def _checked_header(self, header: bytes, layout: WeightLayout) -> int:
        """The checksum that the header has. Raises _DamagedError."""
        try:
            fields = json.loads(header)
            found = fields["key"], fields["bytes"]
            checksum = int(fields["checksum"])
        except (ValueError, KeyError, TypeError) as error:
            raise _DamagedError("it has no header") from error
        if found != (self._key(layout), layout.total_bytes):
            raise _DamagedError("its header is of another entry")
        return checksum


def _chunks(num_bytes: int) -> range:
    return range(0, num_bytes, _CHUNK_BYTES)


def _combined(checksums: list[int]) -> int:
    return zlib.crc32(b"".join(checksum.to_bytes(4, "little") for checksum in checksums))


def _checksum(buffer: Bytes, num_threads: int) -> int:
    """CRC-32 of the CRC-32s of chunks, so that threads share the work."""
    with ThreadPoolExecutor(num_threads) as pool:
        return _combined(
            list(
                pool.map(
                    lambda start: zlib.crc32(buffer[start : start + _CHUNK_BYTES].data),
                    _chunks(len(buffer)),
                )
            )
        )


def _read(fd: int, buffer: Bytes, on_progress: OnProgress, num_threads: int) -> int:
    """Reads what follows the header into `buffer`; its checksum. A short file is _DamagedError."""

    def read_chunk(start: int) -> int:
        chunk = buffer[start : start + _CHUNK_BYTES].data
        done = 0
        while done < len(chunk):
            count = os.preadv(fd, [chunk[done:]], _HEADER_BYTES + start + done)
            if count == 0:
                raise _DamagedError("it ended early")
            done += count
        return zlib.crc32(chunk)

    checksums = []
    with ThreadPoolExecutor(num_threads) as pool:
        for start, checksum in zip(
            _chunks(len(buffer)), pool.map(read_chunk, _chunks(len(buffer))), strict=True
        ):
            checksums.append(checksum)
            on_progress(min(start + _CHUNK_BYTES, len(buffer)), len(buffer))
    return _combined(checksums)


def _write_whole(path: Path, pieces: tuple[bytes | memoryview, ...]) -> None:
    """Nobody sees the file before it is complete. Raises OSError, and leaves nothing then."""
    # No fsync: what a power cut leaves is found out by its checksum.
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=_PART_SUFFIX, delete=False) as part:
        try:
            for piece in pieces:
                part.write(piece)
            part.flush()
            Path(part.name).replace(path)
        except OSError:
            Path(part.name).unlink(missing_ok=True)
            raise


def _mark_used(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return  # a directory that is only read; then nothing is trimmed there either


def _remove_abandoned(directory: Path) -> None:
    for part in directory.glob(f"*{_PART_SUFFIX}"):
        if time.time() - _last_use(part) > _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def _trim(directory: Path, keep: Path) -> None:
    entries = sorted(directory.glob(f"*{_SUFFIX}"), key=_last_use, reverse=True)
    total = 0
    for entry in entries:
        total += entry.stat().st_size
        if total > _MAX_DIRECTORY_BYTES and entry != keep:
            entry.unlink(missing_ok=True)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another engine was quicker
        return 0.0
