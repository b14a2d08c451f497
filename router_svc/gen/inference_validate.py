# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""Limits of the request messages of octavo/inference/v1/inference.proto, whichever way they came."""

from octavo.inference.v1 import inference_pb2 as pb
from router_svc.http import checks
from router_svc.http.checks import join
from router_svc.http.decoding import is_json


def validate_create_chat_completion_request(
    message: pb.CreateChatCompletionRequest, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of CreateChatCompletionRequest is broken."""
    if not 1 <= len(message.messages) <= 16384:
        raise checks.wrong_count(len(message.messages), join(path, "messages"), 1, 16384)
    at = join(path, "messages")
    for index, messages_item in enumerate(message.messages):
        validate_chat_message(messages_item, f"{at}[{index}]")
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if message.HasField("frequency_penalty") and not -2 <= message.frequency_penalty <= 2:
        raise checks.out_of_range(message.frequency_penalty, path, "frequency_penalty", -2, 2)
    if message.HasField("presence_penalty") and not -2 <= message.presence_penalty <= 2:
        raise checks.out_of_range(message.presence_penalty, path, "presence_penalty", -2, 2)
    if not len(message.logit_bias) <= 1024:
        raise checks.wrong_count(len(message.logit_bias), join(path, "logit_bias"), 0, 1024)
    for logit_bias_key, logit_bias_item in message.logit_bias.items():
        if not -100 <= logit_bias_item <= 100:
            raise checks.out_of_range(
                logit_bias_item, join(path, "logit_bias"), str(logit_bias_key), -100, 100
            )
    if message.HasField("top_logprobs") and not 0 <= message.top_logprobs <= 20:
        raise checks.out_of_range(message.top_logprobs, path, "top_logprobs", 0, 20)
    if message.HasField("max_tokens") and not 1 <= message.max_tokens <= 2147483647:
        raise checks.out_of_range(message.max_tokens, path, "max_tokens", 1, 2147483647)
    if (
        message.HasField("max_completion_tokens")
        and not 1 <= message.max_completion_tokens <= 2147483647
    ):
        raise checks.out_of_range(
            message.max_completion_tokens, path, "max_completion_tokens", 1, 2147483647
        )
    if message.HasField("n") and not 1 <= message.n <= 128:
        raise checks.out_of_range(message.n, path, "n", 1, 128)
    if not len(message.stop) <= 16:
        raise checks.wrong_count(len(message.stop), join(path, "stop"), 0, 16)
    for index, stop_item in enumerate(message.stop):
        if len(stop_item) > 4096:
            place = join(path, "stop") + f"[{index}]"
            raise checks.too_long(len(stop_item), place, 4096)
    if message.HasField("temperature") and not 0 <= message.temperature <= 2:
        raise checks.out_of_range(message.temperature, path, "temperature", 0, 2)
    if message.HasField("top_p") and not 0 < message.top_p <= 1:
        raise checks.out_of_range(message.top_p, path, "top_p", 0, 1, above=True)
    if message.HasField("user") and len(message.user) > 512:
        raise checks.too_long(len(message.user), join(path, "user"), 512)
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
    if message.store:
        raise checks.refused(path, "store", "answers are not stored")
    if message.HasField("top_k") and not -1 <= message.top_k <= 2147483647:
        raise checks.out_of_range(message.top_k, path, "top_k", -1, 2147483647)
    if message.HasField("min_p") and not 0 <= message.min_p <= 1:
        raise checks.out_of_range(message.min_p, path, "min_p", 0, 1)
    if message.HasField("repetition_penalty") and not 0.01 <= message.repetition_penalty <= 100:
        raise checks.out_of_range(message.repetition_penalty, path, "repetition_penalty", 0.01, 100)
    if message.HasField("min_tokens") and not 0 <= message.min_tokens <= 2147483647:
        raise checks.out_of_range(message.min_tokens, path, "min_tokens", 0, 2147483647)
    if not len(message.stop_token_ids) <= 256:
        raise checks.wrong_count(len(message.stop_token_ids), join(path, "stop_token_ids"), 0, 256)
    if message.HasField("prompt_logprobs") and not 0 <= message.prompt_logprobs <= 20:
        raise checks.out_of_range(message.prompt_logprobs, path, "prompt_logprobs", 0, 20)
    if message.HasField("chat_template_kwargs") and not is_json(
        message.chat_template_kwargs, must_be_object=True
    ):
        raise checks.not_json(path, "chat_template_kwargs")
    if message.HasField("chat_template"):
        raise checks.refused(
            path,
            "chat_template",
            "templates are taken from the model or the server's --chat-template only",
        )
    if message.HasField("priority") and not -1000000 <= message.priority <= 1000000:
        raise checks.out_of_range(message.priority, path, "priority", -1000000, 1000000)
    if message.HasField("request_id") and len(message.request_id) > 128:
        raise checks.too_long(len(message.request_id), join(path, "request_id"), 128)
    if message.HasField("cache_salt") and len(message.cache_salt) > 512:
        raise checks.too_long(len(message.cache_salt), join(path, "cache_salt"), 512)
    if not len(message.bad_words) <= 256:
        raise checks.wrong_count(len(message.bad_words), join(path, "bad_words"), 0, 256)
    for index, bad_words_item in enumerate(message.bad_words):
        if len(bad_words_item) > 512:
            place = join(path, "bad_words") + f"[{index}]"
            raise checks.too_long(len(bad_words_item), place, 512)
    if not len(message.allowed_token_ids) <= 65536:
        raise checks.wrong_count(
            len(message.allowed_token_ids), join(path, "allowed_token_ids"), 0, 65536
        )
    if (
        message.HasField("truncate_prompt_tokens")
        and not -1 <= message.truncate_prompt_tokens <= 2147483647
    ):
        raise checks.out_of_range(
            message.truncate_prompt_tokens, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if message.HasField("response_format"):
        validate_response_format(message.response_format, join(path, "response_format"))
    if message.HasField("structured_outputs"):
        validate_structured_outputs(message.structured_outputs, join(path, "structured_outputs"))
    if not len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 0, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_tool(tools_item, f"{at}[{index}]")
    if message.HasField("tool_choice"):
        validate_tool_choice(message.tool_choice, join(path, "tool_choice"))
    if message.HasField("reasoning_effort") and message.reasoning_effort not in (
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ):
        raise checks.unknown_enum(
            message.reasoning_effort,
            join(path, "reasoning_effort"),
            ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        )
    if not len(message.documents) <= 1024:
        raise checks.wrong_count(len(message.documents), join(path, "documents"), 0, 1024)
    for index, documents_item in enumerate(message.documents):
        if not is_json(documents_item, must_be_object=True):
            place = join(path, "documents") + f"[{index}]"
            raise checks.not_json(place, "")
    if message.HasField("service_tier") and len(message.service_tier) > 64:
        raise checks.too_long(len(message.service_tier), join(path, "service_tier"), 64)
    if message.HasField("prompt_cache_key") and len(message.prompt_cache_key) > 512:
        raise checks.too_long(len(message.prompt_cache_key), join(path, "prompt_cache_key"), 512)
    if message.HasField("safety_identifier") and len(message.safety_identifier) > 512:
        raise checks.too_long(len(message.safety_identifier), join(path, "safety_identifier"), 512)
    if message.HasField("verbosity") and len(message.verbosity) > 64:
        raise checks.too_long(len(message.verbosity), join(path, "verbosity"), 64)
    if message.HasField("functions"):
        raise checks.refused(path, "functions", "use tools")
    if message.HasField("function_call"):
        raise checks.refused(path, "function_call", "use tool_choice")


def validate_tool(message: pb.Tool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of Tool is broken."""
    if message.type not in ("", "function"):
        raise checks.wrong_constant(message.type, join(path, "type"), "function")
    if not message.HasField("function"):
        raise checks.missing(path, "function")
    validate_function_definition(message.function, join(path, "function"))


def validate_function_definition(message: pb.FunctionDefinition, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of FunctionDefinition is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if message.HasField("description") and len(message.description) > 65536:
        raise checks.too_long(len(message.description), join(path, "description"), 65536)
    if message.HasField("parameters") and not is_json(message.parameters, must_be_object=True):
        raise checks.not_json(path, "parameters")


def validate_tool_choice(message: pb.ToolChoice, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ToolChoice is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "mode":
        if message.mode not in (1, 2, 3):
            raise checks.unknown_enum(message.mode, join(path, ""), ("none", "auto", "required"))
    if kind == "object":
        validate_tool_choice_object(message.object, path)


def validate_tool_choice_object(message: pb.ToolChoiceObject, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ToolChoiceObject is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "function":
        validate_named_tool_choice(message.function, path)
    if kind == "allowed_tools":
        validate_allowed_tools_choice(message.allowed_tools, path)


def validate_named_tool_choice(message: pb.NamedToolChoice, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of NamedToolChoice is broken."""
    if not message.HasField("function"):
        raise checks.missing(path, "function")
    validate_function_name(message.function, join(path, "function"))


def validate_function_name(message: pb.FunctionName, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of FunctionName is broken."""
    if len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)


def validate_allowed_tools_choice(message: pb.AllowedToolsChoice, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of AllowedToolsChoice is broken."""
    if not message.HasField("allowed_tools"):
        raise checks.missing(path, "allowed_tools")
    validate_allowed_tools(message.allowed_tools, join(path, "allowed_tools"))


def validate_allowed_tools(message: pb.AllowedTools, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of AllowedTools is broken."""
    if message.mode == 0:
        raise checks.missing(path, "mode")
    if message.mode not in (0, 1, 2, 3):
        raise checks.unknown_enum(message.mode, join(path, "mode"), ("none", "auto", "required"))
    if not 1 <= len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 1, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_allowed_tool(tools_item, f"{at}[{index}]")


def validate_allowed_tool(message: pb.AllowedTool, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of AllowedTool is broken."""
    if message.type not in ("", "function"):
        raise checks.wrong_constant(message.type, join(path, "type"), "function")
    if not message.HasField("function"):
        raise checks.missing(path, "function")
    validate_function_name(message.function, join(path, "function"))


def validate_response_format(message: pb.ResponseFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ResponseFormat is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "text":
        validate_text_format(message.text, path)
    if kind == "json_object":
        validate_json_object_format(message.json_object, path)
    if kind == "json_schema":
        validate_json_schema_format(message.json_schema, path)
    if kind == "structural_tag":
        validate_structural_tag_format(message.structural_tag, path)


def validate_structural_tag_format(message: pb.StructuralTagFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of StructuralTagFormat is broken."""
    if message.HasField("format") and not is_json(message.format):
        raise checks.not_json(path, "format")
    if not len(message.triggers) <= 256:
        raise checks.wrong_count(len(message.triggers), join(path, "triggers"), 0, 256)
    for index, triggers_item in enumerate(message.triggers):
        if len(triggers_item) > 65536:
            place = join(path, "triggers") + f"[{index}]"
            raise checks.too_long(len(triggers_item), place, 65536)
    if message.HasField("structures") and not is_json(message.structures):
        raise checks.not_json(path, "structures")


def validate_text_format(message: pb.TextFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of TextFormat is broken."""


def validate_json_object_format(message: pb.JsonObjectFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of JsonObjectFormat is broken."""


def validate_json_schema_format(message: pb.JsonSchemaFormat, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of JsonSchemaFormat is broken."""
    if not message.HasField("json_schema"):
        raise checks.missing(path, "json_schema")
    validate_json_schema(message.json_schema, join(path, "json_schema"))


def validate_json_schema(message: pb.JsonSchema, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of JsonSchema is broken."""
    if message.HasField("name") and len(message.name) > 256:
        raise checks.too_long(len(message.name), join(path, "name"), 256)
    if message.HasField("description") and len(message.description) > 65536:
        raise checks.too_long(len(message.description), join(path, "description"), 65536)
    if not is_json(message.schema):
        raise checks.not_json(path, "schema")


def validate_structured_outputs(message: pb.StructuredOutputs, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of StructuredOutputs is broken."""
    if message.HasField("json") and not is_json(message.json):
        raise checks.not_json(path, "json")
    if message.HasField("regex") and len(message.regex) > 65536:
        raise checks.too_long(len(message.regex), join(path, "regex"), 65536)
    if not len(message.choice) <= 4096:
        raise checks.wrong_count(len(message.choice), join(path, "choice"), 0, 4096)
    for index, choice_item in enumerate(message.choice):
        if len(choice_item) > 65536:
            place = join(path, "choice") + f"[{index}]"
            raise checks.too_long(len(choice_item), place, 65536)
    if message.HasField("grammar") and len(message.grammar) > 1048576:
        raise checks.too_long(len(message.grammar), join(path, "grammar"), 1048576)
    if message.HasField("structural_tag") and not is_json(message.structural_tag):
        raise checks.not_json(path, "structural_tag")


def validate_stream_options(message: pb.StreamOptions, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of StreamOptions is broken."""


def validate_chat_message(message: pb.ChatMessage, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ChatMessage is broken."""
    if message.role == 0:
        raise checks.missing(path, "role")
    if message.role not in (0, 1, 2, 3, 4, 5):
        raise checks.unknown_enum(
            message.role, join(path, "role"), ("system", "developer", "user", "assistant", "tool")
        )
    if message.HasField("content"):
        validate_message_content(message.content, join(path, "content"))
    if message.HasField("name") and len(message.name) > 512:
        raise checks.too_long(len(message.name), join(path, "name"), 512)
    if not len(message.tool_calls) <= 1024:
        raise checks.wrong_count(len(message.tool_calls), join(path, "tool_calls"), 0, 1024)
    at = join(path, "tool_calls")
    for index, tool_calls_item in enumerate(message.tool_calls):
        validate_tool_call(tool_calls_item, f"{at}[{index}]")
    if message.HasField("tool_call_id") and len(message.tool_call_id) > 512:
        raise checks.too_long(len(message.tool_call_id), join(path, "tool_call_id"), 512)


def validate_message_content(message: pb.MessageContent, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of MessageContent is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "parts":
        validate_content_parts(message.parts, path)


def validate_content_parts(message: pb.ContentParts, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ContentParts is broken."""
    if not len(message.items) <= 4096:
        raise checks.wrong_count(len(message.items), join(path, ""), 0, 4096)
    at = path
    for index, items_item in enumerate(message.items):
        validate_content_part(items_item, f"{at}[{index}]")


def validate_content_part(message: pb.ContentPart, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ContentPart is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "text":
        validate_text_part(message.text, path)


def validate_text_part(message: pb.TextPart, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of TextPart is broken."""


def validate_tool_call(message: pb.ToolCall, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ToolCall is broken."""
    if message.type not in ("", "function"):
        raise checks.wrong_constant(message.type, join(path, "type"), "function")
    if not message.HasField("function"):
        raise checks.missing(path, "function")
    validate_function_call(message.function, join(path, "function"))


def validate_function_call(message: pb.FunctionCall, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of FunctionCall is broken."""


def validate_create_completion_request(message: pb.CreateCompletionRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of CreateCompletionRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not message.HasField("prompt"):
        raise checks.missing(path, "prompt")
    validate_prompt(message.prompt, join(path, "prompt"))
    if message.HasField("frequency_penalty") and not -2 <= message.frequency_penalty <= 2:
        raise checks.out_of_range(message.frequency_penalty, path, "frequency_penalty", -2, 2)
    if message.HasField("presence_penalty") and not -2 <= message.presence_penalty <= 2:
        raise checks.out_of_range(message.presence_penalty, path, "presence_penalty", -2, 2)
    if not len(message.logit_bias) <= 1024:
        raise checks.wrong_count(len(message.logit_bias), join(path, "logit_bias"), 0, 1024)
    for logit_bias_key, logit_bias_item in message.logit_bias.items():
        if not -100 <= logit_bias_item <= 100:
            raise checks.out_of_range(
                logit_bias_item, join(path, "logit_bias"), str(logit_bias_key), -100, 100
            )
    if message.HasField("logprobs") and not 0 <= message.logprobs <= 20:
        raise checks.out_of_range(message.logprobs, path, "logprobs", 0, 20)
    if message.HasField("max_tokens") and not 0 <= message.max_tokens <= 2147483647:
        raise checks.out_of_range(message.max_tokens, path, "max_tokens", 0, 2147483647)
    if message.HasField("n") and not 1 <= message.n <= 128:
        raise checks.out_of_range(message.n, path, "n", 1, 128)
    if not len(message.stop) <= 16:
        raise checks.wrong_count(len(message.stop), join(path, "stop"), 0, 16)
    for index, stop_item in enumerate(message.stop):
        if len(stop_item) > 4096:
            place = join(path, "stop") + f"[{index}]"
            raise checks.too_long(len(stop_item), place, 4096)
    if message.HasField("temperature") and not 0 <= message.temperature <= 2:
        raise checks.out_of_range(message.temperature, path, "temperature", 0, 2)
    if message.HasField("top_p") and not 0 < message.top_p <= 1:
        raise checks.out_of_range(message.top_p, path, "top_p", 0, 1, above=True)
    if message.HasField("user") and len(message.user) > 512:
        raise checks.too_long(len(message.user), join(path, "user"), 512)
    if message.HasField("top_k") and not -1 <= message.top_k <= 2147483647:
        raise checks.out_of_range(message.top_k, path, "top_k", -1, 2147483647)
    if message.HasField("min_p") and not 0 <= message.min_p <= 1:
        raise checks.out_of_range(message.min_p, path, "min_p", 0, 1)
    if message.HasField("repetition_penalty") and not 0.01 <= message.repetition_penalty <= 100:
        raise checks.out_of_range(message.repetition_penalty, path, "repetition_penalty", 0.01, 100)
    if message.HasField("min_tokens") and not 0 <= message.min_tokens <= 2147483647:
        raise checks.out_of_range(message.min_tokens, path, "min_tokens", 0, 2147483647)
    if not len(message.stop_token_ids) <= 256:
        raise checks.wrong_count(len(message.stop_token_ids), join(path, "stop_token_ids"), 0, 256)
    if message.HasField("prompt_logprobs") and not 0 <= message.prompt_logprobs <= 20:
        raise checks.out_of_range(message.prompt_logprobs, path, "prompt_logprobs", 0, 20)
    if message.HasField("priority") and not -1000000 <= message.priority <= 1000000:
        raise checks.out_of_range(message.priority, path, "priority", -1000000, 1000000)
    if message.HasField("request_id") and len(message.request_id) > 128:
        raise checks.too_long(len(message.request_id), join(path, "request_id"), 128)
    if message.HasField("cache_salt") and len(message.cache_salt) > 512:
        raise checks.too_long(len(message.cache_salt), join(path, "cache_salt"), 512)
    if not len(message.bad_words) <= 256:
        raise checks.wrong_count(len(message.bad_words), join(path, "bad_words"), 0, 256)
    for index, bad_words_item in enumerate(message.bad_words):
        if len(bad_words_item) > 512:
            place = join(path, "bad_words") + f"[{index}]"
            raise checks.too_long(len(bad_words_item), place, 512)
    if not len(message.allowed_token_ids) <= 65536:
        raise checks.wrong_count(
            len(message.allowed_token_ids), join(path, "allowed_token_ids"), 0, 65536
        )
    if (
        message.HasField("truncate_prompt_tokens")
        and not -1 <= message.truncate_prompt_tokens <= 2147483647
    ):
        raise checks.out_of_range(
            message.truncate_prompt_tokens, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if message.HasField("response_format"):
        validate_response_format(message.response_format, join(path, "response_format"))
    if message.HasField("structured_outputs"):
        validate_structured_outputs(message.structured_outputs, join(path, "structured_outputs"))
    if message.HasField("best_of") and not 1 <= message.best_of <= 128:
        raise checks.out_of_range(message.best_of, path, "best_of", 1, 128)


def validate_prompt(message: pb.Prompt, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of Prompt is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "texts":
        validate_text_list(message.texts, path)
    if kind == "token_ids":
        validate_token_ids(message.token_ids, path)
    if kind == "token_ids_list":
        validate_token_ids_list(message.token_ids_list, path)


def validate_text_list(message: pb.TextList, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of TextList is broken."""
    if not 1 <= len(message.items) <= 2048:
        raise checks.wrong_count(len(message.items), join(path, ""), 1, 2048)


def validate_token_ids(message: pb.TokenIds, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of TokenIds is broken."""
    if not 1 <= len(message.items) <= 4194304:
        raise checks.wrong_count(len(message.items), join(path, ""), 1, 4194304)


def validate_token_ids_list(message: pb.TokenIdsList, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of TokenIdsList is broken."""
    if not 1 <= len(message.items) <= 2048:
        raise checks.wrong_count(len(message.items), join(path, ""), 1, 2048)
    at = path
    for index, items_item in enumerate(message.items):
        validate_token_ids(items_item, f"{at}[{index}]")


def validate_list_models_request(message: pb.ListModelsRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ListModelsRequest is broken."""


def validate_get_model_request(message: pb.GetModelRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of GetModelRequest is broken."""


def validate_tokenize_request(message: pb.TokenizeRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of TokenizeRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not len(message.messages) <= 16384:
        raise checks.wrong_count(len(message.messages), join(path, "messages"), 0, 16384)
    at = join(path, "messages")
    for index, messages_item in enumerate(message.messages):
        validate_chat_message(messages_item, f"{at}[{index}]")
    if message.HasField("chat_template_kwargs") and not is_json(
        message.chat_template_kwargs, must_be_object=True
    ):
        raise checks.not_json(path, "chat_template_kwargs")
    if message.HasField("chat_template"):
        raise checks.refused(
            path,
            "chat_template",
            "templates are taken from the model or the server's --chat-template only",
        )
    if not len(message.tools) <= 128:
        raise checks.wrong_count(len(message.tools), join(path, "tools"), 0, 128)
    at = join(path, "tools")
    for index, tools_item in enumerate(message.tools):
        validate_tool(tools_item, f"{at}[{index}]")


def validate_detokenize_request(message: pb.DetokenizeRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of DetokenizeRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not len(message.tokens) <= 4194304:
        raise checks.wrong_count(len(message.tokens), join(path, "tokens"), 0, 4194304)


def validate_explain_route_request(message: pb.ExplainRouteRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ExplainRouteRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not len(message.messages) <= 16384:
        raise checks.wrong_count(len(message.messages), join(path, "messages"), 0, 16384)
    at = join(path, "messages")
    for index, messages_item in enumerate(message.messages):
        validate_chat_message(messages_item, f"{at}[{index}]")
    if message.HasField("cache_salt") and len(message.cache_salt) > 512:
        raise checks.too_long(len(message.cache_salt), join(path, "cache_salt"), 512)
