"""Has a server score and continue windows of a text, over the public gRPC API.

A window of n tokens asks for the log-probability of tokens 1 … n-1 (nothing predicts token 0), for
the likeliest token at each of these places, and for a greedy continuation; one request gives all:

    window           t0  t1  t2 … tn-1
    token_logprobs       l1  l2 … ln-1
    top_ids              b1  b2 … bn-1
    continuation                        c0 c1 …
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import numpy as np
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

_TIMEOUT_SECONDS = 600.0


class ScoringError(Exception):
    """The server refused, or scored other tokens than it was given."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model says of windows of equal length."""

    token_logprobs: npt.NDArray[np.float64]  # [num_windows, window_tokens - 1]
    top_ids: npt.NDArray[np.int64]  # [num_windows, window_tokens - 1]
    # [num_windows, output_tokens]; None if none were made
    continuations: npt.NDArray[np.int64] | None


def cut(tokens: Sequence[int], window_tokens: int, num_windows: int | None) -> list[list[int]]:
    """Whole windows, one after the other; if there are more than num_windows, as many of them
    spread evenly over the text.

    Raises ValueError if the text has no whole window.
    """
    whole = len(tokens) // window_tokens
    if whole == 0:
        raise ValueError(f"a text of {len(tokens)} tokens has no window of {window_tokens}")
    count = whole if num_windows is None else min(num_windows, whole)
    firsts = [(i * whole // count) * window_tokens for i in range(count)]
    return [list(tokens[first : first + window_tokens]) for first in firsts]


def num_scored(windows: Sequence[Sequence[int]]) -> int:
    """Tokens whose log-probability counts: all but the first of each window."""
    return sum(len(window) - 1 for window in windows)


async def tokenize(grpc_target: str, text: str) -> list[int]:
    """The text's token ids by the server's own tokeniser. Raises ScoringError if refused."""
    async with grpc.aio.insecure_channel(grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        request = pb.TokenizeRequest(prompt=text, add_special_tokens=False)
        try:
            answer = await stub.Tokenize(request, timeout=_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise ScoringError(f"{error.code().name}: {error.details()}") from error
    return list(answer.tokens)


async def score(
    grpc_target: str,
    windows: Sequence[Sequence[int]],
    output_tokens: int,
    in_flight: int,
    on_done: Callable[[], object],
) -> Scores:
    """Scores windows of equal length, several at a time, and continues each greedily.

    At least one token is generated, as the API wants. `on_done` is called after each window.
    Raises ScoringError if the server refuses a window or scores other tokens.
    """
    results: list[pb.CompletionChoice | None] = [None] * len(windows)
    todo = iter(enumerate(windows))
    async with grpc.aio.insecure_channel(grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        async def worker() -> None:
            for index, window in todo:
                results[index] = await _score_one(stub, window, output_tokens)
                on_done()

        await asyncio.gather(*(worker() for _ in range(in_flight)))
    choices = [choice for choice in results if choice is not None]
    entries = [choice.prompt_logprobs[1:] for choice in choices]
    return Scores(
        np.array([[e.token.logprob for e in row] for row in entries], dtype=np.float64),
        np.array([[e.top[0].token_id for e in row] for row in entries], dtype=np.int64),
        np.array([choice.token_ids for choice in choices], dtype=np.int64),
    )


async def _score_one(
    stub: inference_pb2_grpc.InferenceAsyncStub, window: Sequence[int], output_tokens: int
) -> pb.CompletionChoice:
    request = pb.CreateCompletionRequest(
        prompt=pb.Prompt(token_ids=pb.TokenIds(items=window)),
        max_tokens=output_tokens,
        temperature=0,
        ignore_eos=True,  # so that all continuations have the same length
        prompt_logprobs=1,
        return_token_ids=True,
    )
    try:
        answer = await stub.CreateCompletion(request, timeout=_TIMEOUT_SECONDS)
    except grpc.aio.AioRpcError as error:
        raise ScoringError(f"{error.code().name}: {error.details()}") from error
    (choice,) = answer.choices
    scored = [entry.token.token_id for entry in choice.prompt_logprobs[1:]]
    if scored != list(window[1:]):
        raise ScoringError(f"{len(scored)} tokens were scored that are not the window's")
    if len(choice.token_ids) != output_tokens:
        raise ScoringError(f"{len(choice.token_ids)} tokens came, {output_tokens} were wanted")
    return choice
