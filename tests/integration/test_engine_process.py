"""The engine as a process of its own, with the real model: greedy ids, signals, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import grpc
import pytest
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from tests.support.engine_process import channel_to, model_info
from tests.support.otlp_receiver import otlp_receiver

# Greedy answers of transformers in float32; the closest runner-up is 0.2 logits away.
CAPITAL = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411]
CAPITAL += [407, 19712, 8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 3085, 47, 2, 198, 1]
CAPITAL += [520, 9531, 198]
CAPITAL_ANSWER = [504, 3575, 282, 3085, 314, 19081, 30, 2]
NAME = CAPITAL[:24]
NAME += [5965, 1462, 314, 27277, 30, 2, 198, 1, 520, 9531, 198, 62, 569, 288, 2220, 346, 28, 27277]
NAME += [17, 1073, 416, 339, 724, 47, 2, 198, 1, 4093, 198, 1780, 314, 957, 1462, 47, 2, 198, 1]
NAME += [520, 9531, 198]
NAME_ANSWER = [62, 569, 288, 2220, 346, 28, 27277, 17, 1073, 416, 339, 724, 346, 47, 2]
SMALL = ("--max-model-len=1024", "--kv-cache-memory-bytes=100000000")


@contextmanager
def engine_process(model, directory, *args):
    """An engine that listens on a socket in `directory`: the process, a stub, and its log."""
    target = f"unix:{directory / 'engine.sock'}"
    log = directory / "engine.log"
    command = [sys.executable, "-m", "engine_svc", str(model), "--listen", target, *args]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stderr=sink, stdout=sink)
    try:
        with channel_to(target) as channel:
            yield process, engine_pb2_grpc.EngineStub(channel), log
    finally:
        process.kill()
        process.wait()


def wait_ready(process, stub, log):
    return model_info(stub, process, log)


@pytest.fixture(scope="module")
def engine(smollm2_checkpoint, tmp_path_factory):
    with engine_process(smollm2_checkpoint, tmp_path_factory.mktemp("engine"), *SMALL) as running:
        wait_ready(*running)
        yield running


def greedy(prompt, max_tokens, **stopping):
    return pb.GenerateRequest(
        prompt_token_ids=prompt,
        sampling=pb.SamplingParams(temperature=0.0),
        stopping=pb.StoppingParams(max_tokens=max_tokens, **stopping),
    )


def token_ids(events):
    return [token for event in events for token in event.delta.token_ids]


def test_greedy_answers_are_those_of_the_reference_alone_and_together(engine):
    _, stub, _ = engine
    cases = [(CAPITAL, CAPITAL_ANSWER), (NAME, NAME_ANSWER)]

    alone = [token_ids(stub.Generate(greedy(prompt, 64))) for prompt, _ in cases]
    calls = [stub.Generate(greedy(prompt, 64)) for prompt, _ in cases]
    together = [token_ids(call) for call in calls]

    assert alone == together == [answer for _, answer in cases]


def test_start_up_says_what_fits(engine):
    _, stub, log = engine

    info = stub.GetModelInfo(pb.GetModelInfoRequest())

    text = log.read_text()
    assert "loading weights" in text
    assert "Maximum concurrency for 1,024 tokens per request:" in text
    assert info.max_model_len == 1024
    assert info.summary[-1] in text
    assert 2 in info.eos_token_ids


def test_sigterm_finishes_what_runs_and_exits_cleanly(smollm2_checkpoint, tmp_path):
    with engine_process(smollm2_checkpoint, tmp_path, *SMALL) as (process, stub, log):
        wait_ready(process, stub, log)
        call = stub.Generate(greedy(CAPITAL, 60, ignore_eos=True))
        first = next(call)
        process.send_signal(signal.SIGTERM)
        events = list(call)
        code = process.wait()

    assert first.HasField("admitted")
    assert len(token_ids(events)) == 60
    assert events[-1].HasField("finish")
    assert code == 0


def test_its_start_and_its_requests_are_traced_and_its_log_is_json(smollm2_checkpoint, tmp_path):
    with otlp_receiver() as receiver:
        flags = (*SMALL, f"--otlp-traces-endpoint={receiver.endpoint}", "--log-format=json")
        with engine_process(smollm2_checkpoint, tmp_path, *flags) as (process, stub, log):
            instance = wait_ready(process, stub, log).instance_id
            list(stub.Generate(greedy(CAPITAL, 2)))
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()  # and has sent what was left

    (start,) = receiver.named("engine start")
    phases = [span.name for span in receiver.spans if span.parent_id == start.span_id]
    assert phases == [
        "importing",
        "reading config",
        "planning memory",
        "loading weights",
        "allocating KV",
        "warming up",
    ]
    (request,) = [span for span in receiver.spans if span.name.startswith("text_completion")]
    assert start.attributes["octavo.engine.instance_id"] == instance
    assert request.attributes["octavo.engine.instance_id"] == instance
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(line["message"].startswith("engine ready") for line in lines)


def test_a_start_that_fails_is_traced(smollm2_checkpoint, tmp_path):
    with otlp_receiver() as receiver:
        flags = ("--kv-cache-memory-bytes=1000", f"--otlp-traces-endpoint={receiver.endpoint}")
        with engine_process(smollm2_checkpoint, tmp_path, *flags) as (process, _, log):
            assert process.wait(60) == 1

    (start,) = receiver.named("engine start")
    assert start.attributes["octavo.outcome"] == "error"
    assert start.message
    assert start.message in log.read_text()


def test_a_second_signal_stops_at_once(smollm2_checkpoint, tmp_path):
    with engine_process(smollm2_checkpoint, tmp_path, *SMALL) as (process, stub, log):
        wait_ready(process, stub, log)
        call = stub.Generate(greedy(CAPITAL, 900, ignore_eos=True))
        next(call)
        process.send_signal(signal.SIGTERM)
        while "draining" not in log.read_text():
            next(call)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as error:
            list(call)
        code = process.wait()

    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert code == 0


def test_an_engine_does_not_outlive_its_launcher(smollm2_checkpoint, tmp_path):
    listen = f"unix:{tmp_path / 'engine.sock'}"
    command = [sys.executable, "-m", "engine_svc", str(smollm2_checkpoint), "--listen", listen]
    command += [*SMALL, "--exit-with-parent"]
    start = f"subprocess.Popen({command!r} + [str(os.getpid())], stderr=1)"
    code = f"import os, subprocess; {start}; input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as launcher:
        assert b"importing" in launcher.stdout.readline()  # the engine runs, and holds the pipe
        launcher.kill()
        launcher.stdout.read()  # ends when the last process that holds the pipe has ended


def test_an_engine_whose_launcher_has_ended_already_does_not_start(smollm2_checkpoint, tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    listen = f"unix:{tmp_path / 'engine.sock'}"
    command = [sys.executable, "-m", "engine_svc", str(smollm2_checkpoint), "--listen", listen]

    result = subprocess.run([*command, "--exit-with-parent", str(gone.pid)], capture_output=True)

    assert result.returncode == 1
    assert b"importing" not in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--max-model-len=9000",), ("--max-model-len", "9000", "8192")),
        (("--max-model-len=8192", "--kv-cache-memory-bytes=10000000"), ("--max-model-len", "8192")),
        (
            ("--kv-cache-memory-bytes=99000000000000", "--max-num-seqs=4096"),
            ("--kv-cache-memory-bytes", "free"),
        ),
        (("--max-num-seqs=64", "--max-num-batched-tokens=8"), ("--max-num-seqs", "64", "8")),
    ],
)
def test_what_cannot_work_is_refused_with_both_numbers_and_the_flag(
    smollm2_checkpoint, tmp_path, args, words
):
    with engine_process(smollm2_checkpoint, tmp_path, *args) as (process, _, log):
        assert process.wait() == 1

    for word in words:
        assert word in log.read_text()
