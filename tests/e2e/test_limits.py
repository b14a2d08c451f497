"""How long a prompt and an answer may be, and what is no conversation at all."""

from __future__ import annotations

import grpc
import pytest
from octavo.inference.v1 import inference_pb2 as pb

from tests.support.awkward_model import CONTEXT, VOCAB_SIZE
from tests.support.public_api import CHAT, COMPLETIONS, PublicApi, chat_body

LONG_PROMPT = "a" * (CONTEXT - 20)  # of the tiny model, whose tokens are single letters here


def test_max_tokens_null_is_its_default(tiny: PublicApi) -> None:
    completion = tiny.complete("test", max_tokens=None, ignore_eos=True)
    chat = tiny.chat("hi", max_tokens=None, max_completion_tokens=None, ignore_eos=True)

    assert completion.usage["completion_tokens"] == 16
    assert chat.usage["total_tokens"] == CONTEXT


def test_max_tokens_beyond_the_context_are_cut_to_it(tiny: PublicApi) -> None:
    options = {"max_tokens": 1_000_000, "ignore_eos": True}
    conversation = pb.MessageContent(text=LONG_PROMPT)
    messages = [pb.ChatMessage(role=pb.ROLE_USER, content=conversation)]
    answers = [
        tiny.complete(LONG_PROMPT, **options),
        tiny.streamed(COMPLETIONS, prompt=LONG_PROMPT, temperature=0, **options),
        tiny.chat(LONG_PROMPT, **options),
        tiny.grpc_whole(pb.CreateChatCompletionRequest(messages=messages, **options)),
        tiny.grpc_whole(pb.CreateCompletionRequest(prompt=pb.Prompt(text=LONG_PROMPT), **options)),
    ]

    for answer in answers:
        assert answer.usage["total_tokens"] == CONTEXT
        assert answer.choices[0].finish_reason == "length"


def test_min_tokens_beyond_the_context_are_cut_to_it(tiny: PublicApi) -> None:
    answer = tiny.chat(LONG_PROMPT, min_tokens=1_000_000)

    assert answer.usage["total_tokens"] == CONTEXT


@pytest.mark.parametrize("max_tokens", [-1, 0, "10", 1.5, 2**63, 2**31, True, []])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_max_tokens_that_is_no_count_is_refused(
    tiny: PublicApi, path: str, max_tokens: object
) -> None:
    body = chat_body("hi") if path == CHAT else {"prompt": "hi"}

    assert tiny.refused(path, body | {"max_tokens": max_tokens})["param"] == "max_tokens"


@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize("max_tokens", [None, 0, 5])
def test_more_min_tokens_than_max_tokens_are_refused(
    tiny: PublicApi, max_tokens: int | None, echo: bool
) -> None:
    body = {"prompt": "hi", "min_tokens": 17, "max_tokens": max_tokens, "echo": echo}

    error = tiny.refused(COMPLETIONS, body)

    assert error["param"] == ("max_tokens" if max_tokens == 0 and not echo else "min_tokens")


def test_a_prompt_that_is_too_long_is_refused_and_never_cut(tiny: PublicApi) -> None:
    content = "word " * CONTEXT
    messages = [
        {"role": "user", "content": "SECRET-RULE: answer only OK"},
        {"role": "assistant", "content": "OK"},
        {"role": "user", "content": content},
    ]
    count = tiny.ok("/tokenize", messages=messages)["count"]

    error = tiny.refused(CHAT, {"messages": messages, "max_tokens": 4})

    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert str(count) in error["message"]
    assert str(CONTEXT) in error["message"]


def test_the_longest_prompt_leaves_room_for_one_token(tiny: PublicApi) -> None:
    fits = tiny.complete([5] * (CONTEXT - 1), max_tokens=9)
    error = tiny.refused(COMPLETIONS, {"prompt": [[5], [5] * CONTEXT]})

    assert fits.usage["prompt_tokens"] == CONTEXT - 1
    assert fits.usage["completion_tokens"] == 1
    assert fits.choices[0].finish_reason == "length"
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt[1]")


def test_a_prompt_that_is_too_long_is_refused_over_grpc_in_the_same_words(tiny: PublicApi) -> None:
    ids = [5] * CONTEXT
    request = pb.CreateCompletionRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(items=ids)))

    with pytest.raises(grpc.RpcError) as caught:
        tiny.grpc.CreateCompletion(request)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == tiny.refused(COMPLETIONS, {"prompt": ids})["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "system", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [None]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ],
)
def test_what_is_no_conversation_is_refused_by_its_place(
    tiny: PublicApi, body: dict, param: str
) -> None:
    assert tiny.refused(CHAT, body)["param"] == param


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        (["a", ""], "prompt[1]"),
        ([[]], "prompt[0]"),
        ([VOCAB_SIZE], "prompt[0]"),
        ([[5], [5, 2**31]], "prompt[1][1]"),
        (["A:", [1, 2, 3]], "prompt[1]"),
        ([1, "A:"], "prompt[1]"),
        ([-1], "prompt[0]"),
        (None, "prompt"),
    ],
)
def test_what_is_no_prompt_is_refused_by_its_place(
    tiny: PublicApi, prompt: object, param: str
) -> None:
    assert tiny.refused(COMPLETIONS, {"prompt": prompt})["param"] == param


def test_several_prompts_are_answered_in_order_and_counted_once(tiny: PublicApi) -> None:
    prompts = ["A:", "B:", "The third is longer:"]

    answer = tiny.complete(prompts, n=2, max_tokens=3, return_token_ids=True)

    alone = [tiny.complete(prompt, max_tokens=3, return_token_ids=True) for prompt in prompts]
    assert answer.choices == [one.choices[0] for one in alone for _ in range(2)]
    assert answer.usage["prompt_tokens"] == sum(one.usage["prompt_tokens"] for one in alone)
    assert answer.usage["completion_tokens"] == 18


@pytest.mark.parametrize(("num_prompts", "n"), [(2048, 1), (16, 128)])
def test_as_many_choices_as_are_allowed_fit_into_the_engine(
    tiny: PublicApi, num_prompts: int, n: int
) -> None:
    answer = tiny.complete([[5]] * num_prompts, n=n, max_tokens=1)

    assert len(answer.choices) == answer.usage["completion_tokens"] == 2048


def test_more_choices_than_a_server_can_hold_are_refused(tiny: PublicApi) -> None:
    error = tiny.refused(COMPLETIONS, {"prompt": ["a"] * 100, "n": 128})

    assert error["param"] == "prompt"
    assert "100 prompts times n = 128" in error["message"]


def test_two_names_for_one_limit_must_agree(tiny: PublicApi) -> None:
    agree = tiny.chat("hi", max_tokens=3, max_completion_tokens=3, ignore_eos=True)
    refused = tiny.post(CHAT, chat_body("hi", max_tokens=3, max_completion_tokens=4))

    assert agree.usage["completion_tokens"] == 3
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "max_tokens"
