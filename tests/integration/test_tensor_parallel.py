"""One engine on several ranks: the tokens of one rank, and one end for all of them.

The reference (tests/data/reference_greedy.json) was made by transformers in float32 from the same
checkpoint; one rank gives its tokens (test_token_exact.py), and so must two.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import grpc
import psutil
import pytest

from engine_svc.config import ConfigError
from engine_svc.loader.open_model import open_model
from engine_svc.memory import format_bytes
from tests.support.awkward_model import make_awkward
from tests.support.engine_process import engine_process
from tests.support.peft_files import make_adapter
from tests.support.plan_model import plan
from tests.support.run_engine import greedy_tokens, load
from tests.support.server import free_port

REFERENCE = json.loads((Path(__file__).parents[1] / "data/reference_greedy.json").read_text())
CASES = [case for case in REFERENCE["cases"] if len(case["prompt_token_ids"]) < 100]
NUM_TOKENS = 20
TWO = ("--tensor-parallel-size=2", "--dtype=float32")
PROMPT = [5, 6, 7, 8]
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_awkward(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def smollm2(smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory):
    small = ("--max-model-len=512", "--kv-cache-memory-bytes=100000000")
    with engine_process(smollm2_checkpoint, tmp_path_factory.mktemp("tp"), *TWO, *small) as engine:
        engine.wait_ready()
        yield engine
        workers = engine.children()
        engine.process.kill()
        _, alive = psutil.wait_procs(workers, timeout=60)
    # Whatever becomes of an engine, its workers do not outlive it.
    assert (len(workers), alive) == (1, [])


def token_ids(events) -> list[int]:
    return [token for event in events for token in event.delta.token_ids]


def logprobs(events) -> list[float]:
    return [value for event in events for value in event.delta.logprobs.token_logprobs]


def test_two_ranks_give_the_tokens_of_one(smollm2) -> None:
    calls = [
        (case, smollm2.generate(case["prompt_token_ids"], NUM_TOKENS)) for case in CASES
    ]  # 3 KV heads, so that the ranks have 2 and 1

    for case, call in calls:
        expected = case["output_token_ids"][:NUM_TOKENS]
        assert token_ids(call)[: len(expected)] == expected, case["name"]


def test_a_request_alone_has_the_bits_of_one_in_company(smollm2) -> None:
    prompts = [case["prompt_token_ids"] for case in CASES[:3]]

    together = [smollm2.generate(prompt, 6) for prompt in prompts]
    in_company = [logprobs(call) for call in together]
    alone = [logprobs(smollm2.generate(prompt, 6)) for prompt in prompts]

    assert [len(values) for values in alone] == [6, 6, 6]
    assert alone == in_company


def test_start_up_says_who_computes_and_how_the_model_is_cut(smollm2) -> None:
    text = smollm2.log.read_text()

    assert "rank 0 has 2 of 3 KV heads, 768 of 1,536 neurons, 24,576 of 49,152 tokens" in text
    assert "the C++ kernels compute on one rank, not on 2" in text


def test_a_killed_worker_ends_the_engine_and_what_runs_can_go_on_elsewhere(
    tiny: Path, tmp_path: Path
) -> None:
    before = set(SHARED_MEMORY.iterdir())
    with engine_process(tiny, tmp_path, *TWO) as engine:
        engine.wait_ready()
        (worker,) = engine.children()
        call = engine.generate(PROMPT, 250)
        next(call)
        worker.send_signal(signal.SIGKILL)
        with pytest.raises(grpc.RpcError) as error:
            list(call)
        code = engine.process.wait(60)

    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert code == 1
    assert f"rank 1 (process {worker.pid}) was killed by SIGKILL" in engine.log.read_text()
    assert set(SHARED_MEMORY.iterdir()) <= before


def test_two_nodes_serve_as_one_engine(tiny: Path, tmp_path: Path) -> None:
    meet = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}")
    adapter = make_adapter(tmp_path / "adapter", open_model(tiny).spec, std=0.15)
    lora = ("--enable-lora", f"--lora-modules=tuned={adapter}")
    alone = load(tiny, "--dtype=float32", *lora)
    expected = [greedy_tokens(alone, [PROMPT], 20, adapter_slot=slot)[0] for slot in (-1, 0)]
    with ExitStack() as stack:
        nodes = []
        for rank in range(2):
            (directory := tmp_path / str(rank)).mkdir()
            # An adapter's files are read on the first node and told to the others.
            flags = (*TWO, *meet, f"--node-rank={rank}", *(lora if rank == 0 else ()))
            node = engine_process(tiny, directory, *flags)
            nodes.append(stack.enter_context(node))
        leader, follower = nodes
        leader.wait_ready()
        answers = [token_ids(leader.generate(PROMPT, 20, name)) for name in ("", "tuned")]
        for node in nodes:  # as a cluster stops a group; who only follows leaves the end to node 0
            node.process.send_signal(signal.SIGTERM)
        codes = [node.process.wait(60) for node in nodes]

    assert answers == expected
    assert answers[0] != answers[1]
    assert codes == [0, 0]
    assert "rank 1 of 2 is ready" in follower.log.read_text()
    assert "on 2 nodes" in leader.log.read_text()


def test_the_plan_is_what_rank_0_takes(tiny: Path) -> None:
    flags = (*TWO, "--enable-lora", "--max-loras=64")
    planned = plan(tiny, *flags)
    engine = load(tiny, *flags)
    engine.executor.close()

    said = "\n".join(engine.model_info.summary)
    assert planned.fits
    assert f"weights {format_bytes(planned.weight_bytes)}" in said
    assert f"activations up to {format_bytes(planned.activation_bytes)}" in said
    assert f"{format_bytes(planned.adapter_bytes)} for adapters" in said
    assert f"KV per token: {planned.kv.bytes_per_token:,} bytes = {planned.kv.arithmetic}" in said
    assert engine.model_info.num_blocks == planned.kv.num_blocks


def test_a_node_with_another_model_is_refused_on_both(tiny: Path, tmp_path: Path) -> None:
    meet = ("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}")
    with ExitStack() as stack:
        nodes = []
        for rank in range(2):
            (directory := tmp_path / str(rank)).mkdir()
            flags = (*meet, f"--node-rank={rank}", f"--block-size={16 << rank}")
            nodes.append(stack.enter_context(engine_process(tiny, directory, *TWO, *flags)))
        codes = [node.process.wait(60) for node in nodes]

    assert codes == [1, 1]
    for node in nodes:
        assert "every node needs the same model and flags" in node.log.read_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tensor-parallel-size=4",), "--tensor-parallel-size 4: 4 ranks .* 2 KV heads"),
        (("--tensor-parallel-size=2", "--nnodes=2"), "--master-addr and --master-port"),
        (("--tensor-parallel-size=2", "--master-addr=here"), "give --nnodes"),
        (
            (
                *("--tensor-parallel-size=2", "--nnodes=2", "--node-rank=2"),
                *("--master-addr=h", "--master-port=1"),
            ),
            "--node-rank 2 is not below --nnodes 2",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused_by_its_flag(
    tiny: Path, flags: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load(tiny, *flags)
