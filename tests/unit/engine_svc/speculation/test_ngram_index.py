"""Guesses from a request's own n-grams."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine_svc.speculation.ngram_index import NgramIndex


def index_of(tokens, min_match=2, max_match=4) -> NgramIndex:
    index = NgramIndex(min_match, max_match)
    index.extend(tokens)
    return index


def test_what_followed_the_same_tokens_before_is_proposed() -> None:
    assert index_of([1, 2, 3, 4, 5, 1, 2]).propose(3, 3) == (3, 4, 5)


def test_without_a_match_nothing_is_proposed() -> None:
    assert index_of([1, 2, 3, 4, 5]).propose(3, 3) == ()
    assert index_of([1]).propose(3, 3) == ()
    assert index_of([]).propose(3, 3) == ()


def test_the_longest_match_wins_over_a_later_one() -> None:
    #      └ 7 1 2 ┘       └ 1 2 ┘      └ 7 1 2 ┘
    assert index_of([7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2]).propose(1, 1) == (30,)


def test_of_equal_matches_the_latest_wins() -> None:
    assert index_of([7, 1, 2, 30, 7, 1, 2, 40, 7, 1, 2]).propose(1, 1) == (40,)


def test_a_longer_match_than_the_maximum_is_no_better() -> None:
    tokens = [7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2]

    assert index_of(tokens, max_match=2).propose(1, 1) == (40,)


def test_a_match_below_the_maximum_gets_fewer_guesses() -> None:
    tokens = [7, 1, 2, 3, 4, 5, 6, 8, 1, 2]

    assert index_of(tokens, max_match=3).propose(4, 2) == (3, 4)
    assert index_of(tokens, max_match=2).propose(4, 2) == (3, 4, 5, 6)


def test_a_loop_goes_on_beyond_the_last_token() -> None:
    assert index_of([5, 1, 2, 3, 1, 2, 3, 1, 2]).propose(7, 7) == (3, 1, 2, 3, 1, 2, 3)


@given(
    tokens=st.lists(st.integers(0, 3), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    min_match=st.integers(1, 3),
    more=st.integers(0, 3),
)
def test_it_finds_the_best_place_however_the_tokens_came(tokens, cuts, min_match, more) -> None:
    max_match = min_match + more
    index = NgramIndex(min_match, max_match)
    bounds = [0, *sorted(min(cut, len(tokens)) for cut in cuts), len(tokens)]
    for start, stop in itertools.pairwise(bounds):
        index.extend(tokens[start:stop])

    best, longest = 0, min_match - 1
    places = [
        end
        for end in range(min_match, len(tokens))
        if tokens[end - min_match : end] == tokens[-min_match:]
    ]
    for end in reversed(places[-16:]):
        length = next(
            n for n in range(max_match, 0, -1) if n <= end and tokens[end - n : end] == tokens[-n:]
        )
        if length > longest:
            best, longest = end, length
    expected = () if best == 0 else (tokens[best],)

    assert index.propose(1, 1) == expected
