"""An engine's start as a trace: its phases in order below one span, well or ill ended."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from octavo.logs import JsonLines

from engine_svc.progress import StartupPrinter
from engine_svc.startup_trace import Start
from tests.support.kept_spans import KeptSpans


def start(spans, printer):
    settings = SimpleNamespace(
        model=SimpleNamespace(path=Path("/models/m")), service=SimpleNamespace(instance_id="i")
    )
    return Start(None if spans is None else spans.tracing, settings, printer, time.time() - 1)


def test_each_phase_is_a_span_below_the_start():
    spans, printer = KeptSpans(), StartupPrinter()
    with printer.phase("reading config"):
        pass
    with printer.loading("loading weights") as on_progress:
        on_progress(1, 2)

    start(spans, printer).is_over()

    *phases, whole = spans.all()
    assert [phase.name for phase in phases] == ["reading config", "loading weights"]
    assert {phase.parent.span_id for phase in phases} == {whole.context.span_id}
    assert whole.parent is None
    assert whole.start_time <= phases[0].start_time <= phases[1].start_time
    assert phases[1].end_time <= whole.end_time
    assert whole.attributes["octavo.outcome"] == "ok"
    assert whole.attributes["octavo.engine.instance_id"] == "i"


def test_a_start_that_failed_says_why_and_where():
    spans, printer = KeptSpans(), StartupPrinter()
    with pytest.raises(ValueError, match="no room"), printer.phase("planning memory"):
        raise ValueError("no room")

    start(spans, printer).is_over("no room")

    phase, whole = spans.all()
    assert phase.name == "planning memory"
    assert whole.status.description == "no room"
    assert whole.attributes["octavo.outcome"] == "error"


def test_without_tracing_nothing_is_made():
    start(None, StartupPrinter()).is_over()


def test_phases_are_log_lines_where_every_line_is_json(caplog, capsys):
    caplog.set_level(logging.INFO)
    with StartupPrinter(logs=True).phase("warming up"):
        pass

    (record,) = caplog.records
    assert json.loads(JsonLines().format(record))["message"].startswith("warming up")
    assert capsys.readouterr().err == ""
