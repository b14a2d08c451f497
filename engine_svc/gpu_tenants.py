"""Who else holds memory of a GPU, as NVIDIA's driver tells it.

Within a container the driver tells of its own processes only, or of none.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

_SECONDS = 10.0  # a driver that is not kept loaded takes seconds to answer
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process that holds memory of a GPU."""

    pid: int
    name: str
    num_bytes: int


def gpu_tenants(uuid: str, program: str = "nvidia-smi") -> tuple[Tenant, ...]:
    """The other processes that hold memory of the GPU "GPU-…", largest first.

    Empty where the driver's program is missing, does not answer or has nothing to tell.
    """
    fields = "--query-compute-apps=pid,process_name,used_gpu_memory"
    command = [program, f"--id={uuid}", fields, "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    tenants = (_parsed(line) for line in answer.stdout.splitlines())
    others = [each for each in tenants if each is not None and each.pid != os.getpid()]
    return tuple(sorted(others, key=lambda tenant: -tenant.num_bytes))


def _parsed(line: str) -> Tenant | None:
    """A line "pid, name, MiB"; None for one that is not so, as "[N/A]" for memory is not."""
    pid, _, rest = line.partition(",")
    name, _, mebibytes = rest.rpartition(",")
    try:
        return Tenant(int(pid), name.strip(), int(mebibytes) * _MIB)
    except ValueError:
        return None
