"""The alerts of the chart, under promtool: on written series, and on those that real runs left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.helm.chart import HERE, ChartTool, Object, value_sets
from tests.helm.promql import selectors

ROOT = HERE.parents[1]
MONITORED = value_sets()["monitoring"]
RECORDS = {path.stem: yaml.safe_load(path.read_text()) for path in HERE.glob("recorded/*.yaml")}

# When, in minutes of the record, and which alerts fire then: all of them.
FIRING = {
    "calm": {5: set(), 10: set(), 15: set()},
    "overloaded": {15: {"OctavoRequestsWaiting", "OctavoFirstTokenSlow"}},
    "preempting": {15: {"OctavoPreemptions"}},
    "frozen": {2: set(), 10: {"OctavoEngineMissing"}, 15: {"OctavoNoEngineReady"}},
    "hung": {2: set(), 9: {"OctavoEngineNotStepping"}},
}


@pytest.fixture
def rules(chart: ChartTool) -> Object:
    """The chart's alerts for two engines, with 2.5 seconds as the first token's target."""
    return chart.render(MONITORED).only("PrometheusRule")["spec"]


def test_written_series_bring_about_each_alert_and_its_words(rules: Object, tmp_path: Path) -> None:
    cases = yaml.safe_load((HERE / "alerts.yaml").read_text())

    check(rules, cases, tmp_path)

    tested = {test["alertname"] for group in cases["tests"] for test in group["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in alerts(rules)}


@pytest.mark.parametrize("name", FIRING)
def test_recorded_runs_bring_about_what_they_should_and_nothing_else(
    chart: ChartTool, tmp_path: Path, name: str
) -> None:
    record = RECORDS[name]
    engines = {"engine": MONITORED["engine"] | {"replicas": record["engines"]}}
    rules = chart.render(MONITORED | engines).only("PrometheusRule")["spec"]
    tests = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(fire)
            ],
        }
        for minute, fire in FIRING[name].items()
    ]
    group = {"interval": "15s", "input_series": record["series"], "promql_expr_test": tests}

    check(rules, {"evaluation_interval": "15s", "tests": [group]}, tmp_path)


def test_every_alert_fires_on_a_record(rules: Object) -> None:
    fired = {alert for moments in FIRING.values() for fire in moments.values() for alert in fire}

    assert fired == {rule["alert"] for rule in alerts(rules)}


@pytest.mark.parametrize("name", ["everything", "keda", "monitoring"])
def test_expressions_are_promql_whatever_the_values(chart: ChartTool, name: str) -> None:
    rules = chart.render(value_sets()[name]).only("PrometheusRule")["spec"]

    for rule in alerts(rules):
        assert selectors(promql_parser.parse(rule["expr"]))


def test_every_alert_says_what_to_do_and_where_that_is_written(rules: Object) -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}

    for rule in alerts(rules):
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == MONITORED["monitoring"]["rules"]["guide"]
        assert anchor in anchors


def alerts(rules: Object) -> list[dict[str, Any]]:
    """The alerts of the one group there is."""
    (group,) = rules["groups"]
    return group["rules"]


def check(rules: Object, cases: Object, directory: Path) -> None:
    """Has promtool check the cases."""
    if shutil.which("promtool") is None:
        assert os.environ.get("CI") != "true", "promtool is missing: make system-deps installs it"
        pytest.skip("promtool is not installed: make system-deps")
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
    (directory / "cases.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"]} | cases))

    checked = subprocess.run(
        ["promtool", "test", "rules", "cases.yaml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
