"""Stop strings: no character of one is shown, and nothing else is held back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router_svc.text import stop
from router_svc.text.stop import StopMatcher

short_texts = st.text("ab", max_size=24)
stops_of_two_letters = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)


def reference(text: str, stops: list[str], *, include_stop: bool) -> tuple[str, str | None]:
    """The rule, read literally: first complete wins, then the longest."""
    for end in range(1, len(text) + 1):
        for candidate in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(candidate):
                return text[: end if include_stop else end - len(candidate)], candidate
    return text, None


def shown(matcher: StopMatcher, pieces: list[str]) -> str:
    """What a client sees in the end."""
    return "".join(map(matcher.add, pieces)) + matcher.flush()


@given(
    pieces=st.lists(short_texts, max_size=6), stops=stops_of_two_letters, include_stop=st.booleans()
)
@example(pieces=["aab", "ab"], stops=["abab", "ba"], include_stop=False)
def test_any_split_gives_what_the_whole_text_gives(
    pieces: list[str], stops: list[str], include_stop: bool
) -> None:
    matcher = StopMatcher(stops, include_stop=include_stop)

    text = shown(matcher, pieces)

    assert (text, matcher.matched) == reference("".join(pieces), stops, include_stop=include_stop)


@given(text=short_texts, stops=stops_of_two_letters)
def test_only_what_may_become_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)

    given_out = matcher.add(text)

    if matcher.matched is None:
        beginnings = {s[:cut] for s in stops for cut in range(1, len(s))}
        longest = max(
            (n for n in range(len(text) + 1) if text[len(text) - n :] in beginnings), default=0
        )
        assert given_out == text[: len(text) - longest]
        assert matcher.num_held == longest


def test_a_stop_string_over_several_pieces_is_never_shown() -> None:
    matcher = StopMatcher(["\n\nUser:"])

    shown_by_piece = [matcher.add(piece) for piece in ["Sure.\n", "\nUs", "er", ": and more"]]

    assert shown_by_piece == ["Sure.", "", "", ""]
    assert matcher.matched == "\n\nUser:"


def test_what_was_no_stop_string_after_all_is_shown() -> None:
    matcher = StopMatcher(["STOP"])

    assert [matcher.add(piece) for piece in ["a ST", "O", "NE"]] == ["a ", "", "STONE"]


def test_the_stop_string_is_shown_if_asked_for_and_nothing_after_it() -> None:
    matcher = StopMatcher(["END"], include_stop=True)

    assert [matcher.add(piece) for piece in ["the E", "ND of it", "more"]] == ["the ", "END", ""]


def test_the_first_to_be_complete_wins_even_if_another_began_earlier() -> None:
    matcher = StopMatcher(["abcd", "bc"])

    assert matcher.add("xabcd") == "xa"
    assert matcher.matched == "bc"


def test_of_two_complete_at_once_the_longer_wins() -> None:
    matcher = StopMatcher(["c", "abc"])

    assert matcher.add("xabc") == "x"
    assert matcher.matched == "abc"


def test_text_under_the_minimum_passes_and_cannot_begin_a_stop_string() -> None:
    matcher = StopMatcher(["ab"])

    early = matcher.add("abxa", skip=4)
    late = matcher.add("bcab")

    assert early == "abxa"  # both a whole stop string and the beginning of one
    assert late == "bc"
    assert matcher.matched == "ab"


def test_the_minimum_may_end_inside_a_piece() -> None:
    matcher = StopMatcher(["ab"])

    assert matcher.add("ababab", skip=3) == "abab"
    assert matcher.matched == "ab"


def test_text_held_back_passes_when_the_minimum_still_holds() -> None:
    matcher = StopMatcher(["ab"])
    matcher.add("a")

    assert matcher.add("b", skip=1) == "ab"
    assert matcher.matched is None


def test_without_stop_strings_everything_passes() -> None:
    assert StopMatcher([]).add("anything") == "anything"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="stop"):
        StopMatcher(["a", ""])


def test_repetitive_stop_strings_cost_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fallbacks never outnumber characters read (Aho-Corasick): counted, not timed.
    steps = 0

    class CountedState(stop._State):
        def __getattribute__(self, name: str) -> object:
            nonlocal steps
            steps += name == "next"
            return super().__getattribute__(name)

    monkeypatch.setattr(stop, "_State", CountedState)
    matcher = StopMatcher(["a" * 1000 + "b", "a" * 999 + "c"])
    text = ("a" * 999 + "x") * 20
    steps = 0

    shown(matcher, list(text))

    assert steps <= 3 * len(text)
