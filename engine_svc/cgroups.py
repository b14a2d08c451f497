"""Where the control groups of this process keep their limits.

Files and their meaning: kernel documentation, cgroup-v2.rst and cgroup-v1/.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def cgroup_directories(controller: str, root: Path = Path("/")) -> Iterator[tuple[int, Path]]:
    """The process's group for `controller` and all above it, each with its version, 1 or 2.

    `root` is where /proc and /sys are. Directories may not exist: a container can see its own group
    mounted as the root while its path names the host's.
    """
    try:
        membership = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in membership:
        _, controllers, path = line.split(":", 2)
        relative = PurePosixPath(path.lstrip("/"))
        levels = (relative, *relative.parents)
        if controllers == "":
            yield from ((2, mount / level) for level in levels)
        elif controller in controllers.split(","):
            for name in {controllers, controller}:
                yield from ((1, mount / name / level) for level in levels)


def read_number(path: Path) -> int | None:
    """The number that a file holds; None if there is no file, or no limit ("max")."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.lstrip("-").isdigit() else None


def read_statistic(path: Path, key: str) -> int:
    """The value of `key` in a file of "key value" lines; 0 if it is not there."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(value) for name, value in map(str.split, lines) if name == key), 0)
