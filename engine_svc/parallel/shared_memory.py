"""Whether /dev/shm has the room that NCCL takes of it, found out before NCCL fails in the middle.

gloo, which CPUs use, talks through sockets and takes none. NCCL makes a segment in /dev/shm for
each of a rank's proxies and, between GPUs without a direct link, for the buffers of each channel,
unless NCCL_SHM_DISABLE is 1: sizes as in its src/transport/shm.cc and src/include/proxy.h, and its
default NCCL_BUFFSIZE of 4 MiB.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine_svc.config import ConfigError
from engine_svc.memory import format_bytes

SHARED_MEMORY = Path("/dev/shm")
_NCCL_BYTES_PER_RANK = 64 << 20
_NCCL_PROXY_BYTES = 10 << 20  # of these, for what a rank tells its proxies


def needed_bytes(backend: str, local_size: int, *, shm_disabled: bool = False) -> int:
    """What `local_size` ranks on one node take of /dev/shm over "gloo" or "nccl".

    `shm_disabled` says that NCCL_SHM_DISABLE is 1.
    """
    if backend != "nccl" or local_size == 1:
        return 0
    return local_size * (_NCCL_PROXY_BYTES if shm_disabled else _NCCL_BYTES_PER_RANK)


def free_bytes(path: Path = SHARED_MEMORY) -> int:
    """What is free there; 0 where it does not exist."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return 0
    return found.f_bavail * found.f_frsize


def check_shared_memory(
    backend: str, local_size: int, free: int, *, shm_disabled: bool = False
) -> None:
    """Raises ConfigError, with both numbers and what to change, where `free` bytes are too few."""
    needed = needed_bytes(backend, local_size, shm_disabled=shm_disabled)
    if free < needed:
        raise ConfigError(
            f"{SHARED_MEMORY} has {format_bytes(free)} free, but {local_size} ranks over {backend} "
            f"take {format_bytes(needed)} of it: enlarge it by docker's --shm-size, the pod's "
            "emptyDir with medium Memory (the chart's engine.sharedMemory), or set "
            "NCCL_SHM_DISABLE=1, which is slower"
        )
