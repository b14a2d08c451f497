"""Parameters that vLLM's and OpenAI's clients send do what they say, or are refused by name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.awkward_model import CONTEXT, VOCAB_SIZE
from tests.support.public_api import CHAT, COMPLETIONS, PublicApi, chat_body
from tests.support.server import running_server
from tests.support.tiny_models import make_tiny

PROMPT = "The capital of France is Paris. The capital of Japan is"
SAMPLED = {"temperature": 1, "seed": 5, "max_tokens": 12, "ignore_eos": True}


def body_of(path: str, text: str = PROMPT, **options: Any) -> dict[str, Any]:
    """A greedy request with the text as prompt or as the user's message."""
    if path == CHAT:
        return chat_body(text, **options)
    return {"prompt": text, "temperature": 0} | options


on_both = pytest.mark.parametrize("path", [CHAT, COMPLETIONS])


@on_both
def test_a_bad_word_is_never_sampled(api: PublicApi, path: str) -> None:
    body = body_of(path, max_tokens=16, ignore_eos=True, return_token_ids=True)
    free = api.whole(path, **body)
    words = re.findall(r"[A-Za-z]{3,}", free.text)
    assert "Tokyo" in words

    kept = api.whole(path, **body, bad_words=words)

    for word in words:
        for text in (word, f" {word}"):
            run = api.ok("/tokenize", prompt=text)["tokens"]
            ids = kept.choices[0].token_ids
            assert run not in [ids[i : i + len(run)] for i in range(len(ids))]
    assert "Tokyo" not in kept.text
    assert api.streamed(path, **body, bad_words=words).choices == kept.choices


def test_a_bad_word_of_several_tokens_bans_their_run_alone(api: PublicApi) -> None:
    prompt, options = "New York is a city in the", {"max_tokens": 24, "ignore_eos": True}
    run = api.ok("/tokenize", prompt=" United States")["tokens"]
    first, second = ([token] for token in run)
    (free,) = api.complete(prompt, **options, return_token_ids=True).choices

    (kept,) = api.complete(
        prompt, **options, return_token_ids=True, bad_words=["United States"]
    ).choices

    assert free.token_ids[:2] == [*first, *second]
    assert kept.token_ids[:1] == first
    assert kept.token_ids[1:2] != second


@on_both
@pytest.mark.parametrize("words", [[""], ["ok", "  "]])
def test_a_bad_word_of_nothing_is_refused(api: PublicApi, path: str, words: list[str]) -> None:
    index = len(words) - 1

    assert api.refused(path, body_of(path, bad_words=words))["param"] == f"bad_words[{index}]"


@on_both
def test_only_allowed_tokens_are_sampled(api: PublicApi, path: str) -> None:
    allowed = [28, 253, 30, 198, 2644]

    (choice,) = api.whole(
        path, **body_of(path), allowed_token_ids=allowed, max_tokens=8, return_token_ids=True
    ).choices

    assert set(choice.token_ids) <= set(allowed)
    assert len(choice.token_ids) == 8


@on_both
def test_an_allowed_token_that_does_not_exist_is_refused(api: PublicApi, path: str) -> None:
    body = body_of(path, allowed_token_ids=[5, 49152])

    assert api.refused(path, body)["param"] == "allowed_token_ids[1]"


@on_both
def test_allowed_tokens_that_are_all_bad_words_are_refused(api: PublicApi, path: str) -> None:
    (token,) = api.ok("/tokenize", prompt=" Paris")["tokens"]
    body = body_of(path, allowed_token_ids=[token], bad_words=["Paris"])

    assert api.refused(path, body)["param"] == "bad_words"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"bad_words": ["bb"], "allowed_token_ids": "b"},
        {"bad_words": ["y"], "structured_outputs": {"regex": "yes"}},
        {"allowed_token_ids": "b", "structured_outputs": {"regex": "yes"}},
    ],
    ids=str,
)
def test_what_leaves_no_token_is_the_clients_fault_and_harms_nobody(
    tiny: PublicApi, fields: dict, stream: bool
) -> None:
    if "allowed_token_ids" in fields:
        fields = fields | {"allowed_token_ids": tiny.ok("/tokenize", prompt="b")["tokens"]}
    body = {"prompt": "a", "max_tokens": 5} | fields

    for _ in range(6):  # so many faults of an engine would have it left alone
        if stream:
            with tiny.http.stream("POST", COMPLETIONS, json=body | {"stream": True}) as response:
                text = response.read().decode()
        else:
            text = json.dumps(tiny.refused(COMPLETIONS, body))
        assert "leave no token to sample" in text
    assert tiny.complete("a", max_tokens=1).usage["completion_tokens"] == 1
    assert tiny.server.wait_until(tiny.server.idle)


@on_both
def test_a_prompt_is_cut_to_its_last_tokens_where_asked(tiny: PublicApi, path: str) -> None:
    options = {"max_tokens": 2, "return_token_ids": True}
    whole = tiny.whole(path, **body_of(path), **options).choices[0].prompt_token_ids

    answer = tiny.whole(path, **body_of(path), **options, truncate_prompt_tokens=5)
    uncut = tiny.whole(path, **body_of(path), **options, truncate_prompt_tokens=CONTEXT)

    assert answer.choices[0].prompt_token_ids == whole[-5:]
    assert answer.usage["prompt_tokens"] == 5
    assert uncut.choices[0].prompt_token_ids == whole


@on_both
def test_minus_one_keeps_what_leaves_room_for_the_answer(tiny: PublicApi, path: str) -> None:
    body = body_of(path, "word " * CONTEXT, max_tokens=7, ignore_eos=True)

    answer = tiny.whole(path, **body, truncate_prompt_tokens=-1)

    assert answer.usage["prompt_tokens"] == CONTEXT - 7
    assert answer.usage["completion_tokens"] == 7


@on_both
@pytest.mark.parametrize("kept", [0, -2, CONTEXT + 1, 1.5])
def test_a_number_of_tokens_that_cannot_be_kept_is_refused(
    tiny: PublicApi, path: str, kept: float
) -> None:
    error = tiny.refused(path, body_of(path, truncate_prompt_tokens=kept))

    assert error["param"] == "truncate_prompt_tokens"


def test_an_echo_of_a_cut_prompt_is_what_is_left_of_it(api: PublicApi) -> None:
    answer = api.complete(
        PROMPT, echo=True, max_tokens=1, truncate_prompt_tokens=4, logprobs=0, return_token_ids=True
    )

    (choice,) = answer.choices
    assert choice.text.startswith(" capital of Japan is")
    assert len(choice.logprobs) == 5
    assert [entry[3] for entry in choice.logprobs][:2] == [0, len(" capital")]


def test_tokens_can_be_shown_as_their_ids_in_completions(api: PublicApi) -> None:
    options = {"max_tokens": 3, "logprobs": 2, "echo": True, "return_token_ids": True}

    (choice,) = api.complete(PROMPT, **options, return_tokens_as_token_ids=True).choices
    (plain,) = api.complete(PROMPT, **options).choices

    ids = choice.prompt_token_ids + choice.token_ids
    assert [entry[0] for entry in choice.logprobs] == [f"token_id:{i}" for i in ids]
    assert [entry[1] for entry in choice.logprobs] == [entry[1] for entry in plain.logprobs]
    assert all(key.startswith("token_id:") for entry in choice.logprobs[1:] for key in entry[2])


def test_tokens_can_be_shown_as_their_ids_in_chat(api: PublicApi) -> None:
    body = chat_body("Hi!", max_tokens=3, logprobs=True, top_logprobs=2, return_token_ids=True)

    for answer in (
        api.whole(CHAT, **body, return_tokens_as_token_ids=True),
        api.streamed(CHAT, **body, return_tokens_as_token_ids=True),
    ):
        (choice,) = answer.choices
        assert [entry["token"] for entry in choice.logprobs] == [
            f"token_id:{i}" for i in choice.token_ids
        ]
        for entry in choice.logprobs:
            assert entry["top_logprobs"][0]["token"] == entry["token"]
            assert entry["bytes"] == entry["top_logprobs"][0]["bytes"]


def mean_logprob(choice: Any) -> float:
    values = [entry[1] for entry in choice.logprobs]
    return math.fsum(values) / len(values)


def test_the_best_of_several_answers_are_those_likeliest_a_token(api: PublicApi) -> None:
    everyone = api.complete(["One", "Two"], **SAMPLED, n=5, logprobs=0)

    best = api.complete(["One", "Two"], **SAMPLED, n=2, best_of=5, logprobs=0)

    assert len(best.choices) == 4
    for i in range(2):
        ranked = sorted(everyone.choices[5 * i : 5 * i + 5], key=mean_logprob, reverse=True)
        texts = [choice.text for choice in best.choices[2 * i : 2 * i + 2]]
        assert texts == [choice.text for choice in ranked[:2]]
    assert best.usage == everyone.usage  # what was sampled is counted, shown or not


def test_the_best_is_found_without_showing_log_probabilities(api: PublicApi) -> None:
    shown = api.complete("One", **SAMPLED, best_of=4, logprobs=0)

    (choice,) = api.complete("One", **SAMPLED, best_of=4).choices

    assert choice.text == shown.text
    assert choice.logprobs == []


def test_best_of_the_answers_that_are_returned_changes_nothing(api: PublicApi) -> None:
    plain = api.complete("One", **SAMPLED, n=2)

    assert api.complete("One", **SAMPLED, n=2, best_of=2) == plain
    assert api.streamed(COMPLETIONS, prompt="One", **SAMPLED, n=2, best_of=2) == plain
    assert api.complete("One", **SAMPLED, n=2, best_of=None) == plain


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"best_of": 100_000}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"n": 0}, "n"),
        ({"n": 1_000_000}, "n"),
        ({"prompt": ["a"] * 20, "best_of": 128}, "prompt"),
        ({"suffix": " end"}, "suffix"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(api: PublicApi, fields: dict, param: str) -> None:
    assert api.refused(COMPLETIONS, {"prompt": "a", "max_tokens": 1} | fields)["param"] == param


def test_a_huge_number_of_answers_stalls_nobody(api: PublicApi) -> None:
    for field in ("n", "best_of"):
        before = api.server.metric("vllm:admission_rejections_total")
        api.refused(COMPLETIONS, {"prompt": "a", field: 1_000_000})
        assert api.server.metric("vllm:admission_rejections_total") == before  # no engine heard
    assert api.http.get("/health").status_code == 200


@on_both
def test_null_is_as_absent_for_every_parameter(api: PublicApi, path: str) -> None:
    schema = api.http.get("/openapi.json").json()["components"]["schemas"]
    name = "CreateChatCompletionRequest" if path == CHAT else "CreateCompletionRequest"
    body = body_of(path, max_tokens=2)
    fields = schema[name]["properties"].keys() - body.keys()

    assert api.whole(path, **body, **dict.fromkeys(fields)) == api.whole(path, **body)


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A response_format of the schema."""
    return {"type": "json_schema", "json_schema": {"name": "wanted", "schema": schema}}


DIGIT = {
    "type": "object",
    "properties": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["digit"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, r"\d{3}"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"response_format": json_schema({"enum": ["👍🏽 ok 访问"]})}, '"👍🏽 ok 访问"'),
        ({"response_format": json_schema(DIGIT)}, r"\{.*\}"),
    ],
    ids=["regex", "choice", "enum", "object"],
)
def test_a_completion_follows_the_form_that_is_wanted(
    api: PublicApi, wanted: dict, pattern: str
) -> None:
    answer = api.complete(PROMPT, max_tokens=200, n=2, temperature=1, seed=1, logprobs=1, **wanted)

    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert re.fullmatch(pattern, choice.text, re.DOTALL)
        assert all(-9999 <= entry[1] <= 0 for entry in choice.logprobs)
        if "response_format" in wanted:
            json.loads(choice.text)


def test_a_form_that_cannot_be_enforced_is_refused(api: PublicApi) -> None:
    error = api.refused(COMPLETIONS, {"prompt": "a", "structured_outputs": {"regex": "["}})

    assert error["param"] == "structured_outputs.regex"


def test_ids_that_only_pad_the_vocabulary_may_be_allowed(tiny: PublicApi) -> None:
    answer = tiny.complete("a", allowed_token_ids=[VOCAB_SIZE - 1], max_tokens=2)

    assert answer.usage["completion_tokens"] == 2


WITHOUT_EFFECT = {
    "user": "me",
    "metadata": {"key": "value"},
    "store": False,
    "service_tier": "flex",
    "prompt_cache_key": "key",
    "safety_identifier": "me",
    "verbosity": "low",
    "spaces_between_special_tokens": True,
}


def test_parameters_without_effect_have_none(tiny: PublicApi) -> None:
    body = chat_body("hi", max_tokens=8, ignore_eos=True)

    assert tiny.whole(CHAT, **body, **WITHOUT_EFFECT) == tiny.whole(CHAT, **body)


@on_both
@pytest.mark.parametrize("stop", [" Tokyo", [" Tokyo"], ["never", " Tokyo"]])
def test_stop_is_a_text_or_several(api: PublicApi, path: str, stop: str | list[str]) -> None:
    (choice,) = api.whole(path, **body_of(path, max_tokens=16), stop=stop).choices

    assert "Tokyo" not in choice.text
    assert (choice.finish_reason, choice.stop_reason) == ("stop", " Tokyo")


TEMPLATE = (
    "{{ messages[0]['content'] }}|{{ documents | tojson if documents else '' }}|{{ mood }}|"
    "{{ reasoning_effort }}|{{ enable_thinking }}"
)


@pytest.fixture(scope="module")
def templated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublicApi]:
    """A client of a tiny model whose template shows what it is given."""
    directory = tmp_path_factory.mktemp("templated")
    make_tiny("llama", directory / "model")
    (directory / "model" / "chat_template.jinja").write_text(TEMPLATE)
    args = ("--served-model-name", "tiny", "--dtype", "bfloat16")
    with running_server(directory / "model", *args, log=directory / "log") as server:
        client = PublicApi(server)
        yield client
        client.close()


def test_a_cut_prompt_is_shown_as_it_is_generated_from(api: PublicApi) -> None:
    body = chat_body("What is the capital of Japan?", truncate_prompt_tokens=9, max_tokens=1)

    shown = api.ok(f"{CHAT}/render", **body)
    (choice,) = api.whole(CHAT, **body, return_token_ids=True).choices

    assert shown["prompt_token_ids"] == choice.prompt_token_ids
    assert shown["count"] == 9
    assert shown["prompt"].endswith("of Japan?<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "hi||||"),
        ({"documents": [{"title": "A", "text": "<b>"}]}, 'hi|[{"title": "A", "text": "<b>"}]|||'),
        ({"chat_template_kwargs": {"mood": "kind"}}, "hi||kind||"),
        ({"reasoning_effort": "low"}, "hi|||low|True"),
        ({"reasoning_effort": "none"}, "hi|||none|False"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "hi||||False"),
    ],
    ids=str,
)
def test_the_template_is_given_what_it_may_use(
    templated: PublicApi, fields: dict, prompt: str
) -> None:
    shown = templated.ok(f"{CHAT}/render", messages=chat_body("hi")["messages"], **fields)
    answer = templated.chat("hi", max_tokens=1, return_token_ids=True, **fields)

    assert shown["prompt"] == prompt
    assert shown["prompt_token_ids"] == answer.choices[0].prompt_token_ids
    assert shown["count"] == answer.usage["prompt_tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": ["text"]}, "documents[0]"),
        ({"documents": {"text": "a"}}, "documents"),
        ({"documents": [{}] * 1025}, "documents"),
        ({"reasoning_effort": "some"}, "reasoning_effort"),
        ({"chat_template_kwargs": ["a"]}, "chat_template_kwargs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"guided_json": {}}, "guided_json"),
    ],
    ids=str,
)
def test_what_no_template_can_be_given_is_refused(
    templated: PublicApi, fields: dict, param: str
) -> None:
    assert templated.refused(CHAT, chat_body("hi") | fields)["param"] == param


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_tools_are_tokenised_as_a_chat_has_them(api: PublicApi) -> None:
    body = chat_body("Is it raining?", tools=[WEATHER])

    answer = api.whole(CHAT, **body, max_tokens=1, return_token_ids=True)
    tokens = api.ok("/tokenize", messages=body["messages"], tools=[WEATHER])["tokens"]

    assert tokens == answer.choices[0].prompt_token_ids
    assert len(tokens) > len(api.ok("/tokenize", messages=body["messages"])["tokens"])
    assert api.refused("/tokenize", {"prompt": "a", "tools": [WEATHER]})["param"] == "tools"
