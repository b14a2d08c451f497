"""How one request is sent and timed, over HTTP or gRPC."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import aiohttp
import grpc
import orjson
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

if TYPE_CHECKING:
    from types import TracebackType

    from router_svc.bench.workload import Workload

_TIMEOUT_SECONDS = 600.0


@dataclass(slots=True)
class Sample:
    """One request: when it was sent, when text arrived, what it used. Times in seconds."""

    started: float = field(default_factory=time.perf_counter)
    arrivals: list[float] = field(default_factory=list)  # one per message that carries text
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None


class Client(Protocol):
    """Sends one request and fills in its sample; failures go into `error`."""

    async def __aenter__(self) -> Client: ...

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None: ...

    async def run(self, prompt: str) -> Sample:
        """The finished sample."""
        ...


class HttpClient:
    """Any server with OpenAI's streaming completions. `base_url` ends with /v1."""

    def __init__(
        self, base_url: str, model: str | None, workload: Workload, api_key: str | None
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/completions"
        self._body = {
            "max_tokens": workload.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if model is not None:
            self._body["model"] = model
        if workload.ignore_eos:
            self._body["ignore_eos"] = True
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def __aenter__(self) -> HttpClient:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS),
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def run(self, prompt: str) -> Sample:
        """See Client."""
        sample = Sample()
        try:
            async with self._session.post(
                self._url, json=self._body | {"prompt": prompt}
            ) as answer:
                if answer.status != 200:
                    sample.error = f"HTTP {answer.status}: {(await answer.text())[:200]}"
                    return sample
                ended = await self._read(answer, sample)
            if not ended:
                sample.error = "the stream ended without [DONE]"
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
            sample.error = f"{type(error).__name__}: {error}"
        return sample

    async def _read(self, answer: aiohttp.ClientResponse, sample: Sample) -> bool:
        async for line in answer.content:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return True
            event = orjson.loads(data)
            if "error" in event:
                sample.error = str(event["error"])[:200]
                return True
            if any(choice.get("text") for choice in event.get("choices", ())):
                sample.arrivals.append(time.perf_counter())
            if usage := event.get("usage"):
                sample.prompt_tokens = usage["prompt_tokens"]
                sample.completion_tokens = usage["completion_tokens"]
        return False


class GrpcClient:
    """Octavo's own contract."""

    def __init__(
        self, target: str, model: str | None, workload: Workload, api_key: str | None
    ) -> None:
        self._target = target
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._template = pb.CreateCompletionRequest(
            model=model,
            max_tokens=workload.output_tokens,
            temperature=0,
            ignore_eos=workload.ignore_eos,
            stream_options=pb.StreamOptions(include_usage=True),
        )

    async def __aenter__(self) -> GrpcClient:
        self._channel = grpc.aio.insecure_channel(self._target)
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def run(self, prompt: str) -> Sample:
        """See Client."""
        request = pb.CreateCompletionRequest(prompt=pb.Prompt(text=prompt))
        request.MergeFrom(self._template)
        sample = Sample()
        try:
            call = self._stub.StreamCompletion(
                request, timeout=_TIMEOUT_SECONDS, metadata=self._metadata
            )
            async for message in call:
                if any(choice.text for choice in message.choices):
                    sample.arrivals.append(time.perf_counter())
                if message.HasField("usage"):
                    sample.prompt_tokens = message.usage.prompt_tokens
                    sample.completion_tokens = message.usage.completion_tokens
        except grpc.aio.AioRpcError as error:
            sample.error = f"{error.code().name}: {error.details()}"
        return sample
