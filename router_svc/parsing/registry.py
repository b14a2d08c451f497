"""Chooses what reads a model's output, from its chat template or by name.

Also what to tell a model whose template knows nothing of tools.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from router_svc.parsing import deepseek, hermes, llama3_json, mistral, pythonic, qwen3_coder
from router_svc.parsing.formats import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    HERMES,
    LLAMA3_JSON,
    MISTRAL_ARRAY,
    MISTRAL_NAMED,
    PYTHONIC,
    QWEN3_CODER,
    REASONING_FORMATS,
    TOOL_FORMATS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from router_svc.parsing.formats import ReasoningFormat, ToolFormat
    from router_svc.parsing.grammar import Function

NONE = "none"
_TOOLS_VARIABLE = re.compile(r"\btools\b")


def choose_tool_format(template_source: str, flag: str | None) -> ToolFormat | None:
    """The format named by `flag`, or the template's; None if the flag is "none".

    Templates that write no known format get Hermes'. Raises ValueError for an unknown name.
    """
    if flag == NONE:
        return None
    if flag is not None:
        if flag not in TOOL_FORMATS:
            raise _unknown("tool-call", flag, TOOL_FORMATS)
        return _mistral(template_source) if flag == "mistral" else TOOL_FORMATS[flag]
    if deepseek.CALLS_BEGIN in template_source:
        return DEEPSEEK_V3 if "```json" in template_source else DEEPSEEK_V31
    if mistral.TOOL_CALLS in template_source:
        return _mistral(template_source)
    if qwen3_coder.FUNCTION in template_source and qwen3_coder.PARAMETER in template_source:
        return QWEN3_CODER
    if hermes.OPENING in template_source:
        return HERMES
    if pythonic.PYTHON_START in template_source or "func_name1(" in template_source:
        return PYTHONIC
    if llama3_json.PYTHON_TAG in template_source:
        return LLAMA3_JSON
    return HERMES


def choose_reasoning_format(template_source: str, flag: str | None) -> ReasoningFormat | None:
    """The format named by `flag`, or the template's; None if there is none or the flag is "none".

    Raises ValueError for an unknown name.
    """
    if flag == NONE:
        return None
    if flag is not None:
        if flag not in REASONING_FORMATS:
            raise _unknown("reasoning", flag, REASONING_FORMATS)
        return REASONING_FORMATS[flag]
    if REASONING_FORMATS["mistral"].opening in template_source:
        return REASONING_FORMATS["mistral"]
    if "<think>" in template_source or "</think>" in template_source:
        name = "qwen3" if "enable_thinking" in template_source else "deepseek_r1"
        return REASONING_FORMATS[name]
    return None


def template_knows_tools(template_source: str) -> bool:
    """Whether a chat template tells the model of tools by itself."""
    return _TOOLS_VARIABLE.search(template_source) is not None


def describe_tools(functions: Sequence[Function], tool_format: ToolFormat = HERMES) -> str:
    """What to write into the system message of a model whose template knows no tools.

    Tells which functions there are and how `tool_format` calls them.
    """
    example = tool_format.syntax.render([("FUNCTION_NAME", '{"ARGUMENT": "VALUE"}')])
    described = [
        f"- {function.name}{f': {function.description}' if function.description else ''}\n"
        f"  Arguments, as a JSON schema: {function.parameters or '{}'}"
        for function in functions
    ]
    return "\n".join(
        [
            "You can use these functions:",
            *described,
            "",
            "To use one, answer with nothing but a call in exactly this form, with the function's",
            "own name and arguments:",
            example,
            "",
            "You will then be told what it returned. Answer in words where no function helps.",
        ]
    )


def _mistral(template_source: str) -> ToolFormat:
    return MISTRAL_NAMED if mistral.ARGS in template_source else MISTRAL_ARRAY


def _unknown(kind: str, flag: str, known: Collection[str]) -> ValueError:
    return ValueError(f"unknown {kind} parser {flag!r}; known: {', '.join([*known, NONE])}")
