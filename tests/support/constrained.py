"""An engine process and requests for constrained output, for tests and benchmarks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from tests.support.engine_process import channel_to, model_info

PROMPT = "<|im_start|>user\nGive an example as JSON.<|im_end|>\n<|im_start|>assistant\n"


@contextmanager
def engine_process(model: Path, *args: str) -> Iterator[engine_pb2_grpc.EngineStub]:
    """An engine of its own process, ready to serve."""
    with TemporaryDirectory() as directory:
        target = f"unix:{directory}/engine.sock"
        log = Path(directory) / "log"
        command = [sys.executable, "-m", "engine_svc", str(model), "--listen", target, *args]
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stderr=sink, stdout=sink)
        try:
            with channel_to(target) as channel:
                stub = engine_pb2_grpc.EngineStub(channel)
                model_info(stub, process, log)
                yield stub
        finally:
            process.kill()
            process.wait()


@dataclass
class Answer:
    """One choice, whole."""

    token_ids: list[int] = field(default_factory=list)
    reason: int = pb.FINISH_REASON_UNSPECIFIED
    stop_token_id: int | None = None
    logprobs: list[float] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether it ended by itself rather than at a limit."""
        return self.reason == pb.FINISH_REASON_STOP


def request(
    prompt: Sequence[int],
    constraint: pb.Constraint | None = None,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    max_tokens: int = 200,
    **fields: object,
) -> pb.GenerateRequest:
    """A request to generate; `fields` are more of its own, and win."""
    message = pb.GenerateRequest(
        prompt_token_ids=prompt,
        sampling=pb.SamplingParams(temperature=temperature, seed=seed),
        stopping=pb.StoppingParams(max_tokens=max_tokens),
        constraint=constraint,
    )
    message.MergeFrom(pb.GenerateRequest(**fields))  # type: ignore[arg-type] # any of its fields
    return message


def collect(events: Iterator[pb.GenerateResponse]) -> list[Answer]:
    """The choices of a call to Generate, by number."""
    answers: dict[int, Answer] = {}
    for event in events:
        match event.WhichOneof("event"):
            case "delta":
                answer = answers.setdefault(event.delta.choice, Answer())
                answer.token_ids += event.delta.token_ids
                answer.logprobs += event.delta.logprobs.token_logprobs
            case "finish":
                answer = answers.setdefault(event.finish.choice, Answer())
                answer.reason = event.finish.reason
                if event.finish.HasField("stop_token_id"):
                    answer.stop_token_id = event.finish.stop_token_id
    return [answers[choice] for choice in sorted(answers)]
