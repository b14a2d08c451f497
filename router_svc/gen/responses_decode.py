# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""JSON bodies to the request messages of octavo/inference/v1/responses.proto."""

from collections.abc import Mapping
from typing import Final

from octavo.inference.v1 import responses_pb2 as pb
from octavo.inference.v1 import inference_pb2
from router_svc.gen import inference_decode
from router_svc.http import checks
from router_svc.http import decoding as read
from router_svc.http.checks import join

_TOOL_CHOICE_MODE: Final[Mapping[str, inference_pb2.ToolChoiceMode.ValueType]] = {
    "none": inference_pb2.TOOL_CHOICE_MODE_NONE,
    "auto": inference_pb2.TOOL_CHOICE_MODE_AUTO,
    "required": inference_pb2.TOOL_CHOICE_MODE_REQUIRED,
}
_REASONING_EFFORT: Final[Mapping[str, inference_pb2.ReasoningEffort.ValueType]] = {
    "none": inference_pb2.REASONING_EFFORT_NONE,
    "minimal": inference_pb2.REASONING_EFFORT_MINIMAL,
    "low": inference_pb2.REASONING_EFFORT_LOW,
    "medium": inference_pb2.REASONING_EFFORT_MEDIUM,
    "high": inference_pb2.REASONING_EFFORT_HIGH,
    "xhigh": inference_pb2.REASONING_EFFORT_XHIGH,
    "max": inference_pb2.REASONING_EFFORT_MAX,
}
_RESPONSE_ROLE: Final[Mapping[str, pb.ResponseRole.ValueType]] = {
    "user": pb.RESPONSE_ROLE_USER,
    "assistant": pb.RESPONSE_ROLE_ASSISTANT,
    "system": pb.RESPONSE_ROLE_SYSTEM,
    "developer": pb.RESPONSE_ROLE_DEVELOPER,
}
_RESPONSE_ITEM_STATUS: Final[Mapping[str, pb.ResponseItemStatus.ValueType]] = {
    "in_progress": pb.RESPONSE_ITEM_STATUS_IN_PROGRESS,
    "completed": pb.RESPONSE_ITEM_STATUS_COMPLETED,
    "incomplete": pb.RESPONSE_ITEM_STATUS_INCOMPLETE,
}
_RESPONSE_INCLUDABLE: Final[Mapping[str, pb.ResponseIncludable.ValueType]] = {
    "message.output_text.logprobs": pb.RESPONSE_INCLUDABLE_OUTPUT_TEXT_LOGPROBS,
    "reasoning.encrypted_content": pb.RESPONSE_INCLUDABLE_REASONING_ENCRYPTED_CONTENT,
}
_RESPONSE_VERBOSITY: Final[Mapping[str, pb.ResponseVerbosity.ValueType]] = {
    "low": pb.RESPONSE_VERBOSITY_LOW,
    "medium": pb.RESPONSE_VERBOSITY_MEDIUM,
    "high": pb.RESPONSE_VERBOSITY_HIGH,
}
_RESPONSE_SUMMARY: Final[Mapping[str, pb.ResponseSummary.ValueType]] = {
    "auto": pb.RESPONSE_SUMMARY_AUTO,
    "concise": pb.RESPONSE_SUMMARY_CONCISE,
    "detailed": pb.RESPONSE_SUMMARY_DETAILED,
}
_CREATE_RESPONSE_REQUEST_FIELDS: Final = frozenset(
    {
        "input",
        "model",
        "instructions",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "include",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "stream",
        "stream_options",
        "metadata",
        "truncation",
        "store",
        "previous_response_id",
        "conversation",
        "prompt",
        "background",
        "background_options",
        "context_management",
        "moderation",
        "image",
        "access_programs",
        "max_tool_calls",
        "user",
        "safety_identifier",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "top_k",
        "min_p",
        "repetition_penalty",
        "seed",
        "chat_template_kwargs",
        "priority",
        "request_id",
        "cache_salt",
    }
)


def decode_create_response_request(value: object, path: str) -> pb.CreateResponseRequest:
    """A conversation to answer, given as items."""
    fields = read.fields(value, path, _CREATE_RESPONSE_REQUEST_FIELDS, ("input",))
    message = pb.CreateResponseRequest()
    if (item := fields.get("input")) is not None:
        message.input.CopyFrom(decode_response_input(item, join(path, "input")))
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("instructions")) is not None:
        message.instructions = read.string(item, path, "instructions")
    if (item := fields.get("max_output_tokens")) is not None:
        message.max_output_tokens = read.integer(item, path, "max_output_tokens", 1, 2147483647)
    if (item := fields.get("temperature")) is not None:
        message.temperature = read.number(item, path, "temperature")
    if (item := fields.get("top_p")) is not None:
        message.top_p = read.number(item, path, "top_p")
    if (item := fields.get("top_logprobs")) is not None:
        message.top_logprobs = read.integer(item, path, "top_logprobs", 0, 20)
    if (item := fields.get("include")) is not None:
        at = join(path, "include")
        for index, element in enumerate(read.array(item, path, "include", most=16)):
            message.include.append(read.choice(element, f"{at}[{index}]", "", _RESPONSE_INCLUDABLE))
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_response_tool(element, f"{at}[{index}]"))
    if (item := fields.get("tool_choice")) is not None:
        message.tool_choice.CopyFrom(decode_response_tool_choice(item, join(path, "tool_choice")))
    if (item := fields.get("parallel_tool_calls")) is not None:
        message.parallel_tool_calls = read.boolean(item, path, "parallel_tool_calls")
    if (item := fields.get("text")) is not None:
        message.text.CopyFrom(decode_response_text_config(item, join(path, "text")))
    if (item := fields.get("reasoning")) is not None:
        message.reasoning.CopyFrom(decode_response_reasoning(item, join(path, "reasoning")))
    if (item := fields.get("stream")) is not None:
        message.stream = read.boolean(item, path, "stream")
    if (item := fields.get("stream_options")) is not None:
        message.stream_options.CopyFrom(
            decode_response_stream_options(item, join(path, "stream_options"))
        )
    if (item := fields.get("metadata")) is not None:
        at = join(path, "metadata")
        for key, element in read.entries(item, path, "metadata", most=16).items():
            message.metadata[key] = read.string(element, at, key)
    if (item := fields.get("truncation")) is not None:
        message.truncation = read.constant(item, path, "truncation", "disabled")
    if (item := fields.get("store")) is not None and item is not False:
        raise checks.refused(path, "store", "answers are not stored")
    if (item := fields.get("previous_response_id")) is not None and item is not False:
        raise checks.refused(
            path,
            "previous_response_id",
            "answers are not stored; send the whole conversation as input",
        )
    if (item := fields.get("conversation")) is not None and item is not False:
        raise checks.refused(
            path,
            "conversation",
            "conversations are not stored; send the whole conversation as input",
        )
    if (item := fields.get("prompt")) is not None and item is not False:
        raise checks.refused(path, "prompt", "prompts are not stored; send input and instructions")
    if (item := fields.get("background")) is not None and item is not False:
        raise checks.refused(
            path, "background", "answers are not stored, so none can be fetched later"
        )
    if (item := fields.get("background_options")) is not None and item is not False:
        raise checks.refused(
            path, "background_options", "answers are not stored, so none can be fetched later"
        )
    if (item := fields.get("context_management")) is not None and item is not False:
        raise checks.refused(
            path,
            "context_management",
            "conversations are not compacted; send what the model shall read",
        )
    if (item := fields.get("moderation")) is not None and item is not False:
        raise checks.refused(path, "moderation", "no moderation is served")
    if (item := fields.get("image")) is not None and item is not False:
        raise checks.refused(path, "image", "text is served only")
    if (item := fields.get("access_programs")) is not None and item is not False:
        raise checks.refused(path, "access_programs", "there are no programs of access here")
    if (item := fields.get("max_tool_calls")) is not None:
        message.max_tool_calls = read.integer(item, path, "max_tool_calls", 1, 9223372036854775807)
    if (item := fields.get("user")) is not None:
        message.user = read.string(item, path, "user")
    if (item := fields.get("safety_identifier")) is not None:
        message.safety_identifier = read.string(item, path, "safety_identifier")
    if (item := fields.get("service_tier")) is not None:
        message.service_tier = read.string(item, path, "service_tier")
    if (item := fields.get("prompt_cache_key")) is not None:
        message.prompt_cache_key = read.string(item, path, "prompt_cache_key")
    if (item := fields.get("prompt_cache_options")) is not None:
        message.prompt_cache_options = read.json_text(
            item, path, "prompt_cache_options", must_be_object=True
        )
    if (item := fields.get("prompt_cache_retention")) is not None:
        message.prompt_cache_retention = read.string(item, path, "prompt_cache_retention")
    if (item := fields.get("top_k")) is not None:
        message.top_k = read.integer(item, path, "top_k", -1, 2147483647)
    if (item := fields.get("min_p")) is not None:
        message.min_p = read.number(item, path, "min_p")
    if (item := fields.get("repetition_penalty")) is not None:
        message.repetition_penalty = read.number(item, path, "repetition_penalty")
    if (item := fields.get("seed")) is not None:
        message.seed = read.integer(item, path, "seed", -9223372036854775808, 9223372036854775807)
    if (item := fields.get("chat_template_kwargs")) is not None:
        message.chat_template_kwargs = read.json_text(
            item, path, "chat_template_kwargs", must_be_object=True
        )
    if (item := fields.get("priority")) is not None:
        message.priority = read.integer(item, path, "priority", -1000000, 1000000)
    if (item := fields.get("request_id")) is not None:
        message.request_id = read.string(item, path, "request_id")
    if (item := fields.get("cache_salt")) is not None:
        message.cache_salt = read.string(item, path, "cache_salt")
    return message


def decode_response_input(value: object, path: str) -> pb.ResponseInput:
    """A text of the user's, or a conversation as items."""
    message = pb.ResponseInput()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        message.items.CopyFrom(decode_response_input_items(value, path))
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_response_input_items(value: object, path: str) -> pb.ResponseInputItems:
    """The items of a conversation."""
    message = pb.ResponseInputItems()
    for index, element in enumerate(read.array(value, path, "", most=16384)):
        message.items.append(decode_response_input_item(element, f"{path}[{index}]"))
    return message


def decode_response_input_item(value: object, path: str) -> pb.ResponseInputItem:
    """One item of a conversation. Those of an answer may be sent back as they came."""
    kind, rest = read.tagged(value, path, "type", "message")
    match kind:
        case "message":
            message = pb.ResponseInputItem(message=decode_response_input_message(rest, path))
        case "function_call":
            message = pb.ResponseInputItem(
                function_call=decode_response_input_function_call(rest, path)
            )
        case "function_call_output":
            message = pb.ResponseInputItem(
                function_call_output=decode_response_function_call_output(rest, path)
            )
        case "reasoning":
            message = pb.ResponseInputItem(reasoning=decode_response_input_reasoning(rest, path))
        case _:
            raise checks.unknown_enum(
                kind,
                join(path, "type"),
                ("message", "function_call", "function_call_output", "reasoning"),
            )
    return message


_RESPONSE_INPUT_MESSAGE_FIELDS: Final = frozenset({"role", "content", "id", "status", "phase"})


def decode_response_input_message(value: object, path: str) -> pb.ResponseInputMessage:
    """Something said."""
    fields = read.fields(value, path, _RESPONSE_INPUT_MESSAGE_FIELDS, ("role", "content"))
    message = pb.ResponseInputMessage()
    if (item := fields.get("role")) is not None:
        message.role = read.choice(item, path, "role", _RESPONSE_ROLE)
    if (item := fields.get("content")) is not None:
        message.content.CopyFrom(decode_response_input_content(item, join(path, "content")))
    if (item := fields.get("id")) is not None:
        message.id = read.string(item, path, "id")
    if (item := fields.get("status")) is not None:
        message.status = read.choice(item, path, "status", _RESPONSE_ITEM_STATUS)
    if (item := fields.get("phase")) is not None:
        message.phase = read.string(item, path, "phase")
    return message


def decode_response_input_content(value: object, path: str) -> pb.ResponseInputContent:
    """A text, or a list of parts."""
    message = pb.ResponseInputContent()
    if type(value) is str:
        message.text = value
    elif type(value) is list:
        message.parts.CopyFrom(decode_response_input_parts(value, path))
    else:
        raise read.wrong_type(path, "a string or an array", value)
    return message


def decode_response_input_parts(value: object, path: str) -> pb.ResponseInputParts:
    """A list of content parts."""
    message = pb.ResponseInputParts()
    for index, element in enumerate(read.array(value, path, "", most=4096)):
        message.items.append(decode_response_input_part(element, f"{path}[{index}]"))
    return message


def decode_response_input_part(value: object, path: str) -> pb.ResponseInputPart:
    """One part of an item's content. Octavo serves text only; any other part is refused and nothing is fetched."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "input_text":
            message = pb.ResponseInputPart(input_text=decode_response_input_text(rest, path))
        case "output_text":
            message = pb.ResponseInputPart(
                output_text=decode_response_input_output_text(rest, path)
            )
        case "refusal":
            message = pb.ResponseInputPart(refusal=decode_response_input_refusal(rest, path))
        case _:
            raise checks.unknown_enum(
                kind, join(path, "type"), ("input_text", "output_text", "refusal")
            )
    return message


_RESPONSE_INPUT_TEXT_FIELDS: Final = frozenset({"text", "prompt_cache_breakpoint"})


def decode_response_input_text(value: object, path: str) -> pb.ResponseInputText:
    """Text that was sent to the model."""
    fields = read.fields(value, path, _RESPONSE_INPUT_TEXT_FIELDS, ("text",))
    message = pb.ResponseInputText()
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    if (item := fields.get("prompt_cache_breakpoint")) is not None:
        message.prompt_cache_breakpoint = read.json_text(
            item, path, "prompt_cache_breakpoint", must_be_object=True
        )
    return message


_RESPONSE_INPUT_OUTPUT_TEXT_FIELDS: Final = frozenset({"text", "annotations", "logprobs"})


def decode_response_input_output_text(value: object, path: str) -> pb.ResponseInputOutputText:
    """Text that the model wrote."""
    fields = read.fields(value, path, _RESPONSE_INPUT_OUTPUT_TEXT_FIELDS, ("text",))
    message = pb.ResponseInputOutputText()
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    if (item := fields.get("annotations")) is not None:
        message.annotations = read.json_text(item, path, "annotations")
    if (item := fields.get("logprobs")) is not None:
        message.logprobs = read.json_text(item, path, "logprobs")
    return message


_RESPONSE_INPUT_REFUSAL_FIELDS: Final = frozenset({"refusal"})


def decode_response_input_refusal(value: object, path: str) -> pb.ResponseInputRefusal:
    """A refusal by the model."""
    fields = read.fields(value, path, _RESPONSE_INPUT_REFUSAL_FIELDS, ("refusal",))
    message = pb.ResponseInputRefusal()
    if (item := fields.get("refusal")) is not None:
        message.refusal = read.string(item, path, "refusal")
    return message


_RESPONSE_INPUT_FUNCTION_CALL_FIELDS: Final = frozenset(
    {"call_id", "name", "arguments", "id", "status"}
)


def decode_response_input_function_call(value: object, path: str) -> pb.ResponseInputFunctionCall:
    """A call of a function by the model. Calls, the message and the reasoning before them are one turn."""
    fields = read.fields(
        value, path, _RESPONSE_INPUT_FUNCTION_CALL_FIELDS, ("call_id", "name", "arguments")
    )
    message = pb.ResponseInputFunctionCall()
    if (item := fields.get("call_id")) is not None:
        message.call_id = read.string(item, path, "call_id")
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("arguments")) is not None:
        message.arguments = read.string(item, path, "arguments")
    if (item := fields.get("id")) is not None:
        message.id = read.string(item, path, "id")
    if (item := fields.get("status")) is not None:
        message.status = read.choice(item, path, "status", _RESPONSE_ITEM_STATUS)
    return message


_RESPONSE_FUNCTION_CALL_OUTPUT_FIELDS: Final = frozenset({"call_id", "output", "id", "status"})


def decode_response_function_call_output(value: object, path: str) -> pb.ResponseFunctionCallOutput:
    """What a call of a function gave."""
    fields = read.fields(value, path, _RESPONSE_FUNCTION_CALL_OUTPUT_FIELDS, ("call_id", "output"))
    message = pb.ResponseFunctionCallOutput()
    if (item := fields.get("call_id")) is not None:
        message.call_id = read.string(item, path, "call_id")
    if (item := fields.get("output")) is not None:
        message.output.CopyFrom(decode_response_input_content(item, join(path, "output")))
    if (item := fields.get("id")) is not None:
        message.id = read.string(item, path, "id")
    if (item := fields.get("status")) is not None:
        message.status = read.choice(item, path, "status", _RESPONSE_ITEM_STATUS)
    return message


_RESPONSE_INPUT_REASONING_FIELDS: Final = frozenset(
    {"content", "summary", "encrypted_content", "id", "status"}
)


def decode_response_input_reasoning(value: object, path: str) -> pb.ResponseInputReasoning:
    """The model's reasoning in the turn that the next items of the assistant belong to; templates that use"""
    fields = read.fields(value, path, _RESPONSE_INPUT_REASONING_FIELDS)
    message = pb.ResponseInputReasoning()
    if (item := fields.get("content")) is not None:
        at = join(path, "content")
        for index, element in enumerate(read.array(item, path, "content", most=4096)):
            message.content.append(decode_response_input_reasoning_part(element, f"{at}[{index}]"))
    if (item := fields.get("summary")) is not None:
        at = join(path, "summary")
        for index, element in enumerate(read.array(item, path, "summary", most=4096)):
            message.summary.append(decode_response_input_summary_part(element, f"{at}[{index}]"))
    if (item := fields.get("encrypted_content")) is not None and item is not False:
        raise checks.refused(path, "encrypted_content", "reasoning is read as text only")
    if (item := fields.get("id")) is not None:
        message.id = read.string(item, path, "id")
    if (item := fields.get("status")) is not None:
        message.status = read.choice(item, path, "status", _RESPONSE_ITEM_STATUS)
    return message


_RESPONSE_INPUT_REASONING_PART_FIELDS: Final = frozenset({"type", "text"})


def decode_response_input_reasoning_part(value: object, path: str) -> pb.ResponseInputReasoningPart:
    """A part of reasoning."""
    fields = read.fields(value, path, _RESPONSE_INPUT_REASONING_PART_FIELDS, ("text",))
    message = pb.ResponseInputReasoningPart()
    if (item := fields.get("type")) is not None:
        message.type = read.constant(item, path, "type", "reasoning_text")
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    return message


_RESPONSE_INPUT_SUMMARY_PART_FIELDS: Final = frozenset({"type", "text"})


def decode_response_input_summary_part(value: object, path: str) -> pb.ResponseInputSummaryPart:
    """A part of a summary."""
    fields = read.fields(value, path, _RESPONSE_INPUT_SUMMARY_PART_FIELDS, ("text",))
    message = pb.ResponseInputSummaryPart()
    if (item := fields.get("type")) is not None:
        message.type = read.constant(item, path, "type", "summary_text")
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    return message


def decode_response_tool(value: object, path: str) -> pb.ResponseTool:
    """A tool. Only functions, which the client runs, are served."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "function":
            message = pb.ResponseTool(function=decode_response_function_tool(rest, path))
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("function",))
    return message


_RESPONSE_FUNCTION_TOOL_FIELDS: Final = frozenset(
    {
        "name",
        "description",
        "parameters",
        "strict",
        "output_schema",
        "defer_loading",
        "allowed_callers",
        "async",
    }
)


def decode_response_function_tool(value: object, path: str) -> pb.ResponseFunctionTool:
    """A function: what it is called, what it is for, what it takes."""
    fields = read.fields(value, path, _RESPONSE_FUNCTION_TOOL_FIELDS, ("name",))
    message = pb.ResponseFunctionTool()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("description")) is not None:
        message.description = read.string(item, path, "description")
    if (item := fields.get("parameters")) is not None:
        message.parameters = read.json_text(item, path, "parameters", must_be_object=True)
    if (item := fields.get("strict")) is not None:
        message.strict = read.boolean(item, path, "strict")
    if (item := fields.get("output_schema")) is not None:
        message.output_schema = read.json_text(item, path, "output_schema", must_be_object=True)
    if (item := fields.get("defer_loading")) is not None and item is not False:
        raise checks.refused(path, "defer_loading", "the model reads all tools at once")
    if (item := fields.get("allowed_callers")) is not None and item is not False:
        raise checks.refused(path, "allowed_callers", "the model alone calls functions")
    if (item := fields.get("async")) is not None and item is not False:
        raise checks.refused(path, "async", "the answer ends with its calls")
    return message


def decode_response_tool_choice(value: object, path: str) -> pb.ResponseToolChoice:
    """Whether and which functions are called."""
    message = pb.ResponseToolChoice()
    if type(value) is str:
        message.mode = read.choice(value, path, "", _TOOL_CHOICE_MODE)
    elif type(value) is dict:
        message.object.CopyFrom(decode_response_tool_choice_object(value, path))
    else:
        raise read.wrong_type(path, "a string or an object", value)
    return message


def decode_response_tool_choice_object(value: object, path: str) -> pb.ResponseToolChoiceObject:
    """Which functions are called."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "function":
            message = pb.ResponseToolChoiceObject(
                function=decode_response_named_tool_choice(rest, path)
            )
        case "allowed_tools":
            message = pb.ResponseToolChoiceObject(
                allowed_tools=decode_response_allowed_tools(rest, path)
            )
        case _:
            raise checks.unknown_enum(kind, join(path, "type"), ("function", "allowed_tools"))
    return message


_RESPONSE_NAMED_TOOL_CHOICE_FIELDS: Final = frozenset({"name"})


def decode_response_named_tool_choice(value: object, path: str) -> pb.ResponseNamedToolChoice:
    """This function is called."""
    fields = read.fields(value, path, _RESPONSE_NAMED_TOOL_CHOICE_FIELDS, ("name",))
    message = pb.ResponseNamedToolChoice()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    return message


_RESPONSE_ALLOWED_TOOLS_FIELDS: Final = frozenset({"mode", "tools"})


def decode_response_allowed_tools(value: object, path: str) -> pb.ResponseAllowedTools:
    """Some functions of tools may or must be called."""
    fields = read.fields(value, path, _RESPONSE_ALLOWED_TOOLS_FIELDS, ("mode", "tools"))
    message = pb.ResponseAllowedTools()
    if (item := fields.get("mode")) is not None:
        message.mode = read.choice(item, path, "mode", _TOOL_CHOICE_MODE)
    if (item := fields.get("tools")) is not None:
        at = join(path, "tools")
        for index, element in enumerate(read.array(item, path, "tools", most=128)):
            message.tools.append(decode_response_allowed_tool(element, f"{at}[{index}]"))
    return message


_RESPONSE_ALLOWED_TOOL_FIELDS: Final = frozenset({"type", "name"})


def decode_response_allowed_tool(value: object, path: str) -> pb.ResponseAllowedTool:
    """A function of tools, by name."""
    fields = read.fields(value, path, _RESPONSE_ALLOWED_TOOL_FIELDS, ("name",))
    message = pb.ResponseAllowedTool()
    if (item := fields.get("type")) is not None:
        message.type = read.constant(item, path, "type", "function")
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    return message


_RESPONSE_TEXT_CONFIG_FIELDS: Final = frozenset({"format", "verbosity"})


def decode_response_text_config(value: object, path: str) -> pb.ResponseTextConfig:
    """What the text must look like."""
    fields = read.fields(value, path, _RESPONSE_TEXT_CONFIG_FIELDS)
    message = pb.ResponseTextConfig()
    if (item := fields.get("format")) is not None:
        message.format.CopyFrom(decode_response_text_format(item, join(path, "format")))
    if (item := fields.get("verbosity")) is not None:
        message.verbosity = read.choice(item, path, "verbosity", _RESPONSE_VERBOSITY)
    return message


def decode_response_text_format(value: object, path: str) -> pb.ResponseTextFormat:
    """Any text, a JSON object, or JSON of a schema."""
    kind, rest = read.tagged(value, path, "type")
    match kind:
        case "text":
            message = pb.ResponseTextFormat(text=inference_decode.decode_text_format(rest, path))
        case "json_object":
            message = pb.ResponseTextFormat(
                json_object=inference_decode.decode_json_object_format(rest, path)
            )
        case "json_schema":
            message = pb.ResponseTextFormat(json_schema=decode_response_json_schema(rest, path))
        case _:
            raise checks.unknown_enum(
                kind, join(path, "type"), ("text", "json_object", "json_schema")
            )
    return message


_RESPONSE_JSON_SCHEMA_FIELDS: Final = frozenset({"name", "schema", "strict", "description"})


def decode_response_json_schema(value: object, path: str) -> pb.ResponseJsonSchema:
    """JSON of a schema."""
    fields = read.fields(value, path, _RESPONSE_JSON_SCHEMA_FIELDS, ("name", "schema"))
    message = pb.ResponseJsonSchema()
    if (item := fields.get("name")) is not None:
        message.name = read.string(item, path, "name")
    if (item := fields.get("schema")) is not None:
        message.schema = read.json_text(item, path, "schema", must_be_object=True)
    if (item := fields.get("strict")) is not None:
        message.strict = read.boolean(item, path, "strict")
    if (item := fields.get("description")) is not None:
        message.description = read.string(item, path, "description")
    return message


_RESPONSE_REASONING_FIELDS: Final = frozenset(
    {"effort", "summary", "generate_summary", "context", "mode"}
)


def decode_response_reasoning(value: object, path: str) -> pb.ResponseReasoning:
    """How much the model thinks, and what is shown of it."""
    fields = read.fields(value, path, _RESPONSE_REASONING_FIELDS)
    message = pb.ResponseReasoning()
    if (item := fields.get("effort")) is not None:
        message.effort = read.choice(item, path, "effort", _REASONING_EFFORT)
    if (item := fields.get("summary")) is not None:
        message.summary = read.choice(item, path, "summary", _RESPONSE_SUMMARY)
    if (item := fields.get("generate_summary")) is not None:
        message.generate_summary = read.choice(item, path, "generate_summary", _RESPONSE_SUMMARY)
    if (item := fields.get("context")) is not None:
        message.context = read.string(item, path, "context")
    if (item := fields.get("mode")) is not None:
        message.mode = read.constant(item, path, "mode", "standard")
    return message


_RESPONSE_STREAM_OPTIONS_FIELDS: Final = frozenset({"include_obfuscation"})


def decode_response_stream_options(value: object, path: str) -> pb.ResponseStreamOptions:
    """What a stream carries besides events."""
    fields = read.fields(value, path, _RESPONSE_STREAM_OPTIONS_FIELDS)
    message = pb.ResponseStreamOptions()
    if (item := fields.get("include_obfuscation")) is not None:
        message.include_obfuscation = read.boolean(item, path, "include_obfuscation")
    return message
