"""A router's model over an engine in the same process whose numbers can be worked out by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from router_svc.fleet.fleet import Fleet
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.text.tokenizer import Tokenizer
from tests.support.scripted_encoder_engine import ScriptedEncoder, serve_encoder
from tests.support.word_pieces import write_word_pieces

Connect = Callable[..., Awaitable[tuple[ServedModel, ScriptedEncoder]]]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """Makes a served model and its engine; keyword arguments are what the engine says of itself."""
    async with AsyncExitStack() as stack:

        async def make(**info: object) -> tuple[ServedModel, ScriptedEncoder]:
            tokenizer = Tokenizer.load(write_word_pieces(tmp_path))
            engine = ScriptedEncoder(tokenizer.sha256, **info)
            server, target = await serve_encoder(engine)
            stack.push_async_callback(server.stop, 0)
            fleet = Fleet(tokenizer.sha256)
            fleet.add(target)
            stack.push_async_callback(fleet.close)
            await fleet.wait_ready(30)
            return ServedModel(fleet, tokenizer, None, OutputFormats(None, None, False)), engine

        yield make
