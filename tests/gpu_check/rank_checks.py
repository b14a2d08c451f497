"""One decoder on two GPUs over NCCL: the reference's logits, and an end where one rank is lost."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from kernels.collectives import Group
from kernels.gpu.backend import GpuBackend
from tests.gpu_check.decoder_checks import compared, logits_of, precision_of, prompt_of, steps_of
from tests.gpu_check.models import small_families, smollm2_file
from tests.gpu_check.outcome import Findings, Skip
from tests.kernels.decoder_steps import DictSource, Run, random_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from kernels.spec import DecoderSpec
    from tests.gpu_check.device import Device

_RANKS = 2
_PATIENCE = timedelta(seconds=60)
_TIMED = (64, 4096)  # rows and columns of a sum that is timed: 64 streams of Llama-3.1-8B
_CALLS = 20  # of a graph that is timed
_END_SECONDS = 15.0  # for an engine to end; it should take less than two


def check_ranks(device: Device, dtype: torch.dtype, family: str) -> Findings:
    """Logits of two ranks are as near to the reference as those of one; graphs have the sums."""
    _need_gpus(device)
    spec = small_families(tiny=False)[family]
    gpus = [torch.device("cuda", index) for index in range(_RANKS)]
    return compare_ranks(spec, dtype, gpus, prompt_of(spec, tiny=False))


def compare_ranks(
    spec: DecoderSpec, dtype: torch.dtype, devices: list[torch.device], tokens: list[int]
) -> Findings:
    """Runs a rank on each device in a process of its own, and compares what rank 0 has."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as scratch:
        processes = [
            context.Process(
                target=_run_rank,
                args=(rank, device, str(Path(scratch) / "store"), spec, dtype, tokens, theirs),
                daemon=True,
            )
            for rank, device in enumerate(devices)
        ]
        for process in processes:
            process.start()
        theirs.close()
        try:
            assert ours.poll(_PATIENCE.total_seconds()), "rank 0 gave nothing"
            logits, note = ours.recv()
        except EOFError:
            raise AssertionError("the ranks ended without a result") from None
        finally:
            for process in processes:
                process.kill()
                process.join()
    findings = compared(spec, dtype, tokens, torch.from_numpy(logits))
    return dataclasses.replace(findings, note=findings.note + note)


def _run_rank(
    rank: int,
    device: torch.device,
    store: str,
    spec: DecoderSpec,
    dtype: torch.dtype,
    tokens: list[int],
    pipe: Connection,
) -> None:
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "nccl"
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=_RANKS, timeout=_PATIENCE
    )
    steps = dist.new_group(list(range(_RANKS)), timeout=_PATIENCE, backend=backend)
    group = Group(steps)
    group.connect(device)
    made = GpuBackend(device, max_num_batched_tokens=512, max_num_seqs=64, collectives=group)
    source = DictSource(random_weights(spec))
    decoder = made.load(spec, source, precision_of(dtype), lambda _done, _total: None)
    logits = None
    if rank == 0:
        logits = logits_of(decoder, tokens).numpy()
    else:
        run = Run(decoder)
        for chunks in steps_of(tokens):
            rows = range(sum(len(chunk) for _, chunk in chunks))
            decoder.step(run.inputs(*chunks, logits_rows=rows))
    note = ""
    if device.type == "cuda":
        x = torch.zeros(_TIMED, dtype=dtype, device=device)
        ours = _microseconds(lambda: group.sum(x))
        theirs = _microseconds(lambda: dist.all_reduce(x, group=steps))
        note = f"; a sum of {_TIMED[0]} × {_TIMED[1]}: {ours:.0f} µs, an all-reduce {theirs:.0f} µs"
    if rank == 0:
        pipe.send((logits, note))
    time.sleep(_PATIENCE.total_seconds())  # graphs hold the group; whoever started this ends it


def _microseconds(call: Callable[[], object]) -> float:
    """Of one call among some in a graph, as a decode step has them. All ranks make this call."""
    call()  # what is compiled or connected, before it is captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(_CALLS):
            call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000 / _CALLS


def check_loss(device: Device, model: Path | None) -> Findings:
    """An engine on two GPUs whose second rank is killed ends at once, while it answers."""
    _need_gpus(device)
    path = smollm2_file(model)
    from tests.support.engine_process import engine_process

    flags = ("--device=cuda", f"--tensor-parallel-size={_RANKS}", "--max-model-len=2048")
    with (
        tempfile.TemporaryDirectory() as scratch,
        engine_process(path, Path(scratch), *flags) as engine,
    ):
        engine.wait_ready()
        (worker,) = engine.children()
        next(engine.generate([5, 6, 7, 8], 2000))
        os.kill(worker.pid, signal.SIGKILL)
        start = time.monotonic()
        code = engine.process.wait(_END_SECONDS)
        seconds = time.monotonic() - start
        said = engine.log.read_text()
    assert code == 1, f"the engine ended with {code}"
    assert "was killed by SIGKILL" in said, said[-500:]
    return Findings(f"the engine ended after {seconds:.1f} s")


def _need_gpus(device: Device) -> None:
    if device.is_interpreted:
        raise Skip("interpreted ranks are in tests/kernels/gpu/test_gpu_tensor_parallel.py")
    if (count := torch.cuda.device_count()) < _RANKS:
        raise Skip(f"{count} GPU is here; each rank needs one of its own")
