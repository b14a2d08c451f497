"""N-gram speculation over the whole stack: the same answers in fewer steps.

Guesses are right where an answer repeats its prompt or itself, and wrong elsewhere; neither may
show in what a client gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.server import RunningServer, running_server

FLAG = (
    '--speculative-config={"method":"ngram","num_speculative_tokens":5,'
    '"prompt_lookup_max":4,"prompt_lookup_min":2}'
)
LIST = "Anna lives in Berlin. Paul lives in Paris. Laura lives in Rome. John lives in London. "
CODE = "def area(shape):\n    if shape.kind == 'circle':\n        return 3.14 * shape.radius\n"


def _request(prompt: str, **fields: object) -> dict:
    """A completion; `n` and `stop` may be among the fields."""
    return {"prompt": prompt, "max_tokens": 60, "seed": 7, "return_token_ids": True} | fields


REQUESTS = [
    _request(LIST * 2, temperature=0, ignore_eos=True),
    _request(CODE * 3, temperature=0.4, top_p=0.9, ignore_eos=True),
    _request("one two three one two three one two", temperature=1, top_k=3, ignore_eos=True),
    _request("The river was", temperature=1.3, ignore_eos=True),
    _request(LIST * 3, temperature=0, stop=["Rome"]),
    _request(LIST, temperature=0.5, n=2, min_tokens=30),
    _request(CODE * 2, temperature=0, max_tokens=23, logprobs=1, ignore_eos=True),
    _request(LIST * 2, temperature=0.2, repetition_penalty=1.2, ignore_eos=True),
]


def _ask(server: RunningServer, request: dict) -> list[dict]:
    """The choices of the answer."""
    answer = httpx.post(f"{server.url}/v1/completions", json=request, timeout=100)
    return answer.raise_for_status().json()["choices"]


@pytest.fixture(scope="module")
def guessing(
    smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    log = tmp_path_factory.mktemp("guessing") / "log"
    with running_server(smollm2_checkpoint, "--max-model-len=512", FLAG, log=log) as server:
        yield server


@pytest.fixture(scope="module")
def plain(server: RunningServer) -> list[list[dict]]:
    """The answers of a server that does not guess."""
    return [_ask(server, request) for request in REQUESTS]


def test_one_after_the_other(guessing: RunningServer, plain: list[list[dict]]) -> None:
    assert [_ask(guessing, request) for request in REQUESTS] == plain

    guessed = guessing.metric("vllm:spec_decode_num_draft_tokens_total")
    accepted = guessing.metric("vllm:spec_decode_num_accepted_tokens_total")
    assert 50 < accepted < guessed


@pytest.mark.parametrize("count", [2, 4, len(REQUESTS)])
def test_together(guessing: RunningServer, plain: list[list[dict]], count: int) -> None:
    with ThreadPoolExecutor(count) as threads:
        answers = list(threads.map(lambda request: _ask(guessing, request), REQUESTS[:count]))

    assert answers == plain[:count]
