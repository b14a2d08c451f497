"""What a model's output means, chosen from its chat template or by name.

A ToolFormat belongs to a template, a ReasoningFormat too; each makes one parser for each choice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from router_svc.parsing import deepseek, hermes, llama3_json, mistral, pythonic, qwen3_coder
from router_svc.parsing.answer import Answer
from router_svc.parsing.grammar import CallSyntax, Function, ReasoningTags, tool_grammar
from router_svc.parsing.reader import Reader, ReadingParser
from router_svc.parsing.reasoning import ReasoningParser

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from router_svc.parsing.parts import OutputParser
    from router_svc.parsing.reader import Reading

    _ReadAnswer: TypeAlias = Callable[[Answer], Reading[None]]

_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})
_ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a model sets its reasoning apart."""

    name: str
    opening: str
    closing: str

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that the parser must see, even where they are control tokens."""
        return (self.opening, self.closing)

    def new_parser(self, rest: OutputParser, *, opened: bool) -> ReasoningParser:
        """A parser for one choice; `rest` gets what follows the reasoning."""
        return ReasoningParser(self.opening, self.closing, rest, opened=opened)

    def opened_by(self, rendered_prompt_tail: str, continued: str = "") -> bool:
        """Whether a prompt leaves the model inside its reasoning.

        `continued` is the text of an assistant's message that the answer goes on with. Otherwise
        only the prompt's very end counts, so that no user can open or close anything.
        """
        if continued:
            return continued.rfind(self.opening) > continued.rfind(self.closing)
        return rendered_prompt_tail.rstrip().endswith(self.opening)

    def tags(self, *, opened: bool) -> ReasoningTags:
        """The tags, for a grammar of what follows the reasoning."""
        return ReasoningTags(self.opening, self.closing, opened)


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a model writes calls: read back by `new_parser`, enforced by `grammar`."""

    name: str
    syntax: CallSyntax
    read: _ReadAnswer
    short_ids: bool = False  # nine characters, as Mistral's templates demand

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that the parser must see, even where they are control tokens."""
        return self.syntax.markers

    def new_parser(
        self,
        functions: Collection[str] | None,
        *,
        parameters: Mapping[str, str] = _NO_PARAMETERS,
        parallel: bool = True,
        new_id: Callable[[], str],
    ) -> OutputParser:
        """A parser for one choice.

        `functions`: the names that may be called (a mapping by name will do); a call of another is
        content. None: any. `parameters`: their JSON schemas, for formats in which a value does not
        show its type. Without `parallel`, calls after the first are dropped.
        """
        answer = Answer(
            Reader(), functions, parameters=parameters, parallel=parallel, new_id=new_id
        )
        return ReadingParser(answer.reader, answer.parts, self.read(answer))

    def new_ids(self, request_id: str, choice: int) -> Callable[[], str]:
        """Ids for the calls of one choice, the same whenever the choice is parsed again."""
        return CallIds(request_id, choice, short=self.short_ids)

    def grammar(
        self,
        functions: Sequence[Function],
        *,
        required: bool,
        parallel: bool,
        special_tokens: Mapping[str, int] | None = None,
        reasoning: ReasoningTags | None = None,
    ) -> str:
        """See `tool_grammar`."""
        return tool_grammar(
            self.syntax,
            functions,
            required=required,
            parallel=parallel,
            special_tokens=special_tokens,
            reasoning=reasoning,
        )


class CallIds:
    """Makes the ids of one choice's calls, in order."""

    def __init__(self, request_id: str, choice: int, *, short: bool) -> None:
        self._seed = f"{request_id}/{choice}"
        self._short = short
        self._num_made = 0

    def __call__(self) -> str:
        """The next id."""
        digest = hashlib.sha256(f"{self._seed}/{self._num_made}".encode()).digest()
        self._num_made += 1
        if self._short:
            return "".join([_ALPHANUMERIC[byte % len(_ALPHANUMERIC)] for byte in digest[:9]])
        return f"call_{digest.hex()[:24]}"


_JSON_HEAD = '{"name": "NAME", "arguments": '

HERMES = ToolFormat(
    "hermes",
    CallSyntax(
        begin=f"{hermes.OPENING}\n",
        head=_JSON_HEAD,
        tail="}",
        between=f"\n{hermes.CLOSING}\n{hermes.OPENING}\n",
        end=f"\n{hermes.CLOSING}",
        trigger=hermes.OPENING,
        markers=(hermes.OPENING, hermes.CLOSING),
    ),
    hermes.read_hermes,
)
LLAMA3_JSON = ToolFormat(
    "llama3_json",
    CallSyntax(
        begin="",
        head='{"name": "NAME", "parameters": ',
        tail="}",
        between="; ",
        end="",
        lead=r'\{[ \n]{0,8}"name"[ \n]{0,8}:[ \n]{0,8}"NAME"',
        after_lead=', "parameters": ',
        markers=(llama3_json.PYTHON_TAG,),
    ),
    llama3_json.read_llama3_json,
)
MISTRAL_ARRAY = ToolFormat(
    "mistral",
    CallSyntax(
        begin=f"{mistral.TOOL_CALLS}[",
        head=_JSON_HEAD,
        tail="}",
        between=", ",
        end="]",
        trigger=mistral.TOOL_CALLS,
        markers=(mistral.TOOL_CALLS, mistral.ARGS, mistral.CALL_ID),
    ),
    mistral.read_mistral,
    short_ids=True,
)
MISTRAL_NAMED = ToolFormat(
    "mistral",
    CallSyntax(
        begin=mistral.TOOL_CALLS,
        head=f"NAME{mistral.ARGS}",
        tail="",
        between=mistral.TOOL_CALLS,
        end="",
        trigger=mistral.TOOL_CALLS,
        markers=MISTRAL_ARRAY.markers,
    ),
    mistral.read_mistral,
    short_ids=True,
)
PYTHONIC = ToolFormat(
    "pythonic",
    CallSyntax(
        begin="[",
        head="NAME(",
        tail=")",
        between=", ",
        end="]",
        lead=r"\[NAME\(",
        markers=(pythonic.PYTHON_START, pythonic.PYTHON_END, pythonic.PYTHON_TAG),
        arguments="keywords",
    ),
    pythonic.read_pythonic,
)
_DEEPSEEK_MARKERS = (
    deepseek.CALLS_BEGIN,
    deepseek.CALLS_END,
    deepseek.CALL_BEGIN,
    deepseek.CALL_END,
    deepseek.SEPARATOR,
)
DEEPSEEK_V3 = ToolFormat(
    "deepseek_v3",
    CallSyntax(
        begin=deepseek.CALLS_BEGIN,
        head=f"{deepseek.CALL_BEGIN}function{deepseek.SEPARATOR}NAME\n```json\n",
        tail=f"\n```{deepseek.CALL_END}",
        between="\n",
        end=deepseek.CALLS_END,
        trigger=deepseek.CALLS_BEGIN,
        markers=_DEEPSEEK_MARKERS,
    ),
    deepseek.read_deepseek,
)
DEEPSEEK_V31 = ToolFormat(
    "deepseek_v31",
    CallSyntax(
        begin=deepseek.CALLS_BEGIN,
        head=f"{deepseek.CALL_BEGIN}NAME{deepseek.SEPARATOR}",
        tail=deepseek.CALL_END,
        between="",
        end=deepseek.CALLS_END,
        trigger=deepseek.CALLS_BEGIN,
        markers=_DEEPSEEK_MARKERS,
    ),
    deepseek.read_deepseek,
)
QWEN3_CODER = ToolFormat(
    "qwen3_coder",
    CallSyntax(
        begin=f"{qwen3_coder.OPENING}\n{qwen3_coder.FUNCTION}",
        head="NAME>\n",
        tail=qwen3_coder.FUNCTION_END,
        between=f"\n{qwen3_coder.CLOSING}\n{qwen3_coder.OPENING}\n{qwen3_coder.FUNCTION}",
        end=f"\n{qwen3_coder.CLOSING}",
        trigger=qwen3_coder.FUNCTION,
        markers=(qwen3_coder.OPENING, qwen3_coder.CLOSING),
        arguments="tags",
    ),
    qwen3_coder.read_qwen3_coder,
)
TOOL_FORMATS = {
    "hermes": HERMES,
    "qwen25": HERMES,
    "llama3_json": LLAMA3_JSON,
    "llama4_pythonic": PYTHONIC,
    "mistral": MISTRAL_ARRAY,
    "pythonic": PYTHONIC,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "qwen3_coder": QWEN3_CODER,
    "qwen3_xml": QWEN3_CODER,
}
REASONING_FORMATS = {
    "deepseek_r1": ReasoningFormat("deepseek_r1", "<think>", "</think>"),
    "qwen3": ReasoningFormat("qwen3", "<think>", "</think>"),
    "mistral": ReasoningFormat("mistral", "[THINK]", "[/THINK]"),
}
