# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""Limits of the request messages of octavo/inference/v1/responses.proto, whichever way they came."""

from octavo.inference.v1 import responses_pb2 as pb
from router_svc.gen import inference_validate
from router_svc.http import checks
from router_svc.http.checks import join
from router_svc.http.decoding import is_json


def validate_create_response_request(message: pb.CreateResponseRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of CreateResponseRequest is broken."""
    if not message.HasField("input"):
        raise checks.missing(path, "input")
    validate_response_input(message.input, join(path, "input"))
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if message.HasField("max_output_tokens") and not 1 <= message.max_output_tokens <= 2147483647:
        raise checks.out_of_range(
            message.max_output_tokens, path, "max_output_tokens", 1, 2147483647
        )
    if message.HasField("temperature") and not 0 <= message.temperature <= 2:
        raise checks.out_of_range(message.temperature, path, "temperature", 0, 2)
    if message.HasField("top_p") and not 0 < message.top_p <= 1:
        raise checks.out_of_range(message.top_p, path, "top_p", 0, 1, above=True)
    if message.HasField("top_logprobs") and not 0 <= message.top_logprobs <= 20:
        raise checks.out_of_range(message.top_logprobs, path, "top_logprobs", 0, 20)
    if not len(message.include) <= 16:
        raise checks.wrong_count(len(message.include), join(path, "include"), 0, 16)
    if not len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 0, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_response_tool(tools_item, f"{at}[{index}]")
    if message.HasField("tool_choice"):
        validate_response_tool_choice(message.tool_choice, join(path, "tool_choice"))
    if message.HasField("text"):
        validate_response_text_config(message.text, join(path, "text"))
    if message.HasField("reasoning"):
        validate_response_reasoning(message.reasoning, join(path, "reasoning"))
    if not len(message.metadata) <= 16:
        raise checks.wrong_count(len(message.metadata), join(path, "metadata"), 0, 16)
    for metadata_key, metadata_item in message.metadata.items():
        if len(metadata_item) > 512:
            raise checks.too_long(
                len(metadata_item), join(join(path, "metadata"), str(metadata_key)), 512
            )
        if len(metadata_key) > 512:
            raise checks.too_long(
                len(metadata_key), join(join(path, "metadata"), metadata_key), 512
            )
    if message.HasField("truncation") and message.truncation not in ("", "disabled"):
        raise checks.wrong_constant(message.truncation, join(path, "truncation"), "disabled")
    if message.store:
        raise checks.refused(path, "store", "answers are not stored")
    if message.HasField("previous_response_id"):
        raise checks.refused(
            path,
            "previous_response_id",
            "answers are not stored; send the whole conversation as input",
        )
    if message.HasField("conversation"):
        raise checks.refused(
            path,
            "conversation",
            "conversations are not stored; send the whole conversation as input",
        )
    if message.HasField("prompt"):
        raise checks.refused(path, "prompt", "prompts are not stored; send input and instructions")
    if message.background:
        raise checks.refused(
            path, "background", "answers are not stored, so none can be fetched later"
        )
    if message.HasField("background_options"):
        raise checks.refused(
            path, "background_options", "answers are not stored, so none can be fetched later"
        )
    if message.HasField("context_management"):
        raise checks.refused(
            path,
            "context_management",
            "conversations are not compacted; send what the model shall read",
        )
    if message.HasField("moderation"):
        raise checks.refused(path, "moderation", "no moderation is served")
    if message.HasField("image"):
        raise checks.refused(path, "image", "text is served only")
    if message.HasField("access_programs"):
        raise checks.refused(path, "access_programs", "there are no programs of access here")
    if (
        message.HasField("max_tool_calls")
        and not 1 <= message.max_tool_calls <= 9223372036854775807
    ):
        raise checks.out_of_range(
            message.max_tool_calls, path, "max_tool_calls", 1, 9223372036854775807
        )
    if message.HasField("user") and len(message.user) > 512:
        raise checks.too_long(len(message.user), join(path, "user"), 512)
    if message.HasField("safety_identifier") and len(message.safety_identifier) > 512:
        raise checks.too_long(len(message.safety_identifier), join(path, "safety_identifier"), 512)
    if message.HasField("service_tier") and len(message.service_tier) > 64:
        raise checks.too_long(len(message.service_tier), join(path, "service_tier"), 64)
    if message.HasField("prompt_cache_key") and len(message.prompt_cache_key) > 512:
        raise checks.too_long(len(message.prompt_cache_key), join(path, "prompt_cache_key"), 512)
    if message.HasField("prompt_cache_options") and not is_json(
        message.prompt_cache_options, must_be_object=True
    ):
        raise checks.not_json(path, "prompt_cache_options")
    if message.HasField("prompt_cache_retention") and len(message.prompt_cache_retention) > 64:
        raise checks.too_long(
            len(message.prompt_cache_retention), join(path, "prompt_cache_retention"), 64
        )
    if message.HasField("top_k") and not -1 <= message.top_k <= 2147483647:
        raise checks.out_of_range(message.top_k, path, "top_k", -1, 2147483647)
    if message.HasField("min_p") and not 0 <= message.min_p <= 1:
        raise checks.out_of_range(message.min_p, path, "min_p", 0, 1)
    if message.HasField("repetition_penalty") and not 0.01 <= message.repetition_penalty <= 100:
        raise checks.out_of_range(message.repetition_penalty, path, "repetition_penalty", 0.01, 100)
    if message.HasField("chat_template_kwargs") and not is_json(
        message.chat_template_kwargs, must_be_object=True
    ):
        raise checks.not_json(path, "chat_template_kwargs")
    if message.HasField("priority") and not -1000000 <= message.priority <= 1000000:
        raise checks.out_of_range(message.priority, path, "priority", -1000000, 1000000)
    if message.HasField("request_id") and len(message.request_id) > 128:
        raise checks.too_long(len(message.request_id), join(path, "request_id"), 128)
    if message.HasField("cache_salt") and len(message.cache_salt) > 512:
        raise checks.too_long(len(message.cache_salt), join(path, "cache_salt"), 512)


def validate_response_input(message: pb.ResponseInput, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInput is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "items":
        validate_response_input_items(message.items, path)


def validate_response_input_items(message: pb.ResponseInputItems, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputItems is broken."""
    if not 1 <= len(message.items) <= 16384:
        raise checks.wrong_count(len(message.items), join(path, ""), 1, 16384)
    at = path
    for index, items_item in enumerate(message.items):
        validate_response_input_item(items_item, f"{at}[{index}]")


def validate_response_input_item(message: pb.ResponseInputItem, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputItem is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "message":
        validate_response_input_message(message.message, path)
    if kind == "function_call":
        validate_response_input_function_call(message.function_call, path)
    if kind == "function_call_output":
        validate_response_function_call_output(message.function_call_output, path)
    if kind == "reasoning":
        validate_response_input_reasoning(message.reasoning, path)


def validate_response_input_message(message: pb.ResponseInputMessage, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputMessage is broken."""
    if message.role == 0:
        raise checks.missing(path, "role")
    if message.role not in (0, 1, 2, 3, 4):
        raise checks.unknown_enum(
            message.role, join(path, "role"), ("user", "assistant", "system", "developer")
        )
    if not message.HasField("content"):
        raise checks.missing(path, "content")
    validate_response_input_content(message.content, join(path, "content"))
    if message.HasField("id") and len(message.id) > 512:
        raise checks.too_long(len(message.id), join(path, "id"), 512)
    if message.HasField("status") and message.status not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.status, join(path, "status"), ("in_progress", "completed", "incomplete")
        )
    if message.HasField("phase") and len(message.phase) > 64:
        raise checks.too_long(len(message.phase), join(path, "phase"), 64)


def validate_response_input_content(message: pb.ResponseInputContent, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputContent is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "parts":
        validate_response_input_parts(message.parts, path)


def validate_response_input_parts(message: pb.ResponseInputParts, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputParts is broken."""
    if not len(message.items) <= 4096:
        raise checks.wrong_count(len(message.items), join(path, ""), 0, 4096)
    at = path
    for index, items_item in enumerate(message.items):
        validate_response_input_part(items_item, f"{at}[{index}]")


def validate_response_input_part(message: pb.ResponseInputPart, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputPart is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "input_text":
        validate_response_input_text(message.input_text, path)
    if kind == "output_text":
        validate_response_input_output_text(message.output_text, path)
    if kind == "refusal":
        validate_response_input_refusal(message.refusal, path)


def validate_response_input_text(message: pb.ResponseInputText, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputText is broken."""
    if message.HasField("prompt_cache_breakpoint") and not is_json(
        message.prompt_cache_breakpoint, must_be_object=True
    ):
        raise checks.not_json(path, "prompt_cache_breakpoint")


def validate_response_input_output_text(
    message: pb.ResponseInputOutputText, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputOutputText is broken."""
    if message.HasField("annotations") and not is_json(message.annotations):
        raise checks.not_json(path, "annotations")
    if message.HasField("logprobs") and not is_json(message.logprobs):
        raise checks.not_json(path, "logprobs")


def validate_response_input_refusal(message: pb.ResponseInputRefusal, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputRefusal is broken."""


def validate_response_input_function_call(
    message: pb.ResponseInputFunctionCall, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputFunctionCall is broken."""
    if len(message.call_id) > 512:
        raise checks.too_long(len(message.call_id), join(path, "call_id"), 512)
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if message.HasField("id") and len(message.id) > 512:
        raise checks.too_long(len(message.id), join(path, "id"), 512)
    if message.HasField("status") and message.status not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.status, join(path, "status"), ("in_progress", "completed", "incomplete")
        )


def validate_response_function_call_output(
    message: pb.ResponseFunctionCallOutput, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseFunctionCallOutput is broken."""
    if len(message.call_id) > 512:
        raise checks.too_long(len(message.call_id), join(path, "call_id"), 512)
    if not message.HasField("output"):
        raise checks.missing(path, "output")
    validate_response_input_content(message.output, join(path, "output"))
    if message.HasField("id") and len(message.id) > 512:
        raise checks.too_long(len(message.id), join(path, "id"), 512)
    if message.HasField("status") and message.status not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.status, join(path, "status"), ("in_progress", "completed", "incomplete")
        )


def validate_response_input_reasoning(message: pb.ResponseInputReasoning, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputReasoning is broken."""
    if not len(message.content) <= 4096:
        raise checks.wrong_count(len(message.content), join(path, "content"), 0, 4096)
    at = join(path, "content")
    for index, content_item in enumerate(message.content):
        validate_response_input_reasoning_part(content_item, f"{at}[{index}]")
    if not len(message.summary) <= 4096:
        raise checks.wrong_count(len(message.summary), join(path, "summary"), 0, 4096)
    at = join(path, "summary")
    for index, summary_item in enumerate(message.summary):
        validate_response_input_summary_part(summary_item, f"{at}[{index}]")
    if message.HasField("encrypted_content"):
        raise checks.refused(path, "encrypted_content", "reasoning is read as text only")
    if message.HasField("id") and len(message.id) > 512:
        raise checks.too_long(len(message.id), join(path, "id"), 512)
    if message.HasField("status") and message.status not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.status, join(path, "status"), ("in_progress", "completed", "incomplete")
        )


def validate_response_input_reasoning_part(
    message: pb.ResponseInputReasoningPart, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputReasoningPart is broken."""
    if message.type not in ("", "reasoning_text"):
        raise checks.wrong_constant(message.type, join(path, "type"), "reasoning_text")


def validate_response_input_summary_part(
    message: pb.ResponseInputSummaryPart, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseInputSummaryPart is broken."""
    if message.type not in ("", "summary_text"):
        raise checks.wrong_constant(message.type, join(path, "type"), "summary_text")


def validate_response_tool(message: pb.ResponseTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseTool is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "function":
        validate_response_function_tool(message.function, path)


def validate_response_function_tool(message: pb.ResponseFunctionTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseFunctionTool is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if message.HasField("description") and len(message.description) > 65536:
        raise checks.too_long(len(message.description), join(path, "description"), 65536)
    if message.HasField("parameters") and not is_json(message.parameters, must_be_object=True):
        raise checks.not_json(path, "parameters")
    if message.HasField("output_schema") and not is_json(
        message.output_schema, must_be_object=True
    ):
        raise checks.not_json(path, "output_schema")
    if message.defer_loading:
        raise checks.refused(path, "defer_loading", "the model reads all tools at once")
    if message.HasField("allowed_callers"):
        raise checks.refused(path, "allowed_callers", "the model alone calls functions")
    if message.is_async:
        raise checks.refused(path, "async", "the answer ends with its calls")


def validate_response_tool_choice(message: pb.ResponseToolChoice, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseToolChoice is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "mode":
        if message.mode not in (1, 2, 3):
            raise checks.unknown_enum(message.mode, join(path, ""), ("none", "auto", "required"))
    if kind == "object":
        validate_response_tool_choice_object(message.object, path)


def validate_response_tool_choice_object(
    message: pb.ResponseToolChoiceObject, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseToolChoiceObject is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "function":
        validate_response_named_tool_choice(message.function, path)
    if kind == "allowed_tools":
        validate_response_allowed_tools(message.allowed_tools, path)


def validate_response_named_tool_choice(
    message: pb.ResponseNamedToolChoice, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of ResponseNamedToolChoice is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)


def validate_response_allowed_tools(message: pb.ResponseAllowedTools, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseAllowedTools is broken."""
    if message.mode == 0:
        raise checks.missing(path, "mode")
    if message.mode not in (0, 1, 2, 3):
        raise checks.unknown_enum(message.mode, join(path, "mode"), ("none", "auto", "required"))
    if not 1 <= len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 1, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_response_allowed_tool(tools_item, f"{at}[{index}]")


def validate_response_allowed_tool(message: pb.ResponseAllowedTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseAllowedTool is broken."""
    if message.type not in ("", "function"):
        raise checks.wrong_constant(message.type, join(path, "type"), "function")
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)


def validate_response_text_config(message: pb.ResponseTextConfig, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseTextConfig is broken."""
    if message.HasField("format"):
        validate_response_text_format(message.format, join(path, "format"))
    if message.HasField("verbosity") and message.verbosity not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.verbosity, join(path, "verbosity"), ("low", "medium", "high")
        )


def validate_response_text_format(message: pb.ResponseTextFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseTextFormat is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "text":
        inference_validate.validate_text_format(message.text, path)
    if kind == "json_object":
        inference_validate.validate_json_object_format(message.json_object, path)
    if kind == "json_schema":
        validate_response_json_schema(message.json_schema, path)


def validate_response_json_schema(message: pb.ResponseJsonSchema, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseJsonSchema is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if not is_json(message.schema, must_be_object=True):
        raise checks.not_json(path, "schema")
    if message.HasField("description") and len(message.description) > 65536:
        raise checks.too_long(len(message.description), join(path, "description"), 65536)


def validate_response_reasoning(message: pb.ResponseReasoning, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseReasoning is broken."""
    if message.HasField("effort") and message.effort not in (0, 1, 2, 3, 4, 5, 6, 7):
        raise checks.unknown_enum(
            message.effort,
            join(path, "effort"),
            ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        )
    if message.HasField("summary") and message.summary not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.summary, join(path, "summary"), ("auto", "concise", "detailed")
        )
    if message.HasField("generate_summary") and message.generate_summary not in (0, 1, 2, 3):
        raise checks.unknown_enum(
            message.generate_summary,
            join(path, "generate_summary"),
            ("auto", "concise", "detailed"),
        )
    if message.HasField("context") and len(message.context) > 64:
        raise checks.too_long(len(message.context), join(path, "context"), 64)
    if message.HasField("mode") and message.mode not in ("", "standard"):
        raise checks.wrong_constant(message.mode, join(path, "mode"), "standard")


def validate_response_stream_options(message: pb.ResponseStreamOptions, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseStreamOptions is broken."""
