"""A client of the public API that checks every answer's form: errors, streams, both transports.

HTTP whole │ HTTP stream │ gRPC whole │ gRPC stream  ──►  Answer, the same for the same request
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
from google.protobuf.message import Message
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.server import RunningServer

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
POST_ROUTES = (CHAT, COMPLETIONS, "/tokenize", "/detokenize")
MODEL = "smollm2"


@dataclass
class Choice:
    """One choice, whole or put together from its chunks."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: list[Any] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[Any] = field(default_factory=list)


@dataclass
class Answer:
    """What must not depend on the transport, nor on whether it was streamed."""

    choices: list[Choice]
    usage: dict[str, Any] | None

    @property
    def text(self) -> str:
        """The only choice's text."""
        (choice,) = self.choices
        return choice.text


class PublicApi:
    """Talks to a server; every failed answer must have the one error shape."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.http = httpx.Client(
            base_url=server.url, timeout=120, event_hooks={"response": [_check_failure]}
        )
        self._channel = grpc.insecure_channel(server.grpc_target)
        self.grpc = inference_pb2_grpc.InferenceStub(self._channel)

    def close(self) -> None:
        """Ends both connections."""
        self.http.close()
        self._channel.close()

    def post(self, path: str, body: object) -> httpx.Response:
        """One request, whatever comes of it."""
        return self.http.post(path, json=body)

    def ok(self, path: str, **body: Any) -> dict[str, Any]:
        """The JSON of an answer, which must be strict and a success."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        return strict_json(response.text)

    def refused(self, path: str, body: object, *, status: int = 400) -> dict[str, Any]:
        """The error of a request that must be refused."""
        response = self.post(path, body)
        assert response.status_code == status, response.text
        return response.json()["error"]

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """A stream's events as they came, without the [DONE] that must end it."""
        with self.http.stream("POST", path, json=body | {"stream": True}) as response:
            raw = response.read().decode("utf-8")
            assert response.status_code == 200, raw
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        frames = raw.split("\n\n")
        assert frames[-2:] == ["data: [DONE]", ""]
        return [strict_json(frame.removeprefix("data: ")) for frame in frames[:-2]]

    def whole(self, path: str, **body: Any) -> Answer:
        """The answer in one piece."""
        return answer_of([self.ok(path, **body)])

    def streamed(self, path: str, **body: Any) -> Answer:
        """The answer from its chunks."""
        return answer_of(self.events(path, **body, stream_options={"include_usage": True}))

    def chat(self, content: str, **options: Any) -> Answer:
        """The whole answer to one user message, greedy unless said otherwise."""
        return self.whole(CHAT, **chat_body(content, **options))

    def complete(self, prompt: object, **options: Any) -> Answer:
        """The whole continuation, greedy unless said otherwise."""
        return self.whole(COMPLETIONS, **{"prompt": prompt, "temperature": 0} | options)

    def grpc_whole(self, request: Message) -> Answer:
        """The answer over gRPC in one piece."""
        is_chat = isinstance(request, pb.CreateChatCompletionRequest)
        call = self.grpc.CreateChatCompletion if is_chat else self.grpc.CreateCompletion
        return answer_of([plain(call(request))])

    def grpc_streamed(self, request: Message) -> Answer:
        """The answer over gRPC from its chunks."""
        is_chat = isinstance(request, pb.CreateChatCompletionRequest)
        call = self.grpc.StreamChatCompletion if is_chat else self.grpc.StreamCompletion
        asked = type(request)()
        asked.CopyFrom(request)
        asked.stream_options.include_usage = True
        return answer_of([plain(chunk) for chunk in call(asked)])


def chat_body(content: str, **options: Any) -> dict[str, Any]:
    """A conversation of one user message, greedy unless said otherwise."""
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "temperature": 0} | options


def strict_json(text: str) -> Any:
    """Parses JSON without Python's extensions NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def answer_of(parts: Iterable[dict[str, Any]]) -> Answer:
    """Joins a whole answer's one part, or a stream's many."""
    choices: dict[int, Choice] = {}
    usage = None
    for part in parts:
        usage = part.get("usage") or usage
        for given in part["choices"]:
            choice = choices.setdefault(given["index"], Choice())
            said = given.get("message") or given.get("delta") or {"content": given.get("text")}
            choice.text += said.get("content") or ""
            choice.reasoning += said.get("reasoning_content") or ""
            _add_calls(choice.tool_calls, said.get("tool_calls") or [])
            choice.token_ids += given.get("token_ids") or []
            choice.logprobs += _logprob_entries(given.get("logprobs"))
            # A chat's prompt belongs to the answer, a completion's to each choice.
            for name in ("prompt_token_ids", "prompt_logprobs"):
                getattr(choice, name).extend(given.get(name) or [])
            for name in ("finish_reason", "stop_reason"):
                if given.get(name) is not None:
                    assert getattr(choice, name) is None
                    setattr(choice, name, given[name])
        if 0 in choices:
            for name in ("prompt_token_ids", "prompt_logprobs"):
                getattr(choices[0], name).extend(part.get(name) or [])
    if usage is not None:  # gRPC shows what is absent as None
        usage = {name: value for name, value in usage.items() if value is not None}
    return Answer([choices[index] for index in sorted(choices)], usage)


def _add_calls(calls: list[dict[str, Any]], given: list[dict[str, Any]]) -> None:
    """Adds whole calls, or what is new in calls by their index."""
    for call in given:
        if call.get("index", len(calls)) == len(calls):
            assert call["id"], "a call's first delta says which it is"
            assert call["type"] == "function"
            named = {"name": call["function"]["name"], "arguments": ""}
            calls.append({"id": call["id"], "function": named})
        else:
            assert call["index"] == len(calls) - 1, "calls come one after the other"
            assert not call.get("id")
            assert not call["function"].get("name")
        calls[-1]["function"]["arguments"] += call["function"].get("arguments") or ""


def _logprob_entries(logprobs: dict[str, Any] | None) -> list[Any]:
    if logprobs is None:
        return []
    if "content" in logprobs:
        return list(logprobs["content"])
    columns = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return list(zip(*(logprobs[column] for column in columns), strict=True))


def plain(message: Message) -> Any:
    """A gRPC answer in the form that the JSON answer has."""
    fields = message.DESCRIPTOR.fields
    if isinstance(message, pb.OptionalDouble | pb.TopLogprobMap | pb.StopReason):
        kind = message.WhichOneof("kind")
        value = getattr(message, kind) if kind else None
        return plain(value) if isinstance(value, Message) else value
    if isinstance(message, pb.LogprobsByToken):
        return dict(message.items)
    result = {}
    for f in fields:
        value = getattr(message, f.name)
        if f.is_repeated:
            result[f.name] = [plain(v) if isinstance(v, Message) else v for v in value]
        elif f.has_presence and not message.HasField(f.name):
            result[f.name] = None
        elif f.enum_type is not None:
            prefix = "FINISH_REASON_" if f.name == "finish_reason" else "ROLE_"
            name = f.enum_type.values_by_number[value].name
            result[f.name] = name.removeprefix(prefix).lower()
        else:
            result[f.name] = plain(value) if isinstance(value, Message) else value
    return result


def _check_failure(response: httpx.Response) -> None:
    """The one shape of every failed answer, whoever made it."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = json.loads(response.read().decode("utf-8"))
    assert list(body) == ["error"]
    error = body["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert isinstance(error["message"], str)
    assert 0 < len(error["message"].encode()) <= 2048
    assert error["type"].endswith("_error")
    for internal in ("Traceback", ".py", "/router_svc", "0x", "sampling.", "stopping."):
        assert internal not in json.dumps(error)
