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
    return message


_STREAM_OPTIONS_FIELDS: Final = frozenset({"include_usage", "continuous_usage_stats"})


def decode_stream_options(value: object, path: str) -> pb.StreamOptions:
    """What a stream carries besides text."""
    fields = read.fields(value, path, _STREAM_OPTIONS_FIELDS)
    message = pb.StreamOptions()
    if (item := fields.get("include_usage")) is not None:
        message.include_usage = read.boolean(item, path, "include_usage")
    if (item := fields.get("continuous_usage_stats")) is not None:
        message.continuous_usage_stats = read.boolean(item, path, "continuous_usage_stats")
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
