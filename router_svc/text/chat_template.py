"""Turns a conversation into a prompt with the model's own chat template.

    messages ─ normalise ─ mark ─ render in the sandbox ─ resolve marks ─► RenderedPrompt ─► ids

See template_program.py for the sandbox and provenance.py for the marks. What renders and encodes a
prompt for a benign conversation is what transformers' apply_chat_template gives.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2

from router_svc.text.gguf_tokenizer import gguf_chat_templates
from router_svc.text.hf_tokenizer import read_json_object
from router_svc.text.messages import normalize_messages
from router_svc.text.provenance import LiteralEdges, Marks, new_mark
from router_svc.text.template_errors import (
    TemplateError,
    TemplateFailedError,
    TemplateLimitError,
    TemplateLoadError,
    TemplateRefusedError,
    TemplateVariableError,
)
from router_svc.text.template_program import MARK, TICK, compile_template
from router_svc.text.tokenizer_parts import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from router_svc.text.tokenizer import Span, Tokenizer

__all__ = ["ChatTemplate", "RenderedPrompt", "TemplateError", "encode_chat"]

# What transformers takes as arguments beside the variables, and what the server sets itself.
_RESERVED_VARIABLES = frozenset(
    (
        "messages",
        "conversation",
        "tools",
        "tool_choice",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "tokenizer_kwargs",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "raise_exception",
        "strftime_now",
        "loop",
        "self",
        "range",
        "dict",
        "lipsum",
        "cycler",
        "joiner",
        "namespace",
    )
)

_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as text, and where in it the template wrote control tokens.

    The same literal elsewhere in the text is what a user wrote, and is ordinary text.
    """

    text: str
    control_spans: tuple[Span, ...]


def encode_chat(
    tokenizer: Tokenizer, prompt: RenderedPrompt, *, add_special_tokens: bool = False
) -> list[int]:
    """Token ids of a rendered prompt. Templates write their own beginning-of-sequence token."""
    return tokenizer.encode_spans(
        prompt.text, prompt.control_spans, add_special_tokens=add_special_tokens
    )


class ChatTemplate:
    """A model's chat template. Rendering may be called from any thread.

    A prompt has at most `max_characters` and takes at most `max_seconds` to render. `tool_source`
    is a second template for conversations with tools; `source` is the one that sees those. Raises
    TemplateLoadError for a source that does not compile.
    """

    def __init__(
        self,
        source: str,
        tokenizer: Tokenizer,
        *,
        tool_source: str | None = None,
        max_characters: int = 16_000_000,
        max_seconds: float = 5.0,
    ) -> None:
        self._tokenizer = tokenizer
        self._edges = LiteralEdges(tokenizer.special_literals)
        self._max_characters = max_characters
        self._max_seconds = max_seconds
        self.source = source if tool_source is None else tool_source
        try:
            self._program = compile_template(source, self._holds_literal)
            self._tool_program = (
                self._program
                if tool_source is None
                else compile_template(tool_source, self._holds_literal)
            )
        except jinja2.TemplateSyntaxError as error:
            raise TemplateLoadError(
                f"the chat template is not valid Jinja (line {error.lineno}): {error.message}"
            ) from error

    @classmethod
    def load(
        cls, path: Path, tokenizer: Tokenizer, *, override: Path | None = None
    ) -> ChatTemplate | None:
        """The template of the model at `path`, or the operator's file `override`; None without one.

        A directory has it in chat_template.jinja, chat_template.json or tokenizer_config.json, a
        GGUF file in its metadata. Raises TemplateLoadError, naming the file, and OSError.
        """
        file = override or path
        try:
            sources = _sources(file, is_template=override is not None)
            if "default" not in sources:
                return None
            return cls(sources["default"], tokenizer, tool_source=sources.get("tool_use"))
        except (TemplateLoadError, TokenizerError, UnicodeDecodeError) as error:
            raise TemplateLoadError(f"{file}: {error}") from error

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
    ) -> RenderedPrompt:
        """The prompt for a conversation.

        `messages` are {role, content, name?, tool_calls?, tool_call_id?, reasoning_content?} with
        content a text, None or a list of text parts; `variables` are the request's own. To continue
        the final message ends the prompt with its content, byte for byte unless the template trims.

        Raises TemplateRefusedError with the template's own words, TemplateVariableError for a
        variable that the server sets, TemplateLimitError, and TemplateFailedError for all else.
        """
        own = dict(variables or {})
        for name in own:
            self._check_variable(name)
        program = self._tool_program if tools else self._program
        conversation = normalize_messages(messages, program)
        marks = Marks(self._tokenizer, self._edges)
        marked = [_marked_message(message, marks) for message in conversation]
        final_mark = new_mark()
        final_text = _mark_final(marked, final_mark) if continue_final_message else ""
        values = {
            "tools": marks.mark_value(list(tools)) if tools else None,
            "documents": marks.mark_value(list(documents)) if documents else None,
            **{name: marks.mark_value(value) for name, value in own.items()},
            **self._tokenizer.special_texts,
            "messages": marked,
            "add_generation_prompt": add_generation_prompt,
            MARK: marks.mark,
        }
        try:
            rendered = self._run(program.template, values)
        except TemplateRefusedError as error:
            message = marks.remove(str(error)).replace(final_mark, "")
            raise TemplateRefusedError(message) from error
        if continue_final_message:
            rendered = _cut_final(rendered, final_mark, final_text)
        return RenderedPrompt(*marks.resolve(rendered))

    def _run(self, template: jinja2.Template, values: dict[str, Any]) -> str:
        deadline = time.monotonic() + self._max_seconds

        def tick() -> None:
            if time.monotonic() > deadline:
                raise TemplateLimitError(
                    f"the conversation takes longer than {self._max_seconds} s to render"
                )

        parts: list[str] = []
        length = 0
        try:
            for part in template.generate({**values, TICK: tick}):
                tick()
                length += len(part)
                if length > self._max_characters:
                    raise TemplateLimitError(
                        f"the conversation renders to {length} or more characters,"
                        f" at most {self._max_characters} are allowed"
                    )
                parts.append(part)
        except TemplateError:
            raise
        except _TEMPLATE_FAILURES as error:
            raise TemplateFailedError(
                "the model's chat template cannot render this conversation"
            ) from error
        return "".join(parts)

    def _holds_literal(self, text: str) -> bool:
        return bool(self._tokenizer.find_special(text))

    def _check_variable(self, name: str) -> None:
        if (
            name in _RESERVED_VARIABLES
            or name in self._tokenizer.special_texts
            or name.startswith("_")
        ):
            raise TemplateVariableError(
                f"chat_template_kwargs must not set {name[:64]}",
                f"chat_template_kwargs.{name[:64]}",
            )


def _marked_message(message: dict[str, Any], marks: Marks) -> dict[str, Any]:
    # Templates compare and wrap the role, one of a few words; all else is the user's.
    return {
        key: value if key == "role" else marks.mark_value(value) for key, value in message.items()
    }


def _mark_final(messages: list[dict[str, Any]], final_mark: str) -> str:
    """Puts a mark behind the final message's content, and returns that content.

    The space behind the mark shows whether the template trims.
    """
    content = messages[-1]["content"] if messages else None
    text: str | None = content[-1]["text"] if isinstance(content, list) else content
    if text is None:
        raise TemplateFailedError("there is no final message with content to continue")
    marked = f"{text}{final_mark} "
    messages[-1]["content"] = (
        [{"type": "text", "text": marked}] if isinstance(content, list) else marked
    )
    return text


def _cut_final(rendered: str, final_mark: str, final_text: str) -> str:
    before, mark, after = rendered.rpartition(final_mark)
    if not mark:
        raise TemplateFailedError(
            "the model's chat template does not show the final message, so it cannot be continued"
        )
    trailing = len(final_text) - len(final_text.rstrip())
    if after.startswith(" ") or not final_text.strip() or not trailing:
        return before
    return before[:-trailing]


def _sources(path: Path, *, is_template: bool) -> dict[str, str]:
    """Templates by name; the one that is meant without a name is "default"."""
    if is_template:
        return {"default": path.read_text(encoding="utf-8")}
    if path.is_file():
        return gguf_chat_templates(path)
    readers: tuple[tuple[str, Callable[[Path], object]], ...] = (
        ("chat_template.jinja", lambda file: file.read_text(encoding="utf-8")),
        ("chat_template.json", lambda file: read_json_object(file).get("chat_template")),
        ("tokenizer_config.json", lambda file: read_json_object(file).get("chat_template")),
    )
    for name, read in readers:
        value = read(path / name) if (path / name).is_file() else None
        match value:
            case str(source):
                sources = {"default": source}
            case list(entries):
                sources = {e["name"]: e["template"] for e in entries if _is_named(e)}
            case _:
                continue
        for file in sorted((path / "additional_chat_templates").glob("*.jinja")):
            sources.setdefault(file.stem, file.read_text(encoding="utf-8"))
        return sources
    return {}


def _is_named(entry: object) -> bool:
    match entry:
        case {"name": str(), "template": str()}:
            return True
    return False
