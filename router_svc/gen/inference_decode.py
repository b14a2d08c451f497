# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""JSON bodies to the request messages of octavo/inference/v1/inference.proto."""

from collections.abc import Mapping
from typing import Final

from octavo.inference.v1 import inference_pb2 as pb
from router_svc.http import checks
from router_svc.http import decoding as read
from router_svc.http.checks import join

_ROLE: Final[Mapping[str, pb.Role.ValueType]] = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_DEVELOPER,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
}
_TOOL_CHOICE_MODE: Final[Mapping[str, pb.ToolChoiceMode.ValueType]] = {
    "none": pb.TOOL_CHOICE_MODE_NONE,
    "auto": pb.TOOL_CHOICE_MODE_AUTO,
    "required": pb.TOOL_CHOICE_MODE_REQUIRED,
}
_REASONING_EFFORT: Final[Mapping[str, pb.ReasoningEffort.ValueType]] = {
    "none": pb.REASONING_EFFORT_NONE,
    "minimal": pb.REASONING_EFFORT_MINIMAL,
    "low": pb.REASONING_EFFORT_LOW,
    "medium": pb.REASONING_EFFORT_MEDIUM,
    "high": pb.REASONING_EFFORT_HIGH,
    "xhigh": pb.REASONING_EFFORT_XHIGH,
    "max": pb.REASONING_EFFORT_MAX,
}
_CREATE_CHAT_COMPLETION_REQUEST_FIELDS: Final = frozenset(
    {
        "messages",
        "model",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "user",
        "metadata",
        "store",
        "top_k",
        "min_p",
        "repetition_penalty",
        "min_tokens",
        "ignore_eos",
        "stop_token_ids",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "prompt_logprobs",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "chat_template_kwargs",
        "chat_template",
        "priority",
        "request_id",
        "cache_salt",
        "return_token_ids",
        "bad_words",
        "allowed_token_ids",
        "truncate_prompt_tokens",
        "return_tokens_as_token_ids",
        "spaces_between_special_tokens",
        "response_format",
        "structured_outputs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "include_reasoning",
        "documents",
        "service_tier",
        "prompt_cache_key",
        "safety_identifier",
        "verbosity",
        "functions",
        "function_call",
    }
)


def decode_create_chat_completion_request(
    value: object, path: str
) -> pb.CreateChatCompletionRequest:
    """A conversation to answer."""
    fields = read.fields(value, path, _CREATE_CHAT_COMPLETION_REQUEST_FIELDS, ("messages",))
    message = pb.CreateChatCompletionRequest()
    if (item := fields.get("messages")) is not None:
        at = join(path, "messages")
        for index, element in enumerate(read.array(item, path, "messages", most=16384)):
            message.messages.append(decode_chat_message(element, f"{at}[{index}]"))
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("frequency_penalty")) is not None:
        message.frequency_penalty = read.number(item, path, "frequency_penalty")
    if (item := fields.get("presence_penalty")) is not None:
        message.presence_penalty = read.number(item, path, "presence_penalty")
    if (item := fields.get("logit_bias")) is not None:
        at = join(path, "logit_bias")
        for key, element in read.entries(item, path, "logit_bias", most=1024).items():
            message.logit_bias[read.integer_key(key, at, 0, 4294967295)] = read.number(
                element, at, key
            )
    if (item := fields.get("logprobs")) is not None:
        message.logprobs = read.boolean(item, path, "logprobs")
    if (item := fields.get("top_logprobs")) is not None:
        message.top_logprobs = read.integer(item, path, "top_logprobs", 0, 20)
    if (item := fields.get("max_tokens")) is not None:
        message.max_tokens = read.integer(item, path, "max_tokens", 1, 2147483647)
    if (item := fields.get("max_completion_tokens")) is not None:
        message.max_completion_tokens = read.integer(
            item, path, "max_completion_tokens", 1, 2147483647
        )
    if (item := fields.get("n")) is not None:
        message.n = read.integer(item, path, "n", 1, 128)
    if (item := fields.get("seed")) is not None:
        message.seed = read.integer(item, path, "seed", -9223372036854775808, 9223372036854775807)
    if (item := fields.get("stop")) is not None:
        message.stop.extend(read.strings(item, path, "stop", most=16, one_or_many=True))
    if (item := fields.get("stream")) is not None:
        message.stream = read.boolean(item, path, "stream")
    if (item := fields.get("stream_options")) is not None:
        message.stream_options.CopyFrom(decode_stream_options(item, join(path, "stream_options")))
    if (item := fields.get("temperature")) is not None:
        message.temperature = read.number(item, path, "temperature")
    if (item := fields.get("top_p")) is not None:
        message.top_p = read.number(item, path, "top_p")
    if (item := fields.get("user")) is not None:
        message.user = read.string(item, path, "user")
    if (item := fields.get("metadata")) is not None:
        at = join(path, "metadata")
        for key, element in read.entries(item, path, "metadata", most=16).items():
            message.metadata[key] = read.string(element, at, key)
    if (item := fields.get("store")) is not None and item is not False:
        raise checks.refused(path, "store", "answers are not stored")
    if (item := fields.get("top_k")) is not None:
        message.top_k = read.integer(item, path, "top_k", -1, 2147483647)
    if (item := fields.get("min_p")) is not None:
        message.min_p = read.number(item, path, "min_p")
    if (item := fields.get("repetition_penalty")) is not None:
        message.repetition_penalty = read.number(item, path, "repetition_penalty")
    if (item := fields.get("min_tokens")) is not None:
        message.min_tokens = read.integer(item, path, "min_tokens", 0, 2147483647)
    if (item := fields.get("ignore_eos")) is not None:
        message.ignore_eos = read.boolean(item, path, "ignore_eos")
    if (item := fields.get("stop_token_ids")) is not None:
        message.stop_token_ids.extend(
            read.integers(item, path, "stop_token_ids", 0, 4294967295, most=256)
        )
    if (item := fields.get("include_stop_str_in_output")) is not None:
        message.include_stop_str_in_output = read.boolean(item, path, "include_stop_str_in_output")
    if (item := fields.get("skip_special_tokens")) is not None:
        message.skip_special_tokens = read.boolean(item, path, "skip_special_tokens")
    if (item := fields.get("prompt_logprobs")) is not None:
        message.prompt_logprobs = read.integer(item, path, "prompt_logprobs", 0, 20)
    if (item := fields.get("add_generation_prompt")) is not None:
        message.add_generation_prompt = read.boolean(item, path, "add_generation_prompt")
    if (item := fields.get("continue_final_message")) is not None:
        message.continue_final_message = read.boolean(item, path, "continue_final_message")
    if (item := fields.get("add_special_tokens")) is not None:
        message.add_special_tokens = read.boolean(item, path, "add_special_tokens")
    if (item := fields.get("chat_template_kwargs")) is not None:
        message.chat_template_kwargs = read.json_text(
            item, path, "chat_template_kwargs", must_be_object=True
        )
    if (item := fields.get("chat_template")) is not None and item is not False:
        raise checks.refused(
            path,
            "chat_template",
            "templates are taken from the model or the server's --chat-template only",
        )
    if (item := fields.get("priority")) is not None:
        message.priority = read.integer(item, path, "priority", -1000000, 1000000)
    if (item := fields.get("request_id")) is not None:
        message.request_id = read.string(item, path, "request_id")
    if (item := fields.get("cache_salt")) is not None:
        message.cache_salt = read.string(item, path, "cache_salt")
    if (item := fields.get("return_token_ids")) is not None:
        message.return_token_ids = read.boolean(item, path, "return_token_ids")
    if (item := fields.get("bad_words")) is not None:
        message.bad_words.extend(read.strings(item, path, "bad_words", most=256))
    if (item := fields.get("allowed_token_ids")) is not None:
        message.allowed_token_ids.extend(
            read.integers(item, path, "allowed_token_ids", 0, 4294967295, most=65536)
        )
    if (item := fields.get("truncate_prompt_tokens")) is not None:
        message.truncate_prompt_tokens = read.integer(
            item, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if (item := fields.get("return_tokens_as_token_ids")) is not None:
        message.return_tokens_as_token_ids = read.boolean(item, path, "return_tokens_as_token_ids")
    if (item := fields.get("spaces_between_special_tokens")) is not None:
        message.spaces_between_special_tokens = read.boolean(
            item, path, "spaces_between_special_tokens"
        )
    if (item := fields.get("response_format")) is not None:
        message.response_format.CopyFrom(
            decode_response_format(item, join(path, "response_format"))
        )
    if (item := fields.get("structured_outputs")) is not None:
        message.structured_outputs.CopyFrom(
            decode_structured_outputs(item, join(path, "structured_outputs"))
        )
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_tool(element, f"{at}[{index}]"))
    if (item := fields.get("tool_choice")) is not None:
        message.tool_choice.CopyFrom(decode_tool_choice(item, join(path, "tool_choice")))
    if (item := fields.get("parallel_tool_calls")) is not None:
        message.parallel_tool_calls = read.boolean(item, path, "parallel_tool_calls")
    if (item := fields.get("reasoning_effort")) is not None:
        message.reasoning_effort = read.choice(item, path, "reasoning_effort", _REASONING_EFFORT)
    if (item := fields.get("include_reasoning")) is not None:
        message.include_reasoning = read.boolean(item, path, "include_reasoning")
    if (item := fields.get("documents")) is not None:
        at = join(path, "documents")
        for index, element in enumerate(read.array(item, path, "documents", most=1024)):
            message.documents.append(
                read.json_text(element, f"{at}[{index}]", "", must_be_object=True)
            )
    if (item := fields.get("service_tier")) is not None:
        message.service_tier = read.string(item, path, "service_tier")
    if (item := fields.get("prompt_cache_key")) is not None:
        message.prompt_cache_key = read.string(item, path, "prompt_cache_key")
    if (item := fields.get("safety_identifier")) is not None:
        message.safety_identifier = read.string(item, path, "safety_identifier")
    if (item := fields.get("verbosity")) is not None:
        message.verbosity = read.string(item, path, "verbosity")
    if (item := fields.get("functions")) is not None and item is not False:
        raise checks.refused(path, "functions", "use tools")
    if (item := fields.get("function_call")) is not None and item is not False:
        raise checks.refused(path, "function_call", "use tool_choice")
    return message


_TOOL_FIELDS: Final = frozenset({"type", "function"})


def decode_tool(value: object, path: str) -> pb.Tool:
    """A function that the model may call."""
    fields = read.fields(value, path, _TOOL_FIELDS, ("function",))
    message = pb.Tool()
    if (item := fields.get("type")) is not None:
        message.type = read.constant(item, path, "type", "function")
    if (item := fields.get("function")) is not None:
        message.function.CopyFrom(decode_function_definition(item, join(path, "function")))
    return message


_FUNCTION_DEFINITION_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})


def decode_function_definition(value: object, path: str) -> pb.FunctionDefinition:
    """A function: what it is called, what it is for, what it takes."""
    fields = read.fields(value, path, _FUNCTION_DEFINITION_FIELDS, ("name",))
    message = pb.FunctionDefinition()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("description")) is not None:
        message.description = read.string(item, path, "description")
    if (item := fields.get("parameters")) is not None:
        message.parameters = read.json_text(item, path, "parameters", must_be_object=True)
    if (item := fields.get("strict")) is not None:
        message.strict = read.boolean(item, path, "strict")
    return message


def decode_tool_choice(value: object, path: str) -> pb.ToolChoice:
    """Whether and which functions are called."""
    message = pb.ToolChoice()
    if type(value) is str:
        message.mode = read.choice(value, path, "", _TOOL_CHOICE_MODE)
    elif type(value) is dict:
        message.object.CopyFrom(decode_tool_choice_object(value, path))
    else:
        raise read.wrong_type(path, "a string or an object", value)
    return message


def decode_tool_choice_object(value: object, path: str) -> pb.ToolChoiceObject:
    """Which functions are called."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "function":
            message = pb.ToolChoiceObject(function=decode_named_tool_choice(rest, path))
        case "allowed_tools":
            message = pb.ToolChoiceObject(allowed_tools=decode_allowed_tools_choice(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("function", "allowed_tools"))
    return message


_NAMED_TOOL_CHOICE_FIELDS: Final = frozenset({"function"})


def decode_named_tool_choice(value: object, path: str) -> pb.NamedToolChoice:
    """This function is called."""
    fields = read.fields(value, path, _NAMED_TOOL_CHOICE_FIELDS, ("function",))
    message = pb.NamedToolChoice()
    if (item := fields.get("function")) is not None:
        message.function.CopyFrom(decode_function_name(item, join(path, "function")))
    return message


_FUNCTION_NAME_FIELDS: Final = frozenset({"name"})


def decode_function_name(value: object, path: str) -> pb.FunctionName:
    """Name of a function."""
    fields = read.fields(value, path, _FUNCTION_NAME_FIELDS, ("name",))
    message = pb.FunctionName()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    return message


_ALLOWED_TOOLS_CHOICE_FIELDS: Final = frozenset({"allowed_tools"})


def decode_allowed_tools_choice(value: object, path: str) -> pb.AllowedToolsChoice:
    """Some functions may or must be called."""
    fields = read.fields(value, path, _ALLOWED_TOOLS_CHOICE_FIELDS, ("allowed_tools",))
    message = pb.AllowedToolsChoice()
    if (item := fields.get("allowed_tools")) is not None:
        message.allowed_tools.CopyFrom(decode_allowed_tools(item, join(path, "allowed_tools")))
    return message


_ALLOWED_TOOLS_FIELDS: Final = frozenset({"mode", "tools"})


def decode_allowed_tools(value: object, path: str) -> pb.AllowedTools:
    """Some functions of tools."""
    fields = read.fields(value, path, _ALLOWED_TOOLS_FIELDS, ("mode", "tools"))
    message = pb.AllowedTools()
    if (item := fields.get("mode")) is not None:
        message.mode = read.choice(item, path, "mode", _TOOL_CHOICE_MODE)
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_allowed_tool(element, f"{at}[{index}]"))
    return message


_ALLOWED_TOOL_FIELDS: Final = frozenset({"type", "function"})


def decode_allowed_tool(value: object, path: str) -> pb.AllowedTool:
    """A function of tools, by name."""
    fields = read.fields(value, path, _ALLOWED_TOOL_FIELDS, ("function",))
    message = pb.AllowedTool()
    if (item := fields.get("type")) is not None:
        message.type = read.constant(item, path, "type", "function")
    if (item := fields.get("function")) is not None:
        message.function.CopyFrom(decode_function_name(item, join(path, "function")))
    return message


def decode_response_format(value: object, path: str) -> pb.ResponseFormat:
    """What an answer must look like."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "text":
            message = pb.ResponseFormat(text=decode_text_format(rest, path))
        case "json_object":
            message = pb.ResponseFormat(json_object=decode_json_object_format(rest, path))
        case "json_schema":
            message = pb.ResponseFormat(json_schema=decode_json_schema_format(rest, path))
        case "structural_tag":
            message = pb.ResponseFormat(structural_tag=decode_structural_tag_format(rest, path))
        case _:
            raise checks.unknown_enum(
                kind, join(path, "type"), ("text", "json_object", "json_schema", "structural_tag")
            )
    return message


_STRUCTURAL_TAG_FORMAT_FIELDS: Final = frozenset({"format", "triggers", "structures"})


def decode_structural_tag_format(value: object, path: str) -> pb.StructuralTagFormat:
    """Text with parts of given forms: a format, or triggers and structures."""
    fields = read.fields(value, path, _STRUCTURAL_TAG_FORMAT_FIELDS)
    message = pb.StructuralTagFormat()
    if (item := fields.get("format")) is not None:
        message.format = read.json_text(item, path, "format")
    if (item := fields.get("triggers")) is not None:
        message.triggers.extend(read.strings(item, path, "triggers", most=256))
    if (item := fields.get("structures")) is not None:
        message.structures = read.json_text(item, path, "structures")
    return message


_TEXT_FORMAT_FIELDS: Final[frozenset[str]] = frozenset()


def decode_text_format(value: object, path: str) -> pb.TextFormat:
    """Any text."""
    read.fields(value, path, _TEXT_FORMAT_FIELDS)
    message = pb.TextFormat()
    return message


_JSON_OBJECT_FORMAT_FIELDS: Final[frozenset[str]] = frozenset()


def decode_json_object_format(value: object, path: str) -> pb.JsonObjectFormat:
    """Any JSON object."""
    read.fields(value, path, _JSON_OBJECT_FORMAT_FIELDS)
    message = pb.JsonObjectFormat()
    return message


_JSON_SCHEMA_FORMAT_FIELDS: Final = frozenset({"json_schema"})


def decode_json_schema_format(value: object, path: str) -> pb.JsonSchemaFormat:
    """JSON of a schema."""
    fields = read.fields(value, path, _JSON_SCHEMA_FORMAT_FIELDS, ("json_schema",))
    message = pb.JsonSchemaFormat()
    if (item := fields.get("json_schema")) is not None:
        message.json_schema.CopyFrom(decode_json_schema(item, join(path, "json_schema")))
    return message


_JSON_SCHEMA_FIELDS: Final = frozenset({"name", "description", "schema", "strict"})


def decode_json_schema(value: object, path: str) -> pb.JsonSchema:
    """A JSON schema and its name."""
    fields = read.fields(value, path, _JSON_SCHEMA_FIELDS, ("schema",))
    message = pb.JsonSchema()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("description")) is not None:
        message.description = read.string(item, path, "description")
    if (item := fields.get("schema")) is not None:
        message.schema = read.json_text(item, path, "schema")
    if (item := fields.get("strict")) is not None:
        message.strict = read.boolean(item, path, "strict")
    return message


_STRUCTURED_OUTPUTS_FIELDS: Final = frozenset(
    {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}
)


def decode_structured_outputs(value: object, path: str) -> pb.StructuredOutputs:
    """A grammar that an answer must follow: exactly one of these."""
    fields = read.fields(value, path, _STRUCTURED_OUTPUTS_FIELDS)
    message = pb.StructuredOutputs()
    if (item := fields.get("json")) is not None:
        message.json = read.json_text(item, path, "json")
    if (item := fields.get("regex")) is not None:
        message.regex = read.string(item, path, "regex")
    if (item := fields.get("choice")) is not None:
        message.choice.extend(read.strings(item, path, "choice", most=4096))
    if (item := fields.get("grammar")) is not None:
        message.grammar = read.string(item, path, "grammar")
    if (item := fields.get("json_object")) is not None:
        message.json_object = read.boolean(item, path, "json_object")
    if (item := fields.get("structural_tag")) is not None:
        message.structural_tag = read.json_text(item, path, "structural_tag")
    return message


_STREAM_OPTIONS_FIELDS: Final = frozenset(
    {"include_usage", "continuous_usage_stats", "include_obfuscation"}
)


def decode_stream_options(value: object, path: str) -> pb.StreamOptions:
    """What a stream carries besides text."""
    fields = read.fields(value, path, _STREAM_OPTIONS_FIELDS)
    message = pb.StreamOptions()
    if (item := fields.get("include_usage")) is not None:
        message.include_usage = read.boolean(item, path, "include_usage")
    if (item := fields.get("continuous_usage_stats")) is not None:
        message.continuous_usage_stats = read.boolean(item, path, "continuous_usage_stats")
    if (item := fields.get("include_obfuscation")) is not None:
        message.include_obfuscation = read.boolean(item, path, "include_obfuscation")
    return message


_CHAT_MESSAGE_FIELDS: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "refusal"}
)


def decode_chat_message(value: object, path: str) -> pb.ChatMessage:
    """One turn of a conversation."""
    fields = read.fields(value, path, _CHAT_MESSAGE_FIELDS, ("role",))
    message = pb.ChatMessage()
    if (item := fields.get("role")) is not None:
        message.role = read.choice(item, path, "role", _ROLE)
    if (item := fields.get("content")) is not None:
        message.content.CopyFrom(decode_message_content(item, join(path, "content")))
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("tool_calls")) is not None:
        at = join(path, "tool_calls")
        for index, element in enumerate(read.array(item, path, "tool_calls", most=1024)):
            message.tool_calls.append(decode_tool_call(element, f"{at}[{index}]"))
    if (item := fields.get("tool_call_id")) is not None:
        message.tool_call_id = read.string(item, path, "tool_call_id")
    if (item := fields.get("reasoning_content")) is not None:
        message.reasoning_content = read.string(item, path, "reasoning_content")
    if (item := fields.get("refusal")) is not None:
        message.refusal = read.string(item, path, "refusal")
    return message


def decode_message_content(value: object, path: str) -> pb.MessageContent:
    """Content of a message: a text, or a list of parts."""
    message = pb.MessageContent()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        message.parts.CopyFrom(decode_content_parts(value, path))
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_content_parts(value: object, path: str) -> pb.ContentParts:
    """A list of content parts."""
    message = pb.ContentParts()
    for index, element in enumerate(read.array(value, path, "", most=4096)):
        message.items.append(decode_content_part(element, f"{path}[{index}]"))
    return message


def decode_content_part(value: object, path: str) -> pb.ContentPart:
    """One part of a message's content. Octavo serves text only; any other part is refused and nothing is fetched."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "text":
            message = pb.ContentPart(text=decode_text_part(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("text",))
    return message


_TEXT_PART_FIELDS: Final = frozenset({"text"})


def decode_text_part(value: object, path: str) -> pb.TextPart:
    """A piece of text."""
    fields = read.fields(value, path, _TEXT_PART_FIELDS, ("text",))
    message = pb.TextPart()
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    return message


_TOOL_CALL_FIELDS: Final = frozenset({"id", "type", "function"})


def decode_tool_call(value: object, path: str) -> pb.ToolCall:
    """A call of a function, as the model asked for it."""
    fields = read.fields(value, path, _TOOL_CALL_FIELDS, ("id", "function"))
    message = pb.ToolCall()
    if (item := fields.get("id")) is not None:
        message.id = read.string(item, path, "id")
    if (item := fields.get("type")) is not None:
        message.type = read.constant(item, path, "type", "function")
    if (item := fields.get("function")) is not None:
        message.function.CopyFrom(decode_function_call(item, join(path, "function")))
    return message


_FUNCTION_CALL_FIELDS: Final = frozenset({"name", "arguments"})


def decode_function_call(value: object, path: str) -> pb.FunctionCall:
    """A function and its arguments."""
    fields = read.fields(value, path, _FUNCTION_CALL_FIELDS, ("name", "arguments"))
    message = pb.FunctionCall()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("arguments")) is not None:
        message.arguments = read.string(item, path, "arguments")
    return message


_CREATE_COMPLETION_REQUEST_FIELDS: Final = frozenset(
    {
        "model",
        "prompt",
        "echo",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "n",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "user",
        "top_k",
        "min_p",
        "repetition_penalty",
        "min_tokens",
        "ignore_eos",
        "stop_token_ids",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "prompt_logprobs",
        "add_special_tokens",
        "priority",
        "request_id",
        "cache_salt",
        "return_token_ids",
        "bad_words",
        "allowed_token_ids",
        "truncate_prompt_tokens",
        "return_tokens_as_token_ids",
        "spaces_between_special_tokens",
        "response_format",
        "structured_outputs",
        "best_of",
        "suffix",
    }
)


def decode_create_completion_request(value: object, path: str) -> pb.CreateCompletionRequest:
    """A text to continue."""
    fields = read.fields(value, path, _CREATE_COMPLETION_REQUEST_FIELDS, ("prompt",))
    message = pb.CreateCompletionRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("prompt")) is not None:
        message.prompt.CopyFrom(decode_prompt(item, join(path, "prompt")))
    if (item := fields.get("echo")) is not None:
        message.echo = read.boolean(item, path, "echo")
    if (item := fields.get("frequency_penalty")) is not None:
        message.frequency_penalty = read.number(item, path, "frequency_penalty")
    if (item := fields.get("presence_penalty")) is not None:
        message.presence_penalty = read.number(item, path, "presence_penalty")
    if (item := fields.get("logit_bias")) is not None:
        at = join(path, "logit_bias")
        for key, element in read.entries(item, path, "logit_bias", most=1024).items():
            message.logit_bias[read.integer_key(key, at, 0, 4294967295)] = read.number(
                element, at, key
            )
    if (item := fields.get("logprobs")) is not None:
        message.logprobs = read.integer(item, path, "logprobs", 0, 20)
    if (item := fields.get("max_tokens")) is not None:
        message.max_tokens = read.integer(item, path, "max_tokens", 0, 2147483647)
    if (item := fields.get("n")) is not None:
        message.n = read.integer(item, path, "n", 1, 128)
    if (item := fields.get("seed")) is not None:
        message.seed = read.integer(item, path, "seed", -9223372036854775808, 9223372036854775807)
    if (item := fields.get("stop")) is not None:
        message.stop.extend(read.strings(item, path, "stop", most=16, one_or_many=True))
    if (item := fields.get("stream")) is not None:
        message.stream = read.boolean(item, path, "stream")
    if (item := fields.get("stream_options")) is not None:
        message.stream_options.CopyFrom(decode_stream_options(item, join(path, "stream_options")))
    if (item := fields.get("temperature")) is not None:
        message.temperature = read.number(item, path, "temperature")
    if (item := fields.get("top_p")) is not None:
        message.top_p = read.number(item, path, "top_p")
    if (item := fields.get("user")) is not None:
        message.user = read.string(item, path, "user")
    if (item := fields.get("top_k")) is not None:
        message.top_k = read.integer(item, path, "top_k", -1, 2147483647)
    if (item := fields.get("min_p")) is not None:
        message.min_p = read.number(item, path, "min_p")
    if (item := fields.get("repetition_penalty")) is not None:
        message.repetition_penalty = read.number(item, path, "repetition_penalty")
    if (item := fields.get("min_tokens")) is not None:
        message.min_tokens = read.integer(item, path, "min_tokens", 0, 2147483647)
    if (item := fields.get("ignore_eos")) is not None:
        message.ignore_eos = read.boolean(item, path, "ignore_eos")
    if (item := fields.get("stop_token_ids")) is not None:
        message.stop_token_ids.extend(
            read.integers(item, path, "stop_token_ids", 0, 4294967295, most=256)
        )
    if (item := fields.get("include_stop_str_in_output")) is not None:
        message.include_stop_str_in_output = read.boolean(item, path, "include_stop_str_in_output")
    if (item := fields.get("skip_special_tokens")) is not None:
        message.skip_special_tokens = read.boolean(item, path, "skip_special_tokens")
    if (item := fields.get("prompt_logprobs")) is not None:
        message.prompt_logprobs = read.integer(item, path, "prompt_logprobs", 0, 20)
    if (item := fields.get("add_special_tokens")) is not None:
        message.add_special_tokens = read.boolean(item, path, "add_special_tokens")
    if (item := fields.get("priority")) is not None:
        message.priority = read.integer(item, path, "priority", -1000000, 1000000)
    if (item := fields.get("request_id")) is not None:
        message.request_id = read.string(item, path, "request_id")
    if (item := fields.get("cache_salt")) is not None:
        message.cache_salt = read.string(item, path, "cache_salt")
    if (item := fields.get("return_token_ids")) is not None:
        message.return_token_ids = read.boolean(item, path, "return_token_ids")
    if (item := fields.get("bad_words")) is not None:
        message.bad_words.extend(read.strings(item, path, "bad_words", most=256))
    if (item := fields.get("allowed_token_ids")) is not None:
        message.allowed_token_ids.extend(
            read.integers(item, path, "allowed_token_ids", 0, 4294967295, most=65536)
        )
    if (item := fields.get("truncate_prompt_tokens")) is not None:
        message.truncate_prompt_tokens = read.integer(
            item, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if (item := fields.get("return_tokens_as_token_ids")) is not None:
        message.return_tokens_as_token_ids = read.boolean(item, path, "return_tokens_as_token_ids")
    if (item := fields.get("spaces_between_special_tokens")) is not None:
        message.spaces_between_special_tokens = read.boolean(
            item, path, "spaces_between_special_tokens"
        )
    if (item := fields.get("response_format")) is not None:
        message.response_format.CopyFrom(
            decode_response_format(item, join(path, "response_format"))
        )
    if (item := fields.get("structured_outputs")) is not None:
        message.structured_outputs.CopyFrom(
            decode_structured_outputs(item, join(path, "structured_outputs"))
        )
    if (item := fields.get("best_of")) is not None:
        message.best_of = read.integer(item, path, "best_of", 1, 128)
    if (item := fields.get("suffix")) is not None:
        message.suffix = read.string(item, path, "suffix")
    return message


def decode_prompt(value: object, path: str) -> pb.Prompt:
    """One or several prompts, as text or as token ids."""
    message = pb.Prompt()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        first = value[0] if value else None
        if not value or type(first) is str:
            message.texts.CopyFrom(decode_text_list(value, path))
        elif type(first) is int:
            message.token_ids.CopyFrom(decode_token_ids(value, path))
        elif type(first) is list:
            message.token_ids_list.CopyFrom(decode_token_ids_list(value, path))
        else:
            raise read.wrong_type(f"{path}[0]", "a string or an integer or an array", first)
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_text_list(value: object, path: str) -> pb.TextList:
    """Several texts."""
    message = pb.TextList()
    message.items.extend(read.strings(value, path, "", most=2048))
    return message


def decode_token_ids(value: object, path: str) -> pb.TokenIds:
    """Token ids of one prompt."""
    message = pb.TokenIds()
    message.items.extend(read.integers(value, path, "", 0, 4294967295, most=4194304))
    return message


def decode_token_ids_list(value: object, path: str) -> pb.TokenIdsList:
    """Token ids of several prompts."""
    message = pb.TokenIdsList()
    for index, element in enumerate(read.array(value, path, "", most=2048)):
        message.items.append(decode_token_ids(element, f"{path}[{index}]"))
    return message


_LIST_MODELS_REQUEST_FIELDS: Final[frozenset[str]] = frozenset()


def decode_list_models_request(value: object, path: str) -> pb.ListModelsRequest:
    """Asks for the list of models."""
    read.fields(value, path, _LIST_MODELS_REQUEST_FIELDS)
    message = pb.ListModelsRequest()
    return message


_GET_MODEL_REQUEST_FIELDS: Final = frozenset({"model"})


def decode_get_model_request(value: object, path: str) -> pb.GetModelRequest:
    """Asks for one model."""
    fields = read.fields(value, path, _GET_MODEL_REQUEST_FIELDS, ("model",))
    message = pb.GetModelRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    return message


_TOKENIZE_REQUEST_FIELDS: Final = frozenset(
    {
        "model",
        "prompt",
        "messages",
        "add_special_tokens",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template_kwargs",
        "chat_template",
        "return_token_strs",
        "tools",
    }
)


def decode_tokenize_request(value: object, path: str) -> pb.TokenizeRequest:
    """Text or a conversation to tokenise: exactly one of prompt and messages."""
    fields = read.fields(value, path, _TOKENIZE_REQUEST_FIELDS)
    message = pb.TokenizeRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("prompt")) is not None:
        message.prompt = read.string(item, path, "prompt")
    if (item := fields.get("messages")) is not None:
        at = join(path, "messages")
        for index, element in enumerate(read.array(item, path, "messages", most=16384)):
            message.messages.append(decode_chat_message(element, f"{at}[{index}]"))
    if (item := fields.get("add_special_tokens")) is not None:
        message.add_special_tokens = read.boolean(item, path, "add_special_tokens")
    if (item := fields.get("add_generation_prompt")) is not None:
        message.add_generation_prompt = read.boolean(item, path, "add_generation_prompt")
    if (item := fields.get("continue_final_message")) is not None:
        message.continue_final_message = read.boolean(item, path, "continue_final_message")
    if (item := fields.get("chat_template_kwargs")) is not None:
        message.chat_template_kwargs = read.json_text(
            item, path, "chat_template_kwargs", must_be_object=True
        )
    if (item := fields.get("chat_template")) is not None and item is not False:
        raise checks.refused(
            path,
            "chat_template",
            "templates are taken from the model or the server's --chat-template only",
        )
    if (item := fields.get("return_token_strs")) is not None:
        message.return_token_strs = read.boolean(item, path, "return_token_strs")
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_tool(element, f"{at}[{index}]"))
    return message


_DETOKENIZE_REQUEST_FIELDS: Final = frozenset({"model", "tokens"})


def decode_detokenize_request(value: object, path: str) -> pb.DetokenizeRequest:
    """Tokens to turn into text."""
    fields = read.fields(value, path, _DETOKENIZE_REQUEST_FIELDS, ("tokens",))
    message = pb.DetokenizeRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("tokens")) is not None:
        message.tokens.extend(read.integers(item, path, "tokens", 0, 4294967295, most=4194304))
    return message


_EXPLAIN_ROUTE_REQUEST_FIELDS: Final = frozenset({"model", "prompt", "messages", "cache_salt"})


def decode_explain_route_request(value: object, path: str) -> pb.ExplainRouteRequest:
    """A prompt to find an engine for: exactly one of prompt and messages."""
    fields = read.fields(value, path, _EXPLAIN_ROUTE_REQUEST_FIELDS)
    message = pb.ExplainRouteRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("prompt")) is not None:
        message.prompt = read.string(item, path, "prompt")
    if (item := fields.get("messages")) is not None:
        at = join(path, "messages")
        for index, element in enumerate(read.array(item, path, "messages", most=16384)):
            message.messages.append(decode_chat_message(element, f"{at}[{index}]"))
    if (item := fields.get("cache_salt")) is not None:
        message.cache_salt = read.string(item, path, "cache_salt")
    return message
