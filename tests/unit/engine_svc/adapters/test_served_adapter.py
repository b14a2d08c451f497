"""An adapter in a slot: who uses it, and when nobody does."""

from __future__ import annotations

import pytest

from engine_svc.adapters.served import ServedAdapter
from engine_svc.scheduling.request import RequestStatus
from engine_svc.service.errors import RequestError
from engine_svc.service.live_request import LiveRequest


def adapter():
    return ServedAdapter("a", version="1" * 64, rank=4, source="/a", slot=0)


async def test_it_is_idle_once_the_last_request_has_let_it_go():
    served = adapter()
    first, second = (LiveRequest(None, None, 0.0) for _ in range(2))
    for live in (first, second):
        served.take(live)
    served.let_go(first)

    assert not served.has(RequestStatus.RUNNING)
    served.let_go(second)
    await served.idle()


def test_a_request_that_was_still_being_prepared_comes_too_late():
    served = adapter()
    served.accepts = False

    with pytest.raises(RequestError, match="no adapter of this name is loaded"):
        served.take(LiveRequest(None, None, 0.0))
