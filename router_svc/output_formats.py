"""How a model writes calls of tools and its reasoning, as its chat template or a flag says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router_svc.parsing.registry import (
    choose_reasoning_format,
    choose_tool_format,
    template_knows_tools,
)

if TYPE_CHECKING:
    from router_svc.parsing.formats import ReasoningFormat, ToolFormat
    from router_svc.text.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class OutputFormats:
    """The formats of one model; None where it has no such thing, or a flag switched it off.

    `template_knows_tools`: tools are the template's to describe; otherwise they are described in
    the system message.
    """

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None
    template_knows_tools: bool

    @classmethod
    def choose(
        cls, template: ChatTemplate | None, *, tool_parser: str | None, reasoning_parser: str | None
    ) -> OutputFormats:
        """By the flags' names, else by what the template writes. ValueError for unknown names."""
        source = "" if template is None else template.source
        return cls(
            tools=choose_tool_format(source, tool_parser),
            reasoning=choose_reasoning_format(source, reasoning_parser),
            template_knows_tools=template_knows_tools(source),
        )
