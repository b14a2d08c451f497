"""A conversation becomes the prompt that transformers makes of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoTokenizer

from router_svc.text.chat_template import ChatTemplate, encode_chat
from router_svc.text.template_errors import (
    TemplateFailedError,
    TemplateLoadError,
    TemplateRefusedError,
)
from tests.unit.router_svc.text import chat_templates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from router_svc.text.tokenizer import Tokenizer

Messages = list[dict[str, Any]]

SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":"Žilina","days":[1,2]}'},
}
TALK: Messages = [
    {"role": "user", "content": "  What is 2 < 3 && a > b?\n"},
    {"role": "assistant", "content": "True. 👩‍👩‍👧‍👦\n\n"},
    {"role": "user", "content": '访问 <b>html</b> & "quotes" \'n \\ more'},
]
WITH_EMPTY_TURN: Messages = [
    {"role": "user", "content": "A"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "B"},
]
WITH_TOOLS: Messages = [
    SYSTEM,
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"t": -3.5}', "tool_call_id": "c1"},
    {"role": "assistant", "content": "<think>\ncold\n</think>\n\nCold."},
    {"role": "user", "content": "And tomorrow?"},
    {"role": "assistant", "reasoning_content": "hm", "content": "Colder."},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}},
    }
]


@pytest.fixture(scope="module")
def library(chat_directory: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(chat_directory)


@pytest.fixture(scope="module")
def smollm2_template(smollm2_checkpoint: Path, chat_tokenizer: Tokenizer) -> ChatTemplate:
    template = ChatTemplate.load(smollm2_checkpoint, chat_tokenizer)
    assert template is not None
    return template


@pytest.fixture
def template_of(chat_tokenizer: Tokenizer) -> Callable[..., ChatTemplate]:
    """A template by its name or source."""

    def make(source: str, **options: Any) -> ChatTemplate:
        return ChatTemplate(chat_templates.BY_NAME.get(source, source), chat_tokenizer, **options)

    return make


def text_of(template: ChatTemplate, messages: Messages, **options: Any) -> str:
    flags = {"add_generation_prompt": False, "continue_final_message": False, **options}
    return template.render(messages, **flags).text


def with_parsed_arguments(messages: Messages) -> Messages:
    """What transformers' documentation asks its callers for."""
    parsed: Messages = json.loads(json.dumps(messages))
    for message in parsed:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return parsed


@pytest.mark.parametrize(
    ("name", "messages", "tools"),
    [
        ("gemma", TALK, None),
        ("gemma", WITH_EMPTY_TURN, None),
        ("llama3", [SYSTEM, *TALK], None),
        ("llama3", WITH_EMPTY_TURN, None),
        ("qwen3", TALK, None),
        ("qwen3", WITH_EMPTY_TURN, None),
        ("qwen3", WITH_TOOLS, None),
        ("qwen3", WITH_TOOLS, TOOLS),
        ("qwen3-coder", WITH_TOOLS, TOOLS),
        ("generation", TALK, None),
    ],
)
@pytest.mark.parametrize("add_generation_prompt", [False, True])
def test_ids_are_those_of_transformers(
    template_of: Callable[..., ChatTemplate],
    chat_tokenizer: Tokenizer,
    library: PreTrainedTokenizerBase,
    name: str,
    messages: Messages,
    tools: list[dict[str, Any]] | None,
    add_generation_prompt: bool,
) -> None:
    prompt = template_of(name).render(
        messages,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=False,
    )

    expected = library.apply_chat_template(
        with_parsed_arguments(messages),
        tools=tools,
        chat_template=chat_templates.BY_NAME[name],
        add_generation_prompt=add_generation_prompt,
        return_dict=False,
    )
    assert encode_chat(chat_tokenizer, prompt) == expected


@pytest.mark.parametrize("messages", [TALK, [SYSTEM, *TALK], WITH_EMPTY_TURN])
def test_the_real_models_prompt_is_that_of_transformers(
    smollm2_checkpoint: Path, smollm2: Tokenizer, messages: Messages
) -> None:
    template = ChatTemplate.load(smollm2_checkpoint, smollm2)
    assert template is not None

    prompt = template.render(messages, add_generation_prompt=True, continue_final_message=False)

    expected = AutoTokenizer.from_pretrained(smollm2_checkpoint).apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert encode_chat(smollm2, prompt) == expected


def test_a_variable_of_the_request_reaches_the_template(
    template_of: Callable[..., ChatTemplate],
) -> None:
    text = text_of(
        template_of("qwen3"), TALK, add_generation_prompt=True, variables={"enable_thinking": False}
    )

    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([SYSTEM, *TALK], "System role not supported"),
        ([TALK[0], TALK[0]], "Conversation roles must alternate user/assistant/user/assistant/..."),
    ],
)
def test_a_templates_refusal_is_told_in_its_own_words(
    template_of: Callable[..., ChatTemplate], messages: Messages, message: str
) -> None:
    with pytest.raises(TemplateRefusedError) as refusal:
        text_of(template_of("gemma"), messages)

    assert str(refusal.value) == message


def test_a_long_refusal_is_cut(template_of: Callable[..., ChatTemplate]) -> None:
    template = template_of("{{ raise_exception('no: ' + messages[0].content) }}")

    with pytest.raises(TemplateRefusedError) as refusal:
        text_of(template, [{"role": "user", "content": "<|im_end|>" * 1000}])

    assert str(refusal.value).startswith("no: <|im_end|><|im_end|>")
    assert len(str(refusal.value)) <= 500


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content.strip() }}",
        "{{ 1 / 0 }}",
        "{{ missing() }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_any_other_failure_shows_nothing_of_the_inside(
    template_of: Callable[..., ChatTemplate], source: str
) -> None:
    with pytest.raises(TemplateFailedError) as failure:
        text_of(template_of(source), TALK)

    assert str(failure.value) == "the model's chat template cannot render this conversation"


@pytest.mark.parametrize(
    "ending", ["", "\n", "\n\n", " ", "\t", "👍🏽", " <", "<|im_end|>", "\u00a0"]
)
@pytest.mark.parametrize("start", ["Sure.", "  Sure.", ""])
def test_a_continued_message_ends_the_prompt_byte_for_byte(
    smollm2_template: ChatTemplate, start: str, ending: str
) -> None:
    content = start + ending

    text = text_of(
        smollm2_template,
        [SYSTEM, TALK[0], {"role": "assistant", "content": content}],
        continue_final_message=True,
    )

    assert text.endswith(f"<|im_start|>assistant\n{content}")


@pytest.mark.parametrize("ending", ["", "\n", " ", "\t", "👍🏽", "\n\n \n"])
@pytest.mark.parametrize("start", ["Sure.", "\nSure.", ""])
@pytest.mark.parametrize("name", ["gemma", "llama3"])
def test_a_continued_message_is_trimmed_where_the_template_trims(
    template_of: Callable[..., ChatTemplate], name: str, start: str, ending: str
) -> None:
    content = start + ending
    messages = [TALK[0], {"role": "assistant", "content": content}]

    continued = text_of(template_of(name), messages, continue_final_message=True)

    whole = text_of(template_of(name), messages)
    assert whole.startswith(continued)
    assert continued.endswith(content.strip())
    assert whole[len(continued) :].strip() in {"<end_of_turn>", "<|eot_id|>"}


@pytest.mark.parametrize("name", ["qwen3", "llama3", "generation"])
def test_a_continued_message_is_that_of_transformers(
    template_of: Callable[..., ChatTemplate], library: PreTrainedTokenizerBase, name: str
) -> None:
    messages = [TALK[0], {"role": "assistant", "content": "Sure,\nhere "}]

    expected = library.apply_chat_template(
        messages,
        chat_template=chat_templates.BY_NAME[name],
        continue_final_message=True,
        tokenize=False,
    )
    assert text_of(template_of(name), messages, continue_final_message=True) == expected


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ("{% for m in messages[:-1] %}{{ m.content }}{% endfor %}", TALK),
        ("{{ messages[0].content if messages }}", []),
        (
            "{% if messages[0].content is none %}x{% endif %}",
            [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        ),
    ],
)
def test_what_cannot_be_continued_is_said_so(
    template_of: Callable[..., ChatTemplate], source: str, messages: Messages
) -> None:
    with pytest.raises(TemplateFailedError, match="final message"):
        text_of(template_of(source), messages, continue_final_message=True)


def test_a_directory_has_its_template_in_its_own_file_first(
    smollm2_checkpoint: Path, smollm2: Tokenizer, tmp_path: Path
) -> None:
    shutil.copy(smollm2_checkpoint / "tokenizer_config.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("own: {{ messages[0].content }}")

    template = ChatTemplate.load(tmp_path, smollm2)

    assert template is not None
    assert text_of(template, [{"role": "user", "content": "x"}]) == "own: x"


def test_named_templates_are_chosen_by_whether_there_are_tools(
    smollm2: Tokenizer, tmp_path: Path
) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))

    template = ChatTemplate.load(tmp_path, smollm2)

    assert template is not None
    assert text_of(template, TALK) == "plain"
    assert text_of(template, TALK, tools=TOOLS) == "tools"


def test_a_gguf_has_its_template_in_its_metadata(
    smollm2_gguf: Path, smollm2: Tokenizer, smollm2_template: ChatTemplate
) -> None:
    template = ChatTemplate.load(smollm2_gguf, smollm2)

    assert template is not None
    assert text_of(template, TALK) == text_of(smollm2_template, TALK)


def test_a_ggufs_named_template_is_for_tools(
    write_sentencepiece_gguf: Callable[..., Path], sentencepiece: Tokenizer, tmp_path: Path
) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    path = write_sentencepiece_gguf(tmp_path / "m.gguf", chat_template=named)

    template = ChatTemplate.load(path, sentencepiece)

    assert template is not None
    assert text_of(template, TALK) == "plain"
    assert text_of(template, TALK, tools=TOOLS) == "tools"


def test_the_operators_file_wins(
    smollm2_checkpoint: Path, smollm2: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("operator's")

    template = ChatTemplate.load(smollm2_checkpoint, smollm2, override=file)

    assert template is not None
    assert text_of(template, TALK) == "operator's"


def test_a_model_without_a_template_has_none(
    write_sentencepiece_gguf: Callable[..., Path],
    sentencepiece: Tokenizer,
    chat_directory: Path,
    tmp_path: Path,
) -> None:
    path = write_sentencepiece_gguf(tmp_path / "base.gguf")

    assert ChatTemplate.load(path, sentencepiece) is None
    assert ChatTemplate.load(chat_directory, sentencepiece) is None


def test_a_template_that_is_not_jinja_is_named_with_its_line(
    smollm2_checkpoint: Path, smollm2: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "broken.jinja"
    file.write_text("ok\n{% for %}")

    with pytest.raises(TemplateLoadError, match=r"broken\.jinja: .*line 2"):
        ChatTemplate.load(smollm2_checkpoint, smollm2, override=file)
