"""Which of the sampled answers are returned."""

from __future__ import annotations

import math

import pytest
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api.best_of import Likelihoods, num_samples
from router_svc.errors import ApiError
from router_svc.generation_types import Logprob


def chosen(logprobs: list[list[float]], *, n: int, samples: int) -> list[tuple[int, str]]:
    """The new index and the text of each choice returned; a choice's text is its old index."""
    likelihoods = Likelihoods()
    for index, values in enumerate(logprobs):
        for value in values:  # tokens come one by one
            likelihoods.add(index, [Logprob(0, value, 1, ())])
    choices = [pb.CompletionChoice(index=i, text=str(i)) for i in range(len(logprobs))]
    return [(one.index, one.text) for one in likelihoods.best(choices, n, samples)]


def test_the_likeliest_a_token_come_first_of_each_prompt() -> None:
    logprobs = [[-1.0, -3.0], [-1.5], [-0.5] * 9, [-9.0], [-8.0], [-7.0]]

    assert chosen(logprobs, n=2, samples=3) == [(0, "2"), (1, "1"), (2, "5"), (3, "4")]


def test_equally_likely_ones_keep_their_order() -> None:
    assert chosen([[-1.0], [-1.0], [-math.inf]], n=2, samples=3) == [(0, "0"), (1, "1")]


def test_all_that_were_sampled_stay_in_their_order() -> None:
    assert chosen([[-2.0], [-1.0]], n=2, samples=2) == [(0, "0"), (1, "1")]


@pytest.mark.parametrize(
    ("best_of", "n", "streamed", "samples"),
    [(None, 3, True, 3), (None, 1, False, 1), (5, 2, False, 5), (2, 2, True, 2)],
)
def test_as_many_are_sampled_as_are_asked_for(
    best_of: int | None, n: int, streamed: bool, samples: int
) -> None:
    request = pb.CreateCompletionRequest(best_of=best_of)

    assert num_samples(request, n, streamed=streamed) == samples


@pytest.mark.parametrize(("best_of", "n", "streamed"), [(1, 2, False), (3, 1, True)])
def test_what_cannot_be_is_refused(best_of: int, n: int, streamed: bool) -> None:
    with pytest.raises(ApiError) as caught:
        num_samples(pb.CreateCompletionRequest(best_of=best_of), n, streamed=streamed)

    assert caught.value.param == "best_of"
