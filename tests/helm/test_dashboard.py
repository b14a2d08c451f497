"""The Grafana dashboard: fresh, readable, and made of PromQL that Prometheus understands."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import promql_parser
import pytest

from helm.dashboard.board import FILE, as_json
from tests.helm.chart import ChartTool, value_sets
from tests.helm.promql import selectors

BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TITLES = [panel["title"] for panel in PANELS]


def test_the_file_is_what_the_program_writes() -> None:
    assert FILE.read_text() == as_json(), "make dashboard"


def test_four_numbers_come_first() -> None:
    assert [panel["type"] for panel in BOARD["panels"][:5]] == ["stat"] * 4 + ["row"]
    assert TITLES[:4] == [
        "Requests waiting",
        "First token, p95",
        "Output tokens",
        "KV cache in use",
    ]


@pytest.mark.parametrize("panel", PANELS, ids=TITLES)
def test_a_panel_asks_what_prometheus_understands_and_says_what_it_shows(
    panel: dict[str, Any],
) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        promql_parser.parse(as_grafana_sends_it(target["expr"]))


def test_every_query_keeps_to_what_was_chosen() -> None:
    for expr in (target["expr"] for panel in PANELS for target in panel["targets"]):
        for selector in selectors(promql_parser.parse(as_grafana_sends_it(expr))):
            chosen = {each.name for each in selector.matchers.matchers}
            engines = {"namespace", "model_name", "engine"}
            is_routers = selector.name.startswith("octavo_router_")
            assert chosen >= ({"namespace"} if is_routers else engines), selector.name


def test_variables_are_all_that_queries_use() -> None:
    names = [each["name"] for each in BOARD["templating"]["list"]]

    assert names == ["datasource", "namespace", "model_name", "engine"]


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in BOARD["panels"]]

    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_the_chart_hands_the_file_to_grafana_as_it_is(chart: ChartTool) -> None:
    rendered = chart.render(value_sets()["monitoring"])
    found = rendered.only("ConfigMap", "octavo-dashboard")

    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "Serving"}
    assert json.loads(found["data"]["octavo.json"]) == BOARD


def as_grafana_sends_it(expr: str) -> str:
    """An expression with Grafana's variables replaced."""
    return expr.replace("$__rate_interval", "1m")
