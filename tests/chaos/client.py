"""A client as SDKs are: it tries again when a connection or a server fails, and keeps a ledger."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from tests.chaos.ledger import Ledger
from tests.chaos.processes import Router
from tests.chaos.requests import Wanted
from tests.chaos.sse import event_data
from tests.support.plain_http import NO_AUTHORITIES
from tests.support.public_api import answer_of

MAX_ATTEMPTS = 12
ATTEMPT_SECONDS = 90.0
_RETRIED = (408, 409, 429)  # and everything from 500 on, as the OpenAI client does


class TryAgainError(Exception):
    """An attempt came to nothing. `told`: by an error, not by a lost connection."""

    def __init__(self, reason: str, *, told: bool) -> None:
        super().__init__(reason)
        self.told = told


@dataclass(frozen=True)
class Delivery:
    """How a client takes its answer. It leaves after so many events, or seconds if not streamed."""

    stream: bool = False
    pause: float = 0.0  # seconds between two events that it reads
    leave_after: float | None = None

    @property
    def name(self) -> str:
        """For the table."""
        if self.leave_after is not None:
            return "stream, then cancel" if self.stream else "whole, then cancel"
        return ("slow stream" if self.pause else "stream") if self.stream else "whole"


def draw_delivery(rng: random.Random) -> Delivery:
    """Mostly streams; one in twenty leaves early."""
    if rng.random() < 0.05:
        stream = rng.random() < 0.7
        return Delivery(stream, leave_after=rng.randint(1, 12) if stream else rng.random() * 0.3)
    if rng.random() < 0.6:
        return Delivery(stream=True, pause=0.05 if rng.random() < 0.15 else 0.0)
    return Delivery()


class Left(Exception):  # noqa: N818 -- no error: the client went away, as it wanted
    """What had come of the answer when the client left."""

    def __init__(self, partial: Any) -> None:
        super().__init__()
        self.partial = partial


async def ask(http: httpx.AsyncClient, url: str, wanted: Wanted, how: Delivery, name: str) -> Any:
    """One attempt: the answer, or the error of a bad input, in a form that can be compared.

    Raises TryAgainError, and Left for a client that leaves.
    """
    headers = {"x-request-id": name}
    body = dict(wanted.body)
    try:
        if not how.stream or wanted.bad:
            async with asyncio.timeout(how.leave_after):
                response = await http.post(url + wanted.path, json=body, headers=headers)
            return _read(response.status_code, response.content)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with http.stream("POST", url + wanted.path, json=body, headers=headers) as response:
            if response.status_code != 200:
                return _read(response.status_code, await response.aread())
            return await _read_stream(response, how)
    except httpx.TransportError as error:
        raise TryAgainError(f"connection: {type(error).__name__}", told=False) from error
    except TimeoutError:
        raise Left(None) from None


def _read(status: int, content: bytes) -> Any:
    answer = json.loads(content)
    if status == 200:
        return comparable([answer])
    if status in _RETRIED or status >= 500:
        raise TryAgainError(f"status {status}: {answer['error']['message']}", told=True)
    return {"status": status, "error": answer["error"]}


async def _read_stream(response: httpx.Response, how: Delivery) -> Any:
    events: list[Any] = []
    async for data in event_data(response):
        if data == b"[DONE]":
            return comparable(events)
        event = json.loads(data)
        if "error" in event:
            raise TryAgainError(f"in a stream: {event['error']['message']}", told=True)
        events.append(event)
        if how.leave_after is not None and len(events) >= how.leave_after:
            raise Left(comparable(events))
        if how.pause:
            await asyncio.sleep(how.pause)
    raise TryAgainError("a stream without its end", told=False)


def comparable(parts: list[Any]) -> Any:
    """What must be the same each time: all but ids, instants and what was cached."""
    answer = asdict(answer_of(parts))
    for choice in answer["choices"]:
        for call in choice["tool_calls"]:
            del call["id"]
    if answer["usage"] is not None:
        answer["usage"].pop("prompt_tokens_details", None)
        answer["usage"].pop("completion_tokens_details", None)
    return answer


def begins(partial: Any, whole: Any) -> bool:
    """Whether what had come of an answer is the beginning of the whole one."""
    if partial is None or not partial["choices"]:
        return True
    if len(partial["choices"]) > len(whole["choices"]):
        return False
    # A choice that has not begun is not among them: those that have are matched in any way.
    return all(
        any(
            full["text"].startswith(part["text"])
            and full["token_ids"][: len(part["token_ids"])] == part["token_ids"]
            for full in whole["choices"]
        )
        for part in partial["choices"]
    )


class Client:
    """Sends requests to whichever router answers, and enters them in the ledger."""

    def __init__(self, routers: list[Router], solo: dict[str, Any], ledger: Ledger) -> None:
        self._routers = routers
        self._solo = solo
        self._ledger = ledger
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=32)
        self._http = httpx.AsyncClient(
            timeout=ATTEMPT_SECONDS, limits=limits, verify=NO_AUTHORITIES
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(self, wanted: Wanted, how: Delivery, rng: random.Random) -> None:
        """Sends one request until it is answered."""
        ledger = self._ledger
        ledger.sent += 1
        name = f"chaos-{ledger.sent}-{wanted.name}"
        ledger.by_kind[wanted.kind] += 1
        ledger.by_delivery[how.name] += 1
        first = rng.randrange(len(self._routers))
        for attempt in range(MAX_ATTEMPTS):
            router = self._routers[(first + attempt) % len(self._routers)]
            process, began, harmed = router.process_name, time.monotonic(), router.harmed
            try:
                answer = await ask(self._http, router.url, wanted, how, f"{name}-{attempt}")
            except Left as left:
                ledger.saw(process, "cancelled")
                ledger.cancelled += 1
                if not begins(left.partial, self._solo[wanted.name]):
                    ledger.altered.append(f"{name}: {left.partial} does not begin its answer")
                return
            except TryAgainError as error:
                ledger.saw(process, "failed")
                ledger.retries[str(error)] += 1
                if not (harmed or router.harmed or router.process_name != process):
                    seconds = time.monotonic() - began
                    ledger.unexcused.append(f"{name} after {seconds:.1f} s: {error}")
                await asyncio.sleep(min(0.1 * 2**attempt, 2.0))
            except AssertionError as error:
                ledger.altered.append(f"{name}: a stream that breaks the protocol: {error!r}")
                ledger.answered += 1
                return
            else:
                names = [] if "error" in answer else wanted.log_names(f"{name}-{attempt}")
                ledger.saw(process, "refused" if "error" in answer else "ok", names)
                self._enter(wanted, answer, name)
                return
        ledger.lost.append(name)

    def _enter(self, wanted: Wanted, answer: Any, name: str) -> None:
        if "error" in answer:
            self._ledger.refused += 1
        else:
            self._ledger.answered += 1
        solo = self._solo[wanted.name]
        if answer != solo:
            self._ledger.altered.append(f"{name}: {_difference(solo, answer)}")


def _difference(solo: Any, answer: Any) -> str:
    if "error" in solo or "error" in answer:
        return f"{answer} instead of {solo}"
    parts = []
    for index, (one, other) in enumerate(zip(solo["choices"], answer["choices"], strict=False)):
        parts += [
            f"choice {index}'s {key} is {other[key]!r} instead of {value!r}"
            for key, value in one.items()
            if other[key] != value
        ]
    if solo["usage"] != answer["usage"]:
        parts.append(f"usage is {answer['usage']} instead of {solo['usage']}")
    return "; ".join(parts) or "another number of choices"
