"""A sample of what `make fuzz` sends by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.environment import client_python
from tests.clients.running import need
from tests.fuzz.campaign import Campaign, run_campaign
from tests.support.server import running_server
from tests.support.tiny_models import make_tiny


@pytest.mark.timeout(300)
def test_no_body_breaks_the_server_or_what_its_openapi_document_says(tmp_path: Path) -> None:
    need(lambda: client_python("schemathesis"))
    model = make_tiny("llama", tmp_path / "model", max_position_embeddings=512)
    sample = Campaign(examples=25, seed=1, coverage=False)

    with running_server(model, log=tmp_path / "log") as server:
        outcome = run_campaign(server, sample)

    assert outcome.problems == []
    assert outcome.answers["/v1/chat/completions", 200] > 0
