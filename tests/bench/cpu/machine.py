"""The machine while it is measured: who used its CPUs, what it is, and what it can do at best."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil

ROOF_SOURCE = Path(__file__).parents[3] / "kernels/cpu/bench/roof.cpp"

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU seconds over a stretch of time."""

    seconds: float  # by the clock
    by_process: dict[str, float]
    by_thread: dict[str, float]  # "engine/name": threads of one name together
    foreign_share: float  # of all the machine's CPU time: what other processes took
    stolen_share: float  # what the hypervisor gave to others


@dataclass(slots=True)
class CpuWatch:
    """Counts from its making until `stop`. `processes` are those of interest, by their role."""

    processes: Mapping[str, list[psutil.Process]]
    _started: float = field(default_factory=time.perf_counter)
    _machine: tuple[float, float] = field(default_factory=lambda: _machine_seconds())
    _threads: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._threads = self._count()

    def stop(self) -> CpuUse:
        """What was used since the start. Processes that ended meanwhile count as idle."""
        seconds = time.perf_counter() - self._started
        used = {name: value - self._threads.get(name, 0.0) for name, value in self._count().items()}
        busy, stolen = (
            after - before for after, before in zip(_machine_seconds(), self._machine, strict=True)
        )
        by_process = dict.fromkeys((*self.processes, "client"), 0.0)
        for name, value in used.items():
            by_process[name.split("/")[0]] += value
        capacity = seconds * (os.cpu_count() or 1)
        return CpuUse(
            seconds,
            by_process,
            {name: value for name, value in used.items() if value > 0},
            max(0.0, busy - sum(used.values())) / capacity,
            max(0.0, stolen) / capacity,
        )

    def _count(self) -> dict[str, float]:
        """CPU seconds so far by "role/thread name"."""
        totals: dict[str, float] = {}
        roles = {**self.processes, "client": [psutil.Process()]}
        for role, processes in roles.items():
            for process in processes:
                for name, seconds in _thread_seconds(process.pid):
                    totals[f"{role}/{name}"] = totals.get(f"{role}/{name}", 0.0) + seconds
        return totals


def _thread_seconds(pid: int) -> list[tuple[str, float]]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            # "tid (name) state …", where the name may hold anything.
            head, _, rest = (task / "stat").read_text().rpartition(")")
            fields = rest.split()
            name = head.split("(", 1)[1]
            found.append((name, (int(fields[11]) + int(fields[12])) / _TICKS))
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended
    return found


def _machine_seconds() -> tuple[float, float]:
    """(busy, stolen) CPU seconds of all CPUs since boot."""
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq
    return busy, times.steal


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


@dataclass(frozen=True, slots=True)
class Memory:
    """Of several processes, in MiB."""

    pss: int  # shared pages counted once
    rss: int


def memory_of(processes: list[psutil.Process]) -> Memory:
    """What these processes have in memory now."""
    infos = [process.memory_full_info() for process in processes if process.is_running()]
    return Memory(sum(info.pss for info in infos) >> 20, sum(info.rss for info in infos) >> 20)


class Roof:
    """The program that measures the machine's limits, compiled for it."""

    def __init__(self, binary: Path) -> None:
        """Compiles it. Raises subprocess.CalledProcessError if the compiler fails."""
        self._binary = binary
        binary.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++", "-O3", "-std=c++17", "-march=native", "-pthread", str(ROOF_SOURCE)]
        subprocess.run([*command, "-o", str(binary)], check=True)

    def measure(self, threads: int, *, arithmetic: bool) -> list[dict[str, float | None]]:
        """Limits for 1 to `threads` threads, as the program names them."""
        words = [str(self._binary), str(threads), *([] if arithmetic else ["read"])]
        result = subprocess.run(words, check=True, capture_output=True)
        return [orjson.loads(line) for line in result.stdout.splitlines()]

    def read_gb_s(self, threads: int) -> float:
        """Bytes read per second by so many threads, now."""
        rate = self.measure(threads, arithmetic=False)[-1]["read_gb_s"]
        assert rate is not None
        return rate


def description() -> dict[str, str | int]:
    """What the machine is."""
    model = platform.processor() or "unknown"
    flags: set[str] = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() == "flags":
            flags = set(value.split())
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    return {
        "cpu": model,
        "cores": os.cpu_count() or 1,
        "instructions": " ".join(name for name in wanted if name in flags),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "kernel": platform.release(),
    }
