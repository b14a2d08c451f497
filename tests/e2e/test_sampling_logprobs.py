"""Sampling parameters do what their formulae say, and log-probabilities fit the text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.support.public_api import CHAT, COMPLETIONS, Answer, PublicApi, chat_body
from tests.support.server import RunningServer

RIVERS = "Rivers flow down to the"
MULTI_BYTE = "Repeat exactly: 🙂🎉 访问 ďábel"
END = 2


def test_log_probabilities_come_one_for_each_token(api: PublicApi) -> None:
    answer = api.chat("Hi!", logprobs=True, max_tokens=4, ignore_eos=True)

    (choice,) = answer.choices
    assert len(choice.logprobs) == answer.usage["completion_tokens"] == 4
    assert all(entry["top_logprobs"] == [] for entry in choice.logprobs)
    assert all(-9999 <= entry["logprob"] <= 0 for entry in choice.logprobs)


def test_the_likeliest_tokens_come_in_order_and_add_up(api: PublicApi) -> None:
    answer = api.chat("Hi!", logprobs=True, top_logprobs=20, max_tokens=3)

    for entry in answer.choices[0].logprobs:
        values = [candidate["logprob"] for candidate in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert len(values) == 20
        assert entry["logprob"] == values[0]  # greedy takes the likeliest
        assert sum(math.exp(value) for value in values) <= 1 + 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"messages": [{"role": "user", "content": MULTI_BYTE}], "max_tokens": 48},
        {"logit_bias": {END: 6}, "ignore_eos": True},
        {"logit_bias": {END: 6}, "ignore_eos": True, "skip_special_tokens": False},
    ],
    ids=["multi-byte", "control", "control-shown"],
)
def test_the_bytes_of_all_entries_are_the_content(api: PublicApi, options: dict) -> None:
    body = chat_body("hi", max_tokens=12, logprobs=True, top_logprobs=2) | options

    answer = api.whole(CHAT, **body)

    (choice,) = answer.choices
    assert b"".join(bytes(entry["bytes"]) for entry in choice.logprobs).decode() == choice.text
    partial = [e for e in choice.logprobs if "\ufffd" in e["token"]]
    assert all(bytes(e["bytes"]) != "\ufffd".encode() for e in partial)
    assert bool(partial) == ("messages" in options)
    assert all(entry["token"] for entry in choice.logprobs)


EMOJI = {"enum": ["👍🏽 ok 访问"]}
AS_EMOJI = {"type": "json_schema", "json_schema": {"name": "e", "schema": EMOJI}}


@pytest.mark.parametrize("stream", [False, True])
def test_the_bytes_of_a_constrained_answer_are_its_content(api: PublicApi, stream: bool) -> None:
    body = chat_body("x", max_tokens=24, logprobs=True, top_logprobs=2, response_format=AS_EMOJI)

    answer = api.streamed(CHAT, **body) if stream else api.whole(CHAT, **body)

    (choice,) = answer.choices
    assert choice.text == '"👍🏽 ok 访问"'
    assert b"".join(bytes(entry["bytes"]) for entry in choice.logprobs).decode() == choice.text
    assert any("\ufffd" in entry["token"] for entry in choice.logprobs)
    assert all(entry["token"] for entry in choice.logprobs)


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1, "temperature": 1},
        {"logit_bias": {"28": -100, "198": -100}},
        {"response_format": AS_EMOJI},
    ],
    ids=["top_k", "bias", "schema"],
)
def test_log_probabilities_are_finite_numbers_whatever_is_masked(
    api: PublicApi, options: dict
) -> None:
    (choice,) = api.complete(
        "red paper kite morning", echo=True, logprobs=3, max_tokens=8, **options
    ).choices  # parsed without NaN and Infinity

    for _, logprob, top, _ in choice.logprobs[1:]:
        assert -9999 <= logprob <= 0
        assert all(-9999 <= value <= 0 for value in top.values())


def test_choices_of_a_stream_do_not_mix_and_end_with_their_client(api: PublicApi) -> None:
    body = chat_body("Name a fruit", n=4, max_tokens=12, seed=11) | {"temperature": 1}
    whole = api.whole(CHAT, **body)

    streamed = api.streamed(CHAT, **body)
    endless = body | {"max_tokens": 1500, "ignore_eos": True, "stream": True}
    with api.http.stream("POST", CHAT, json=endless) as response:
        next(response.iter_lines())

    assert streamed.choices == whole.choices
    assert len({choice.text for choice in whole.choices}) > 1
    assert api.server.wait_until(api.server.idle)


@pytest.mark.parametrize(
    "prompt", ["red paper kite 🙂 morning", "<|im_start|>user\nhi<|im_end|>\n"]
)
def test_offsets_of_an_echo_point_at_each_token(api: PublicApi, prompt: str) -> None:
    answer = api.complete(prompt, echo=True, logprobs=3, max_tokens=8)

    (choice,) = answer.choices
    assert choice.text.startswith(prompt)
    assert choice.logprobs[0][1:3] == (None, None)
    for token, logprob, top, offset in choice.logprobs:
        assert "\ufffd" in token or choice.text.startswith(token, offset) or token == "<|im_start|>"
        if top is not None:
            assert top[token] == logprob


def test_an_echo_gives_the_log_probabilities_that_prompt_logprobs_give(api: PublicApi) -> None:
    body = {"max_tokens": 1, "echo": True, "prompt_logprobs": 1}

    answer = api.complete("red paper kite", logprobs=3, **body)

    (choice,) = answer.choices
    assert choice.prompt_logprobs[0] == {"token": None, "top": []}
    for echoed, entry in zip(choice.logprobs[1:], choice.prompt_logprobs[1:], strict=False):
        assert (echoed[0], echoed[1]) == (entry["token"]["token"], entry["token"]["logprob"])
        assert len(entry["top"]) == 1
        assert len(echoed[2]) in (3, 4)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 1.5}, "top_logprobs"),
        ({"logprobs": 2}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"logit_bias": {"70001": -100}}, "logit_bias.70001"),
        ({"logit_bias": {"-5": 1}}, "logit_bias.-5"),
        ({"logit_bias": {"abc": 1}}, "logit_bias.abc"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {"5": "1"}}, "logit_bias.5"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 0.005}, "repetition_penalty"),
        ({"repetition_penalty": -1}, "repetition_penalty"),
        ({"n": 0}, "n"),
        ({"n": 1_000_000}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop_token_ids": [49152]}, "stop_token_ids[0]"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:40],
)
def test_what_is_out_of_range_is_refused_by_name(api: PublicApi, body: dict, param: str) -> None:
    assert api.refused(CHAT, chat_body("a cat", max_tokens=4) | body)["param"] == param


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "-1e400"])
@pytest.mark.parametrize("field", ['"temperature": %s', '"logit_bias": {"5": %s}'])
def test_a_number_that_is_none_is_refused(api: PublicApi, field: str, number: str) -> None:
    raw = '{"prompt": "a", %s}' % (field % number)

    response = api.http.post(COMPLETIONS, content=raw, headers={"content-type": "application/json"})

    assert response.status_code == 400


NO_CHOICE = {"max_tokens": 20, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def greedy(api: PublicApi) -> Answer:
    return api.complete(RIVERS, **NO_CHOICE)


@pytest.mark.parametrize(
    "options",
    [{"temperature": 10.0**-e} for e in (4, 5, 8, 12, 300)]
    + [{"temperature": 1, "top_p": 1e-6}, {"temperature": 2, "top_k": 1}, {"min_p": 1}],
    ids=str,
)
def test_sampling_without_a_choice_is_greedy(api: PublicApi, greedy: Answer, options: dict) -> None:
    sampled = api.complete(RIVERS, **NO_CHOICE, seed=7, **{"temperature": 1} | options)

    assert sampled.choices == greedy.choices


def test_a_seed_repeats_an_answer_and_choices_differ(api: PublicApi) -> None:
    body = {"temperature": 1, "seed": -3, "n": 4, "max_tokens": 12}

    first, second = api.complete(RIVERS, **body), api.complete(RIVERS, **body)

    assert first.choices == second.choices
    assert len({choice.text for choice in first.choices}) > 1


@pytest.fixture(scope="module")
def exact(float32_server: RunningServer) -> Iterator[PublicApi]:
    """A client of a server that computes as the reference does."""
    client = PublicApi(float32_server)
    yield client
    client.close()


@pytest.fixture(scope="module")
def reference(smollm2_checkpoint: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(smollm2_checkpoint, dtype=torch.float32).eval()


def _presence(logits: torch.Tensor, prompt: list[int], output: list[int]) -> None:
    logits[list(set(output))] -= 2.0


def _frequency(logits: torch.Tensor, prompt: list[int], output: list[int]) -> None:
    for token_id in output:
        logits[token_id] -= 1.5


def _repetition(logits: torch.Tensor, prompt: list[int], output: list[int]) -> None:
    seen = list({*prompt, *output})
    values = logits[seen]
    logits[seen] = torch.where(values > 0, values / 1.8, values * 1.8)


def _bias(logits: torch.Tensor, prompt: list[int], output: list[int]) -> None:
    logits[100] += 12.0


@pytest.mark.parametrize(
    ("options", "edit"),
    [
        ({"presence_penalty": 2.0}, _presence),
        ({"frequency_penalty": 1.5}, _frequency),
        ({"repetition_penalty": 1.8}, _repetition),
        ({"logit_bias": {"100": 12}}, _bias),
    ],
    ids=["presence", "frequency", "repetition", "bias"],
)
def test_edits_of_logits_are_those_over_transformers_logits(
    exact: PublicApi,
    reference: PreTrainedModel,
    options: dict,
    edit: Callable[[torch.Tensor, list[int], list[int]], None],
) -> None:
    body = {"max_tokens": 8, "ignore_eos": True, "return_token_ids": True}

    (choice,) = exact.complete("blue blue blue", **body, **options).choices
    (plain,) = exact.complete("blue blue blue", **body).choices

    prompt, output = choice.prompt_token_ids, choice.token_ids
    with torch.inference_mode():
        rows = reference(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
        for step, logits in enumerate(rows):
            edit(logits, prompt, output[:step])
    assert output == rows.argmax(-1).tolist()
    assert output != plain.token_ids


def test_log_probabilities_are_those_of_transformers_before_any_edit(
    exact: PublicApi, reference: PreTrainedModel
) -> None:
    answer = exact.complete(
        "blue blue blue",
        max_tokens=1,
        echo=True,
        logprobs=0,
        return_token_ids=True,
        temperature=0.5,
        top_k=2,
        seed=1,
        logit_bias={"100": 100},
    )

    (choice,) = answer.choices
    ids = choice.prompt_token_ids + choice.token_ids
    assert choice.token_ids == [100]
    with torch.inference_mode():
        rows = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = [float(rows[i, token_id]) for i, token_id in enumerate(ids[1:])]
    assert [entry[1] for entry in choice.logprobs[1:]] == pytest.approx(expected, abs=1e-3)


def test_a_bad_neighbour_harms_nobody(api: PublicApi) -> None:
    body = {"prompt": RIVERS, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    alone = api.whole(COMPLETIONS, **body)

    with httpx.stream(
        "POST", f"{api.server.url}{COMPLETIONS}", json=body | {"stream": True}, timeout=120
    ) as response:
        lines = response.iter_lines()
        next(lines)
        for bias in ({"70001": -100}, {"-5": 1}, {"5": 101}):
            api.refused(COMPLETIONS, {"prompt": "a cat", "logit_bias": bias})
        rest = "\n".join(lines)

    assert "data: [DONE]" in rest
    assert api.whole(COMPLETIONS, **body).choices == alone.choices
    assert api.server.process.poll() is None
