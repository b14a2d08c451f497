"""From turns to ratios, and from ratios to a document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.cpu.report import BEGIN, END, markdown, publish
from tests.bench.cpu.results import Campaign, RowResult, Turn, compare
from tests.bench.cpu.rows import ROWS

SINGLE, BEST, LATENCY = ROWS["single_bf16"], ROWS["c8_best"], ROWS["shared_p95"]
MACHINE = {"cpu": "Abacus", "cores": 2, "instructions": "avx2", "memory_gib": 8, "kernel": "6"}


def _result(missing: dict[str, str] | None = None, **turns: list[float]) -> RowResult:
    by_name = {name: [Turn(value) for value in values] for name, values in turns.items()}
    return RowResult("2026-01-01 00:00 UTC", by_name, missing or {})


def _named(result: RowResult, *names: str) -> RowResult:
    turns = dict(zip(names, result.turns.values(), strict=True))
    return RowResult(result.date, turns, result.missing)


def _campaign(**rows: RowResult) -> Campaign:
    roof = [{"threads": 2, "read_gb_s": 34.0, "int8_gop_s": None}]
    return Campaign(dict(MACHINE), {"octavo": "1"}, roof, 2, rows)


def test_the_ratio_is_that_of_medians_and_the_spread_that_of_rounds() -> None:
    result = _named(_result(a=[120, 90, 300], b=[100, 100, 50]), "octavo-bf16", "llama.cpp-bf16")

    comparison = compare(SINGLE, result)

    assert comparison is not None
    assert comparison.ratio == pytest.approx(120 / 100)
    assert (comparison.low, comparison.high) == (pytest.approx(0.9), pytest.approx(6))


def test_the_best_of_each_side_counts() -> None:
    result = _named(
        _result(a=[500], b=[700], c=[100], d=[200]),
        "octavo-int8-kv8",
        "octavo-int4-kv8",
        "vllm-bf16",
        "openvino-int4",
    )

    comparison = compare(BEST, result)

    assert comparison is not None
    assert (comparison.ours, comparison.peer) == ("octavo-int4-kv8", "openvino-int4")
    assert comparison.ratio == pytest.approx(3.5)


def test_a_row_without_peers_compares_the_figure_itself() -> None:
    result = _named(_result(a=[0.8, 0.9, 0.7]), "octavo-int8-kv8")

    comparison = compare(ROWS["kernels_c8"], result)

    assert comparison is not None
    assert (comparison.ratio, comparison.low, comparison.high) == (0.8, 0.7, 0.9)


def test_a_side_without_a_measurement_gives_no_ratio() -> None:
    assert compare(SINGLE, _named(_result(a=[100]), "octavo-bf16")) is None


def test_a_goal_is_reached_from_the_better_side() -> None:
    assert SINGLE.reaches(SINGLE.goal)
    assert not SINGLE.reaches(SINGLE.goal - 0.01)
    assert LATENCY.reaches(LATENCY.goal - 0.01)
    assert not LATENCY.reaches(LATENCY.goal + 0.01)


def test_the_table_shows_ratio_goal_and_what_is_not_installed() -> None:
    reached = _named(_result(a=[130], b=[100]), "octavo-bf16", "llama.cpp-bf16")
    absent = _result({"vllm-bf16": "not installed (vllm is missing)"})

    text = markdown(_campaign(single_bf16=reached, c8_bf16=absent))

    line = next(line for line in text.splitlines() if "1 stream, 32 → 128, bf16" in line)
    assert "**1.30**" in line
    assert "≥ 1.2 | yes" in line
    assert "vllm-bf16: not installed (vllm is missing)" in text


def test_disturbed_turns_are_confessed() -> None:
    result = _named(_result(a=[130], b=[100]), "octavo-bf16", "llama.cpp-bf16")
    result.turns["octavo-bf16"] = [replace(result.turns["octavo-bf16"][0], is_disturbed=True)]

    assert "1 of 2 turns disturbed" in markdown(_campaign(single_bf16=result))


def test_a_campaign_survives_its_file(tmp_path: Path) -> None:
    campaign = _campaign(single_bf16=_named(_result(a=[1.5]), "octavo-bf16"))

    campaign.write(tmp_path / "deep" / "cpu.json")

    assert Campaign.read(tmp_path / "deep" / "cpu.json") == campaign


def test_publishing_replaces_only_what_stands_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    publish(document, "new\n")

    assert document.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


def test_a_document_without_markers_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("no markers\n")

    with pytest.raises(ValueError, match="bench-cpu: begin"):
        publish(document, "new\n")

    assert document.read_text() == "no markers\n"
