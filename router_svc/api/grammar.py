"""The one grammar of a chat answer: its wanted form, calls of tools, and reasoning before either.

wanted form   tools      the answer is
─────────────────────────────────────────────────────────────────────────────
any           must call  a call, or several
yes           may call   of the wanted form, or a call
no            may call   free; calls of strict functions are well-formed
yes           –          of the wanted form
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo import grammars

from router_svc.api.tooling import ToolMode, ToolUse, function_specs
from router_svc.errors import invalid
from router_svc.generation_types import Constraint
from router_svc.parsing.grammar import with_reasoning
from router_svc.structured import check_constraint, constraint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.inference.v1 import inference_pb2 as pb

    from router_svc.output_formats import OutputFormats
    from router_svc.parsing.grammar import ReasoningTags


def grammar_of(
    request: pb.CreateChatCompletionRequest,
    tools: ToolUse,
    formats: OutputFormats,
    special_ids: Mapping[str, int],
    *,
    reasoning_opened: bool,
) -> Constraint | None:
    """What the answer must follow; None for free text.

    `special_ids` are the formats' markers that are control tokens. Belongs on a thread for text,
    as `constraint_of` does. Raises ApiError, naming the field.
    """
    wanted = constraint_of(request)
    may_call = tools.mode is not ToolMode.NONE
    if request.HasField("structured_outputs") and may_call:
        raise invalid("structured_outputs", "structured_outputs and tools exclude each other")
    reasoning = None
    if formats.reasoning is not None:
        reasoning = formats.reasoning.tags(opened=reasoning_opened)
    if may_call and (tools.is_strict or wanted is not None):
        lark = _with_calls(tools, formats, wanted, special_ids, reasoning)
    elif wanted is None:
        return None
    elif reasoning is None:
        return wanted
    else:
        rules = _answer_rules(wanted)
        lark = with_reasoning(rules, reasoning, special_ids)
    constraint = Constraint("ebnf", lark)
    check_constraint(constraint, "tools" if may_call else "response_format")
    return constraint


def _with_calls(
    tools: ToolUse,
    formats: OutputFormats,
    wanted: Constraint | None,
    special_ids: Mapping[str, int],
    reasoning: ReasoningTags | None,
) -> str:
    if formats.tools is None:
        raise ValueError("there is no format for calls")
    functions = function_specs(tools.callable_functions, strict=tools.must_call)
    alone = wanted is None or tools.must_call
    try:
        lark = formats.tools.grammar(
            functions,
            required=tools.must_call or not alone,
            parallel=tools.parallel,
            special_tokens=special_ids,
            reasoning=reasoning if alone else None,
        )
    except ValueError as error:
        raise invalid("tools", str(error)) from error
    if alone or wanted is None:
        return lark
    rules = [
        f"calls:{line.removeprefix('answer:')}" if line.startswith("answer:") else line
        for line in lark.splitlines()
        if not line.startswith(("start:", "TEXT:"))
    ]
    either = ["answer: calls | wanted", *rules, *_answer_rules(wanted, "wanted")]
    return with_reasoning(either, reasoning, special_ids)


def _answer_rules(wanted: Constraint, name: str = "answer") -> list[str]:
    """A rule of this name for a wanted form, whose own rules are nested: their names are theirs."""
    lark = grammars.to_lark(wanted.kind, wanted.text, wanted.choices)
    lines = [line for line in lark.splitlines() if not line.startswith("%llguidance")]
    return [f"{name}: %lark {{", *lines, "}"]
