"""Whether /dev/shm has the room that NCCL takes of it, found out before NCCL fails in the middle.

gloo, which CPUs use, talks through sockets and takes none. NCCL makes a segment in /dev/shm for
each of a rank's proxies and, between GPUs without a direct link, for the buffers of each channel:
sizes as in its src/transport/shm.cc and its default NCCL_BUFFSIZE of 4 MiB.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine_svc.config import ConfigError
from engine_svc.memory import format_bytes

SHARED_MEMORY = Path("/dev/shm")
_NCCL_BYTES_PER_RANK = 64 << 20


def needed_bytes(backend: str, local_size: int) -> int:
    """What `local_size` ranks on one node take of /dev/shm over "gloo" or "nccl"."""
    return local_size * _NCCL_BYTES_PER_RANK if backend == "nccl" and local_size > 1 else 0


def free_bytes(path: Path = SHARED_MEMORY) -> int:
    """What is free there; 0 where it does not exist."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return 0
    return found.f_bavail * found.f_frsize


def check_shared_memory(backend: str, local_size: int, free: int) -> None:
    """Raises ConfigError, with both numbers and what to change, where `free` bytes are too few."""
    needed = needed_bytes(backend, local_size)
    if free < needed:
        raise ConfigError(
            f"{SHARED_MEMORY} has {format_bytes(free)} free, but {local_size} ranks over {backend} "
            f"take {format_bytes(needed)} of it: enlarge it by docker's --shm-size, the pod's "
            "emptyDir with medium Memory (the chart's engine.sharedMemory), or set "
            "NCCL_SHM_DISABLE=1, which is slower"
        )
