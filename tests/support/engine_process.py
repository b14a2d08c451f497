"""One engine, or one node of an engine, as the process that a user starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc


def channel_to(target: str) -> grpc.Channel:
    """A channel that soon notices an engine which begins to listen."""
    often = ("grpc.initial_reconnect_backoff_ms", "grpc.max_reconnect_backoff_ms")
    return grpc.insecure_channel(target, options=[(name, 100) for name in often])


def model_info(
    stub: engine_pb2_grpc.EngineStub, process: subprocess.Popen[bytes], log: Path
) -> pb.GetModelInfoResponse:
    """What the engine says of its model, once it serves; fails where its process has ended."""
    while True:
        try:
            request = pb.GetModelInfoRequest()
            return stub.GetModelInfo(request, timeout=2, wait_for_ready=True)
        except grpc.RpcError:
            assert process.poll() is None, log.read_text()


@dataclass(frozen=True)
class EngineProcess:
    """A process, where it serves, and what it says."""

    process: subprocess.Popen[bytes]
    stub: engine_pb2_grpc.EngineStub
    log: Path

    def wait_ready(self) -> pb.GetModelInfoResponse:
        """What the engine says of its model, once it serves."""
        return model_info(self.stub, self.process, self.log)

    def children(self) -> list[psutil.Process]:
        """The processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def generate(self, prompt: list[int], max_tokens: int, lora: str = ""):
        """A greedy request, with the log-probabilities of its tokens: a stream of events."""
        return self.stub.Generate(
            pb.GenerateRequest(
                prompt_token_ids=prompt,
                sampling=pb.SamplingParams(temperature=0.0),
                logprobs=pb.LogprobsParams(top_k=0),
                stopping=pb.StoppingParams(max_tokens=max_tokens, ignore_eos=True),
                lora=lora,
            )
        )


@contextmanager
def engine_process(
    model: Path, directory: Path, *args: str, environment: Mapping[str, str] | None = None
) -> Iterator[EngineProcess]:
    """`python -m engine_svc MODEL ARGS` on a socket in `directory`, until the block ends."""
    target = f"unix:{directory / 'engine.sock'}"
    log = directory / "engine.log"
    command = [sys.executable, "-m", "engine_svc", str(model), "--listen", target, *args]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stderr=sink, stdout=sink, env=os.environ | (environment or {})
        )
    try:
        with channel_to(target) as channel:
            yield EngineProcess(process, engine_pb2_grpc.EngineStub(channel), log)
    finally:
        process.kill()
        process.wait()
