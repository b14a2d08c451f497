# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""JSON bodies to the request messages of octavo/inference/v1/messages.proto."""

from collections.abc import Mapping
from typing import Final

from octavo.inference.v1 import messages_pb2 as pb
from router_svc.http import checks
from router_svc.http import decoding as read
from router_svc.http.checks import join

_MESSAGE_ROLE: Final[Mapping[str, pb.MessageRole.ValueType]] = {
    "user": pb.MESSAGE_ROLE_USER,
    "assistant": pb.MESSAGE_ROLE_ASSISTANT,
    "system": pb.MESSAGE_ROLE_SYSTEM,
}
_MESSAGE_TOOL_CALLER: Final[Mapping[str, pb.MessageToolCaller.ValueType]] = {
    "direct": pb.MESSAGE_TOOL_CALLER_DIRECT,
}
_MESSAGE_THINKING_DISPLAY: Final[Mapping[str, pb.MessageThinkingDisplay.ValueType]] = {
    "summarized": pb.MESSAGE_THINKING_DISPLAY_SUMMARIZED,
    "omitted": pb.MESSAGE_THINKING_DISPLAY_OMITTED,
}
_MESSAGE_EFFORT: Final[Mapping[str, pb.MessageEffort.ValueType]] = {
    "low": pb.MESSAGE_EFFORT_LOW,
    "medium": pb.MESSAGE_EFFORT_MEDIUM,
    "high": pb.MESSAGE_EFFORT_HIGH,
    "xhigh": pb.MESSAGE_EFFORT_XHIGH,
    "max": pb.MESSAGE_EFFORT_MAX,
}
_CREATE_MESSAGE_REQUEST_FIELDS: Final = frozenset(
    {
        "model",
        "messages",
        "max_tokens",
        "system",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "cache_control",
        "service_tier",
        "speed",
        "container",
        "mcp_servers",
        "context_management",
        "diagnostics",
        "inference_geo",
    }
)


def decode_create_message_request(value: object, path: str) -> pb.CreateMessageRequest:
    """A conversation to answer."""
    fields = read.fields(value, path, _CREATE_MESSAGE_REQUEST_FIELDS, ("messages", "max_tokens"))
    message = pb.CreateMessageRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("messages")) is not None:
        at = join(path, "messages")
        for index, element in enumerate(read.array(item, path, "messages", most=16384)):
            message.messages.append(decode_message_turn(element, f"{at}[{index}]"))
    if (item := fields.get("max_tokens")) is not None:
        message.max_tokens = read.integer(item, path, "max_tokens", 1, 2147483647)
    if (item := fields.get("system")) is not None:
        message.system.CopyFrom(decode_message_system(item, join(path, "system")))
    if (item := fields.get("stop_sequences")) is not None:
        message.stop_sequences.extend(read.strings(item, path, "stop_sequences", most=16))
    if (item := fields.get("stream")) is not None:
        message.stream = read.boolean(item, path, "stream")
    if (item := fields.get("temperature")) is not None:
        message.temperature = read.number(item, path, "temperature")
    if (item := fields.get("top_p")) is not None:
        message.top_p = read.number(item, path, "top_p")
    if (item := fields.get("top_k")) is not None:
        message.top_k = read.integer(item, path, "top_k", 0, 2147483647)
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_message_tool(element, f"{at}[{index}]"))
    if (item := fields.get("tool_choice")) is not None:
        message.tool_choice.CopyFrom(decode_message_tool_choice(item, join(path, "tool_choice")))
    if (item := fields.get("thinking")) is not None:
        message.thinking.CopyFrom(decode_message_thinking(item, join(path, "thinking")))
    if (item := fields.get("output_config")) is not None:
        message.output_config.CopyFrom(
            decode_message_output_config(item, join(path, "output_config"))
        )
    if (item := fields.get("output_format")) is not None:
        message.output_format.CopyFrom(
            decode_message_output_format(item, join(path, "output_format"))
        )
    if (item := fields.get("metadata")) is not None:
        message.metadata.CopyFrom(decode_message_metadata(item, join(path, "metadata")))
    if (item := fields.get("cache_control")) is not None:
        message.cache_control = read.json_text(item, path, "cache_control", must_be_object=True)
    if (item := fields.get("service_tier")) is not None:
        message.service_tier = read.string(item, path, "service_tier")
    if (item := fields.get("speed")) is not None:
        message.speed = read.string(item, path, "speed")
    if (item := fields.get("container")) is not None and item is not False:
        raise checks.refused(path, "container", "code is not run here")
    if (item := fields.get("mcp_servers")) is not None and item is not False:
        raise checks.refused(path, "mcp_servers", "tools are called by the client only")
    if (item := fields.get("context_management")) is not None and item is not False:
        raise checks.refused(
            path, "context_management", "a conversation is never changed; shorten it in the client"
        )
    if (item := fields.get("diagnostics")) is not None and item is not False:
        raise checks.refused(path, "diagnostics", "nothing is kept about earlier requests")
    if (item := fields.get("inference_geo")) is not None and item is not False:
        raise checks.refused(path, "inference_geo", "an answer is computed where the server runs")
    return message


_MESSAGE_TURN_FIELDS: Final = frozenset({"role", "content"})


def decode_message_turn(value: object, path: str) -> pb.MessageTurn:
    """One turn of a conversation."""
    fields = read.fields(value, path, _MESSAGE_TURN_FIELDS, ("role", "content"))
    message = pb.MessageTurn()
    if (item := fields.get("role")) is not None:
        message.role = read.choice(item, path, "role", _MESSAGE_ROLE)
    if (item := fields.get("content")) is not None:
        message.content.CopyFrom(decode_message_turn_content(item, join(path, "content")))
    return message


def decode_message_turn_content(value: object, path: str) -> pb.MessageTurnContent:
    """Content of a turn."""
    message = pb.MessageTurnContent()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        message.blocks.CopyFrom(decode_message_blocks(value, path))
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_message_blocks(value: object, path: str) -> pb.MessageBlocks:
    """Blocks of a turn."""
    message = pb.MessageBlocks()
    for index, element in enumerate(read.array(value, path, "", most=4096)):
        message.items.append(decode_message_block(element, f"{path}[{index}]"))
    return message


def decode_message_block(value: object, path: str) -> pb.MessageBlock:
    """A block of a turn. Octavo serves text only: images, documents and what the provider's own tools write are"""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "text":
            message = pb.MessageBlock(text=decode_message_text_block(rest, path))
        case "thinking":
            message = pb.MessageBlock(thinking=decode_message_thinking_block(rest, path))
        case "redacted_thinking":
            message = pb.MessageBlock(
                redacted_thinking=decode_message_redacted_thinking_block(rest, path)
            )
        case "tool_use":
            message = pb.MessageBlock(tool_use=decode_message_tool_use_block(rest, path))
        case "tool_result":
            message = pb.MessageBlock(tool_result=decode_message_tool_result_block(rest, path))
        case _:
            raise checks.unknown_enum(
                kind,
                join(path, "type"),
                ("text", "thinking", "redacted_thinking", "tool_use", "tool_result"),
            )
    return message


_MESSAGE_TEXT_BLOCK_FIELDS: Final = frozenset({"text", "cache_control", "citations"})


def decode_message_text_block(value: object, path: str) -> pb.MessageTextBlock:
    """A piece of text."""
    fields = read.fields(value, path, _MESSAGE_TEXT_BLOCK_FIELDS, ("text",))
    message = pb.MessageTextBlock()
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    if (item := fields.get("cache_control")) is not None:
        message.cache_control = read.json_text(item, path, "cache_control", must_be_object=True)
    if (item := fields.get("citations")) is not None:
        message.citations = read.json_text(item, path, "citations")
    return message


_MESSAGE_THINKING_BLOCK_FIELDS: Final = frozenset({"thinking", "signature"})


def decode_message_thinking_block(value: object, path: str) -> pb.MessageThinkingBlock:
    """The assistant's reasoning in an earlier turn, where the template uses it."""
    fields = read.fields(value, path, _MESSAGE_THINKING_BLOCK_FIELDS, ("thinking",))
    message = pb.MessageThinkingBlock()
    if (item := fields.get("thinking")) is not None:
        message.thinking = read.string(item, path, "thinking")
    if (item := fields.get("signature")) is not None:
        message.signature = read.string(item, path, "signature")
    return message


_MESSAGE_REDACTED_THINKING_BLOCK_FIELDS: Final = frozenset({"data"})


def decode_message_redacted_thinking_block(
    value: object, path: str
) -> pb.MessageRedactedThinkingBlock:
    """Reasoning that only the provider that wrote it can read."""
    fields = read.fields(value, path, _MESSAGE_REDACTED_THINKING_BLOCK_FIELDS, ("data",))
    message = pb.MessageRedactedThinkingBlock()
    if (item := fields.get("data")) is not None:
        message.data = read.string(item, path, "data")
    return message


_MESSAGE_TOOL_USE_BLOCK_FIELDS: Final = frozenset(
    {"id", "name", "input", "cache_control", "caller"}
)


def decode_message_tool_use_block(value: object, path: str) -> pb.MessageToolUseBlock:
    """A tool that the assistant used."""
    fields = read.fields(value, path, _MESSAGE_TOOL_USE_BLOCK_FIELDS, ("id", "name", "input"))
    message = pb.MessageToolUseBlock()
    if (item := fields.get("id")) is not None:
        message.id = read.string(item, path, "id")
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("input")) is not None:
        message.input = read.json_text(item, path, "input", must_be_object=True)
    if (item := fields.get("cache_control")) is not None:
        message.cache_control = read.json_text(item, path, "cache_control", must_be_object=True)
    if (item := fields.get("caller")) is not None:
        message.caller = read.json_text(item, path, "caller", must_be_object=True)
    return message


_MESSAGE_TOOL_RESULT_BLOCK_FIELDS: Final = frozenset(
    {"tool_use_id", "content", "is_error", "cache_control"}
)


def decode_message_tool_result_block(value: object, path: str) -> pb.MessageToolResultBlock:
    """What a tool gave."""
    fields = read.fields(value, path, _MESSAGE_TOOL_RESULT_BLOCK_FIELDS, ("tool_use_id",))
    message = pb.MessageToolResultBlock()
    if (item := fields.get("tool_use_id")) is not None:
        message.tool_use_id = read.string(item, path, "tool_use_id")
    if (item := fields.get("content")) is not None:
        message.content.CopyFrom(decode_message_tool_result_content(item, join(path, "content")))
    if (item := fields.get("is_error")) is not None:
        message.is_error = read.boolean(item, path, "is_error")
    if (item := fields.get("cache_control")) is not None:
        message.cache_control = read.json_text(item, path, "cache_control", must_be_object=True)
    return message


def decode_message_tool_result_content(value: object, path: str) -> pb.MessageToolResultContent:
    """Content of a tool's result."""
    message = pb.MessageToolResultContent()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        message.blocks.CopyFrom(decode_message_text_blocks(value, path))
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_message_text_blocks(value: object, path: str) -> pb.MessageTextBlocks:
    """Blocks where only text has a place."""
    message = pb.MessageTextBlocks()
    for index, element in enumerate(read.array(value, path, "", most=4096)):
        message.items.append(decode_message_only_text_block(element, f"{path}[{index}]"))
    return message


def decode_message_only_text_block(value: object, path: str) -> pb.MessageOnlyTextBlock:
    """A block where only text has a place; any other kind is refused, and nothing is fetched."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "text":
            message = pb.MessageOnlyTextBlock(text=decode_message_text_block(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("text",))
    return message


def decode_message_system(value: object, path: str) -> pb.MessageSystem:
    """Instructions that frame a conversation."""
    message = pb.MessageSystem()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        message.blocks.CopyFrom(decode_message_text_blocks(value, path))
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_message_tool(value: object, path: str) -> pb.MessageTool:
    """A tool that the model may use and the client runs. Tools that Anthropic defines or runs are refused by the"""
    kind, rest = read.tagged(value, path, "type", "custom")
    match kind:
        case "custom":
            message = pb.MessageTool(custom=decode_message_custom_tool(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("custom",))
    return message


_MESSAGE_CUSTOM_TOOL_FIELDS: Final = frozenset(
    {
        "name",
        "description",
        "input_schema",
        "strict",
        "cache_control",
        "defer_loading",
        "eager_input_streaming",
        "input_examples",
        "allowed_callers",
    }
)


def decode_message_custom_tool(value: object, path: str) -> pb.MessageCustomTool:
    """A tool that the client defines."""
    fields = read.fields(value, path, _MESSAGE_CUSTOM_TOOL_FIELDS, ("name", "input_schema"))
    message = pb.MessageCustomTool()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("description")) is not None:
        message.description = read.string(item, path, "description")
    if (item := fields.get("input_schema")) is not None:
        message.input_schema = read.json_text(item, path, "input_schema", must_be_object=True)
    if (item := fields.get("strict")) is not None:
        message.strict = read.boolean(item, path, "strict")
    if (item := fields.get("cache_control")) is not None:
        message.cache_control = read.json_text(item, path, "cache_control", must_be_object=True)
    if (item := fields.get("defer_loading")) is not None and item is not False:
        raise checks.refused(path, "defer_loading", "the model is told of every tool")
    if (item := fields.get("eager_input_streaming")) is not None:
        message.eager_input_streaming = read.boolean(item, path, "eager_input_streaming")
    if (item := fields.get("input_examples")) is not None:
        at = join(path, "input_examples")
        for index, element in enumerate(read.array(item, path, "input_examples", most=128)):
            message.input_examples.append(
                read.json_text(element, f"{at}[{index}]", "", must_be_object=True)
            )
    if (item := fields.get("allowed_callers")) is not None:
        at = join(path, "allowed_callers")
        for index, element in enumerate(read.array(item, path, "allowed_callers", most=16)):
            message.allowed_callers.append(
                read.choice(element, f"{at}[{index}]", "", _MESSAGE_TOOL_CALLER)
            )
    return message


def decode_message_tool_choice(value: object, path: str) -> pb.MessageToolChoice:
    """Whether and which tools are used."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "auto":
            message = pb.MessageToolChoice(auto=decode_message_tool_choice_auto(rest, path))
        case "any":
            message = pb.MessageToolChoice(any=decode_message_tool_choice_any(rest, path))
        case "tool":
            message = pb.MessageToolChoice(tool=decode_message_tool_choice_tool(rest, path))
        case "none":
            message = pb.MessageToolChoice(none=decode_message_tool_choice_none(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("auto", "any", "tool", "none"))
    return message


_MESSAGE_TOOL_CHOICE_AUTO_FIELDS: Final = frozenset({"disable_parallel_tool_use"})


def decode_message_tool_choice_auto(value: object, path: str) -> pb.MessageToolChoiceAuto:
    """The model decides."""
    fields = read.fields(value, path, _MESSAGE_TOOL_CHOICE_AUTO_FIELDS)
    message = pb.MessageToolChoiceAuto()
    if (item := fields.get("disable_parallel_tool_use")) is not None:
        message.disable_parallel_tool_use = read.boolean(item, path, "disable_parallel_tool_use")
    return message


_MESSAGE_TOOL_CHOICE_ANY_FIELDS: Final = frozenset({"disable_parallel_tool_use"})


def decode_message_tool_choice_any(value: object, path: str) -> pb.MessageToolChoiceAny:
    """At least one tool is used."""
    fields = read.fields(value, path, _MESSAGE_TOOL_CHOICE_ANY_FIELDS)
    message = pb.MessageToolChoiceAny()
    if (item := fields.get("disable_parallel_tool_use")) is not None:
        message.disable_parallel_tool_use = read.boolean(item, path, "disable_parallel_tool_use")
    return message


_MESSAGE_TOOL_CHOICE_TOOL_FIELDS: Final = frozenset({"name", "disable_parallel_tool_use"})


def decode_message_tool_choice_tool(value: object, path: str) -> pb.MessageToolChoiceTool:
    """This tool is used."""
    fields = read.fields(value, path, _MESSAGE_TOOL_CHOICE_TOOL_FIELDS, ("name",))
    message = pb.MessageToolChoiceTool()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("disable_parallel_tool_use")) is not None:
        message.disable_parallel_tool_use = read.boolean(item, path, "disable_parallel_tool_use")
    return message


_MESSAGE_TOOL_CHOICE_NONE_FIELDS: Final[frozenset[str]] = frozenset()


def decode_message_tool_choice_none(value: object, path: str) -> pb.MessageToolChoiceNone:
    """No tool is used."""
    read.fields(value, path, _MESSAGE_TOOL_CHOICE_NONE_FIELDS)
    message = pb.MessageToolChoiceNone()
    return message


def decode_message_thinking(value: object, path: str) -> pb.MessageThinking:
    """Whether the model thinks before it answers."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "enabled":
            message = pb.MessageThinking(enabled=decode_message_thinking_enabled(rest, path))
        case "disabled":
            message = pb.MessageThinking(disabled=decode_message_thinking_disabled(rest, path))
        case "adaptive":
            message = pb.MessageThinking(adaptive=decode_message_thinking_adaptive(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("enabled", "disabled", "adaptive"))
    return message


_MESSAGE_THINKING_ENABLED_FIELDS: Final = frozenset({"budget_tokens", "display"})


def decode_message_thinking_enabled(value: object, path: str) -> pb.MessageThinkingEnabled:
    """The model thinks."""
    fields = read.fields(value, path, _MESSAGE_THINKING_ENABLED_FIELDS, ("budget_tokens",))
    message = pb.MessageThinkingEnabled()
    if (item := fields.get("budget_tokens")) is not None:
        message.budget_tokens = read.integer(item, path, "budget_tokens", 1, 2147483647)
    if (item := fields.get("display")) is not None:
        message.display = read.choice(item, path, "display", _MESSAGE_THINKING_DISPLAY)
    return message


_MESSAGE_THINKING_DISABLED_FIELDS: Final[frozenset[str]] = frozenset()


def decode_message_thinking_disabled(value: object, path: str) -> pb.MessageThinkingDisabled:
    """The model does not think."""
    read.fields(value, path, _MESSAGE_THINKING_DISABLED_FIELDS)
    message = pb.MessageThinkingDisabled()
    return message


_MESSAGE_THINKING_ADAPTIVE_FIELDS: Final = frozenset({"display"})


def decode_message_thinking_adaptive(value: object, path: str) -> pb.MessageThinkingAdaptive:
    """The model thinks in its own way."""
    fields = read.fields(value, path, _MESSAGE_THINKING_ADAPTIVE_FIELDS)
    message = pb.MessageThinkingAdaptive()
    if (item := fields.get("display")) is not None:
        message.display = read.choice(item, path, "display", _MESSAGE_THINKING_DISPLAY)
    return message


_MESSAGE_OUTPUT_CONFIG_FIELDS: Final = frozenset({"effort", "format"})


def decode_message_output_config(value: object, path: str) -> pb.MessageOutputConfig:
    """What an answer must look like, and how much the model thinks."""
    fields = read.fields(value, path, _MESSAGE_OUTPUT_CONFIG_FIELDS)
    message = pb.MessageOutputConfig()
    if (item := fields.get("effort")) is not None:
        message.effort = read.choice(item, path, "effort", _MESSAGE_EFFORT)
    if (item := fields.get("format")) is not None:
        message.format.CopyFrom(decode_message_output_format(item, join(path, "format")))
    return message


def decode_message_output_format(value: object, path: str) -> pb.MessageOutputFormat:
    """What an answer must look like."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "json_schema":
            message = pb.MessageOutputFormat(
                json_schema=decode_message_json_schema_format(rest, path)
            )
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("json_schema",))
    return message


_MESSAGE_JSON_SCHEMA_FORMAT_FIELDS: Final = frozenset({"schema"})


def decode_message_json_schema_format(value: object, path: str) -> pb.MessageJsonSchemaFormat:
    """JSON of a schema."""
    fields = read.fields(value, path, _MESSAGE_JSON_SCHEMA_FORMAT_FIELDS, ("schema",))
    message = pb.MessageJsonSchemaFormat()
    if (item := fields.get("schema")) is not None:
        message.schema = read.json_text(item, path, "schema", must_be_object=True)
    return message


_MESSAGE_METADATA_FIELDS: Final = frozenset({"user_id"})


def decode_message_metadata(value: object, path: str) -> pb.MessageMetadata:
    """Data about a request."""
    fields = read.fields(value, path, _MESSAGE_METADATA_FIELDS)
    message = pb.MessageMetadata()
    if (item := fields.get("user_id")) is not None:
        message.user_id = read.string(item, path, "user_id")
    return message


_COUNT_MESSAGE_TOKENS_REQUEST_FIELDS: Final = frozenset(
    {
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "cache_control",
        "speed",
        "mcp_servers",
        "context_management",
    }
)


def decode_count_message_tokens_request(value: object, path: str) -> pb.CountMessageTokensRequest:
    """A conversation whose tokens are counted: a request without what does not touch its prompt."""
    fields = read.fields(value, path, _COUNT_MESSAGE_TOKENS_REQUEST_FIELDS, ("messages",))
    message = pb.CountMessageTokensRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("messages")) is not None:
        at = join(path, "messages")
        for index, element in enumerate(read.array(item, path, "messages", most=16384)):
            message.messages.append(decode_message_turn(element, f"{at}[{index}]"))
    if (item := fields.get("system")) is not None:
        message.system.CopyFrom(decode_message_system(item, join(path, "system")))
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_message_tool(element, f"{at}[{index}]"))
    if (item := fields.get("tool_choice")) is not None:
        message.tool_choice.CopyFrom(decode_message_tool_choice(item, join(path, "tool_choice")))
    if (item := fields.get("thinking")) is not None:
        message.thinking.CopyFrom(decode_message_thinking(item, join(path, "thinking")))
    if (item := fields.get("output_config")) is not None:
        message.output_config.CopyFrom(
            decode_message_output_config(item, join(path, "output_config"))
        )
    if (item := fields.get("output_format")) is not None:
        message.output_format.CopyFrom(
            decode_message_output_format(item, join(path, "output_format"))
        )
    if (item := fields.get("cache_control")) is not None:
        message.cache_control = read.json_text(item, path, "cache_control", must_be_object=True)
    if (item := fields.get("speed")) is not None:
        message.speed = read.string(item, path, "speed")
    if (item := fields.get("mcp_servers")) is not None and item is not False:
        raise checks.refused(path, "mcp_servers", "tools are called by the client only")
    if (item := fields.get("context_management")) is not None and item is not False:
        raise checks.refused(
            path, "context_management", "a conversation is never changed; shorten it in the client"
        )
    return message
