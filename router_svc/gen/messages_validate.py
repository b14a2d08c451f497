# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""Limits of the request messages of octavo/inference/v1/messages.proto, whichever way they came."""

from octavo.inference.v1 import messages_pb2 as pb
from router_svc.http import checks
from router_svc.http.checks import join
from router_svc.http.decoding import is_json


def validate_create_message_request(message: pb.CreateMessageRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of CreateMessageRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not 1 <= len(message.messages) <= 16384:
        raise checks.wrong_count(len(message.messages), join(path, "messages"), 1, 16384)
    at = join(path, "messages")
    for index, messages_item in enumerate(message.messages):
        validate_message_turn(messages_item, f"{at}[{index}]")
    if not 1 <= message.max_tokens <= 2147483647:
        raise checks.out_of_range(message.max_tokens, path, "max_tokens", 1, 2147483647)
    if message.HasField("system"):
        validate_message_system(message.system, join(path, "system"))
    if not len(message.stop_sequences) <= 16:
        raise checks.wrong_count(len(message.stop_sequences), join(path, "stop_sequences"), 0, 16)
    for index, stop_sequences_item in enumerate(message.stop_sequences):
        if len(stop_sequences_item) > 4096:
            place = join(path, "stop_sequences") + f"[{index}]"
            raise checks.too_long(len(stop_sequences_item), place, 4096)
    if message.HasField("temperature") and not 0 <= message.temperature <= 2:
        raise checks.out_of_range(message.temperature, path, "temperature", 0, 2)
    if message.HasField("top_p") and not 0 < message.top_p <= 1:
        raise checks.out_of_range(message.top_p, path, "top_p", 0, 1, above=True)
    if message.HasField("top_k") and not 0 <= message.top_k <= 2147483647:
        raise checks.out_of_range(message.top_k, path, "top_k", 0, 2147483647)
    if not len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 0, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_message_tool(tools_item, f"{at}[{index}]")
    if message.HasField("tool_choice"):
        validate_message_tool_choice(message.tool_choice, join(path, "tool_choice"))
    if message.HasField("thinking"):
        validate_message_thinking(message.thinking, join(path, "thinking"))
    if message.HasField("output_config"):
        validate_message_output_config(message.output_config, join(path, "output_config"))
    if message.HasField("output_format"):
        validate_message_output_format(message.output_format, join(path, "output_format"))
    if message.HasField("metadata"):
        validate_message_metadata(message.metadata, join(path, "metadata"))
    if message.HasField("cache_control") and not is_json(
        message.cache_control, must_be_object=True
    ):
        raise checks.not_json(path, "cache_control")
    if message.HasField("service_tier") and len(message.service_tier) > 64:
        raise checks.too_long(len(message.service_tier), join(path, "service_tier"), 64)
    if message.HasField("speed") and len(message.speed) > 64:
        raise checks.too_long(len(message.speed), join(path, "speed"), 64)
    if message.HasField("container"):
        raise checks.refused(path, "container", "code is not run here")
    if message.HasField("mcp_servers"):
        raise checks.refused(path, "mcp_servers", "tools are called by the client only")
    if message.HasField("context_management"):
        raise checks.refused(
            path, "context_management", "a conversation is never changed; shorten it in the client"
        )
    if message.HasField("diagnostics"):
        raise checks.refused(path, "diagnostics", "nothing is kept about earlier requests")
    if message.HasField("inference_geo"):
        raise checks.refused(path, "inference_geo", "an answer is computed where the server runs")


def validate_message_turn(message: pb.MessageTurn, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageTurn is broken."""
    if message.role == 0:
        raise checks.missing(path, "role")
    if message.role not in (0, 1, 2, 3):
        raise checks.unknown_enum(message.role, join(path, "role"), ("user", "assistant", "system"))
    if not message.HasField("content"):
        raise checks.missing(path, "content")
    validate_message_turn_content(message.content, join(path, "content"))


def validate_message_turn_content(message: pb.MessageTurnContent, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageTurnContent is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "blocks":
        validate_message_blocks(message.blocks, path)


def validate_message_blocks(message: pb.MessageBlocks, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageBlocks is broken."""
    if not len(message.items) <= 4096:
        raise checks.wrong_count(len(message.items), join(path, ""), 0, 4096)
    at = path
    for index, items_item in enumerate(message.items):
        validate_message_block(items_item, f"{at}[{index}]")


def validate_message_block(message: pb.MessageBlock, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageBlock is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "text":
        validate_message_text_block(message.text, path)
    if kind == "thinking":
        validate_message_thinking_block(message.thinking, path)
    if kind == "redacted_thinking":
        validate_message_redacted_thinking_block(message.redacted_thinking, path)
    if kind == "tool_use":
        validate_message_tool_use_block(message.tool_use, path)
    if kind == "tool_result":
        validate_message_tool_result_block(message.tool_result, path)


def validate_message_text_block(message: pb.MessageTextBlock, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageTextBlock is broken."""
    if message.HasField("cache_control") and not is_json(
        message.cache_control, must_be_object=True
    ):
        raise checks.not_json(path, "cache_control")
    if message.HasField("citations") and not is_json(message.citations):
        raise checks.not_json(path, "citations")


def validate_message_thinking_block(message: pb.MessageThinkingBlock, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageThinkingBlock is broken."""


def validate_message_redacted_thinking_block(
    message: pb.MessageRedactedThinkingBlock, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of MessageRedactedThinkingBlock is broken."""


def validate_message_tool_use_block(message: pb.MessageToolUseBlock, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolUseBlock is broken."""
    if len(message.id) > 512:
        raise checks.too_long(len(message.id), join(path, "id"), 512)
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if not is_json(message.input, must_be_object=True):
        raise checks.not_json(path, "input")
    if message.HasField("cache_control") and not is_json(
        message.cache_control, must_be_object=True
    ):
        raise checks.not_json(path, "cache_control")
    if message.HasField("caller") and not is_json(message.caller, must_be_object=True):
        raise checks.not_json(path, "caller")


def validate_message_tool_result_block(message: pb.MessageToolResultBlock, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolResultBlock is broken."""
    if len(message.tool_use_id) > 512:
        raise checks.too_long(len(message.tool_use_id), join(path, "tool_use_id"), 512)
    if message.HasField("content"):
        validate_message_tool_result_content(message.content, join(path, "content"))
    if message.HasField("cache_control") and not is_json(
        message.cache_control, must_be_object=True
    ):
        raise checks.not_json(path, "cache_control")


def validate_message_tool_result_content(
    message: pb.MessageToolResultContent, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolResultContent is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "blocks":
        validate_message_text_blocks(message.blocks, path)


def validate_message_text_blocks(message: pb.MessageTextBlocks, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageTextBlocks is broken."""
    if not len(message.items) <= 4096:
        raise checks.wrong_count(len(message.items), join(path, ""), 0, 4096)
    at = path
    for index, items_item in enumerate(message.items):
        validate_message_only_text_block(items_item, f"{at}[{index}]")


def validate_message_only_text_block(message: pb.MessageOnlyTextBlock, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageOnlyTextBlock is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "text":
        validate_message_text_block(message.text, path)


def validate_message_system(message: pb.MessageSystem, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageSystem is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "blocks":
        validate_message_text_blocks(message.blocks, path)


def validate_message_tool(message: pb.MessageTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageTool is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "custom":
        validate_message_custom_tool(message.custom, path)


def validate_message_custom_tool(message: pb.MessageCustomTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageCustomTool is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if message.HasField("description") and len(message.description) > 65536:
        raise checks.too_long(len(message.description), join(path, "description"), 65536)
    if not is_json(message.input_schema, must_be_object=True):
        raise checks.not_json(path, "input_schema")
    if message.HasField("cache_control") and not is_json(
        message.cache_control, must_be_object=True
    ):
        raise checks.not_json(path, "cache_control")
    if message.defer_loading:
        raise checks.refused(path, "defer_loading", "the model is told of every tool")
    if not len(message.input_examples) <= 128:
        raise checks.wrong_count(len(message.input_examples), join(path, "input_examples"), 0, 128)
    for index, input_examples_item in enumerate(message.input_examples):
        if not is_json(input_examples_item, must_be_object=True):
            place = join(path, "input_examples") + f"[{index}]"
            raise checks.not_json(place, "")
    if not len(message.allowed_callers) <= 16:
        raise checks.wrong_count(len(message.allowed_callers), join(path, "allowed_callers"), 0, 16)


def validate_message_tool_choice(message: pb.MessageToolChoice, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolChoice is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "auto":
        validate_message_tool_choice_auto(message.auto, path)
    if kind == "any":
        validate_message_tool_choice_any(message.any, path)
    if kind == "tool":
        validate_message_tool_choice_tool(message.tool, path)
    if kind == "none":
        validate_message_tool_choice_none(message.none, path)


def validate_message_tool_choice_auto(message: pb.MessageToolChoiceAuto, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolChoiceAuto is broken."""


def validate_message_tool_choice_any(message: pb.MessageToolChoiceAny, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolChoiceAny is broken."""


def validate_message_tool_choice_tool(message: pb.MessageToolChoiceTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolChoiceTool is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)


def validate_message_tool_choice_none(message: pb.MessageToolChoiceNone, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageToolChoiceNone is broken."""


def validate_message_thinking(message: pb.MessageThinking, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageThinking is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "enabled":
        validate_message_thinking_enabled(message.enabled, path)
    if kind == "disabled":
        validate_message_thinking_disabled(message.disabled, path)
    if kind == "adaptive":
        validate_message_thinking_adaptive(message.adaptive, path)


def validate_message_thinking_enabled(message: pb.MessageThinkingEnabled, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageThinkingEnabled is broken."""
    if not 1 <= message.budget_tokens <= 2147483647:
        raise checks.out_of_range(message.budget_tokens, path, "budget_tokens", 1, 2147483647)
    if message.HasField("display") and message.display not in (0, 1, 2):
        raise checks.unknown_enum(message.display, join(path, "display"), ("summarized", "omitted"))


def validate_message_thinking_disabled(message: pb.MessageThinkingDisabled, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageThinkingDisabled is broken."""


def validate_message_thinking_adaptive(message: pb.MessageThinkingAdaptive, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageThinkingAdaptive is broken."""
    if message.HasField("display") and message.display not in (0, 1, 2):
        raise checks.unknown_enum(message.display, join(path, "display"), ("summarized", "omitted"))


def validate_message_output_config(message: pb.MessageOutputConfig, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageOutputConfig is broken."""
    if message.HasField("effort") and message.effort not in (0, 1, 2, 3, 4, 5):
        raise checks.unknown_enum(
            message.effort, join(path, "effort"), ("low", "medium", "high", "xhigh", "max")
        )
    if message.HasField("format"):
        validate_message_output_format(message.format, join(path, "format"))


def validate_message_output_format(message: pb.MessageOutputFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageOutputFormat is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "json_schema":
        validate_message_json_schema_format(message.json_schema, path)


def validate_message_json_schema_format(
    message: pb.MessageJsonSchemaFormat, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of MessageJsonSchemaFormat is broken."""
    if not is_json(message.schema, must_be_object=True):
        raise checks.not_json(path, "schema")


def validate_message_metadata(message: pb.MessageMetadata, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageMetadata is broken."""
    if message.HasField("user_id") and len(message.user_id) > 512:
        raise checks.too_long(len(message.user_id), join(path, "user_id"), 512)


def validate_count_message_tokens_request(
    message: pb.CountMessageTokensRequest, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of CountMessageTokensRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not 1 <= len(message.messages) <= 16384:
        raise checks.wrong_count(len(message.messages), join(path, "messages"), 1, 16384)
    at = join(path, "messages")
    for index, messages_item in enumerate(message.messages):
        validate_message_turn(messages_item, f"{at}[{index}]")
    if message.HasField("system"):
        validate_message_system(message.system, join(path, "system"))
    if not len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 0, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_message_tool(tools_item, f"{at}[{index}]")
    if message.HasField("tool_choice"):
        validate_message_tool_choice(message.tool_choice, join(path, "tool_choice"))
    if message.HasField("thinking"):
        validate_message_thinking(message.thinking, join(path, "thinking"))
    if message.HasField("output_config"):
        validate_message_output_config(message.output_config, join(path, "output_config"))
    if message.HasField("output_format"):
        validate_message_output_format(message.output_format, join(path, "output_format"))
    if message.HasField("cache_control") and not is_json(
        message.cache_control, must_be_object=True
    ):
        raise checks.not_json(path, "cache_control")
    if message.HasField("speed") and len(message.speed) > 64:
        raise checks.too_long(len(message.speed), join(path, "speed"), 64)
    if message.HasField("mcp_servers"):
        raise checks.refused(path, "mcp_servers", "tools are called by the client only")
    if message.HasField("context_management"):
        raise checks.refused(
            path, "context_management", "a conversation is never changed; shorten it in the client"
        )
