"""From tokens to text over the real stack: stop strings, ends, control tokens, whole characters."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.awkward_model import EOS_IDS
from tests.support.public_api import CHAT, COMPLETIONS, PublicApi, chat_body

BOAT = "Once there was a small boat"
END = 2  # SmolLM2's <|im_end|>
EMOJI = "Repeat exactly: 🙂🎉 访问 ďábel"


def test_no_chunk_holds_part_of_a_character(api: PublicApi) -> None:
    events = api.events(CHAT, **chat_body(EMOJI, max_tokens=48))

    pieces = [event["choices"][0]["delta"].get("content", "") for event in events]
    assert all("\ufffd" not in piece for piece in pieces)
    assert "🎉 访问 ďábel" in "".join(pieces)


def test_no_character_of_a_stop_string_gets_out(api: PublicApi) -> None:
    free = api.complete(BOAT, max_tokens=40, return_token_ids=True, ignore_eos=True)
    chooser = random.Random(5)
    for _ in range(10):
        begin = chooser.randrange(1, len(free.text) - 12)
        stop = free.text[begin : begin + chooser.randint(2, 12)]

        body = {"prompt": BOAT, "temperature": 0, "max_tokens": 40, "ignore_eos": True}
        answer = api.streamed(COMPLETIONS, **body, stop=[stop], return_token_ids=True)

        (choice,) = answer.choices
        assert choice.text == free.text[: free.text.index(stop)]
        assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
        # The tokens are those really sampled: up to the one that completes the stop string.
        count = answer.usage["completion_tokens"]
        assert choice.token_ids == free.choices[0].token_ids[:count]
        until = free.text.index(stop) + len(stop)
        shown = api.ok("/detokenize", tokens=choice.token_ids)["prompt"]
        before = api.ok("/detokenize", tokens=choice.token_ids[:-1])["prompt"]
        assert len(before) < until <= len(shown)


def test_of_several_stop_strings_the_first_in_the_text_wins(api: PublicApi) -> None:
    free = api.complete(BOAT, max_tokens=30)
    first, second = free.text[20:24], free.text[40:44]

    answer = api.complete(BOAT, max_tokens=30, stop=[second, "never", first])

    assert answer.text == free.text[: free.text.index(first)]
    assert answer.choices[0].stop_reason == first


def test_a_stop_string_in_the_prompt_stops_nothing(api: PublicApi) -> None:
    answer = api.complete(BOAT, echo=True, max_tokens=4, stop=["boat"])

    assert answer.text.startswith(BOAT)
    assert answer.usage["completion_tokens"] > 0


def test_stop_strings_count_from_min_tokens_on(api: PublicApi) -> None:
    stops = ["\n", "e", " "]

    answer = api.complete("list:", min_tokens=20, max_tokens=40, stop=stops, return_token_ids=True)

    (choice,) = answer.choices
    assert answer.usage["completion_tokens"] >= 20
    early = api.ok("/detokenize", tokens=choice.token_ids[:20])["prompt"]
    assert choice.text.startswith(early)
    assert not any(stop in choice.text[len(early) :] for stop in stops)
    assert any(stop in early for stop in stops)
    assert choice.stop_reason in stops


@pytest.mark.parametrize("eos_id", EOS_IDS)
def test_none_of_several_end_tokens_ends_before_min_tokens(tiny: PublicApi, eos_id: int) -> None:
    answer = tiny.complete(
        "list:", min_tokens=5, max_tokens=9, logit_bias={eos_id: 100}, return_token_ids=True
    )

    (choice,) = answer.choices
    assert not set(EOS_IDS) & set(choice.token_ids[:5])
    assert choice.token_ids[5:] == [eos_id]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", None)


def test_no_stop_token_ends_before_min_tokens(api: PublicApi) -> None:
    asked = {"min_tokens": 5, "max_tokens": 9, "return_token_ids": True}

    answer = api.complete("list:", stop_token_ids=[100], logit_bias={100: 100}, **asked)

    (choice,) = answer.choices
    assert 100 not in choice.token_ids[:5]
    assert choice.token_ids[5:] == [100]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", 100)


def test_the_text_of_a_stop_token_is_shown_on_demand_only(api: PublicApi) -> None:
    body = {"max_tokens": 9, "stop_token_ids": [100], "logit_bias": {100: 100}}
    text = api.ok("/detokenize", tokens=[100])["prompt"]

    assert api.complete("list:", **body).text == ""
    assert api.complete("list:", **body, include_stop_str_in_output=True).text == text


def test_ignore_eos_goes_on_behind_the_end(api: PublicApi) -> None:
    ends = api.chat("hi", max_tokens=6, logit_bias={END: 100})
    goes_on = api.chat("hi", max_tokens=6, logit_bias={END: 100}, ignore_eos=True)

    assert (ends.choices[0].finish_reason, ends.usage["completion_tokens"]) == ("stop", 1)
    assert (goes_on.choices[0].finish_reason, goes_on.usage["completion_tokens"]) == ("length", 6)


def _literals(api: PublicApi) -> Iterator[str]:
    for token_id in range(17):  # SmolLM2's control tokens come first
        yield api.ok("/detokenize", tokens=[token_id])["prompt"]


def test_control_tokens_show_on_demand_only(api: PublicApi) -> None:
    body = chat_body("hi", max_tokens=12, logit_bias={END: 6}, ignore_eos=True)
    body |= {"return_token_ids": True}

    hidden = [api.whole(CHAT, **body), api.streamed(CHAT, **body)]
    shown = [
        api.whole(CHAT, **body, skip_special_tokens=False),
        api.streamed(CHAT, **body, skip_special_tokens=False),
    ]

    assert hidden[0].choices == hidden[1].choices
    assert shown[0].choices == shown[1].choices
    assert END in hidden[0].choices[0].token_ids
    assert not any(literal in hidden[0].text for literal in _literals(api))
    assert "<|im_end|>" in shown[0].text
