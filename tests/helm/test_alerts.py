"""The alerts of the chart, under promtool: on written series, and on those that real runs left."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helm.chart import ChartTool, value_sets

SETS = value_sets()


def test_promtool_accepts_the_alerts(chart: ChartTool, tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        assert os.environ.get("CI") != "true", "promtool is missing: make system-deps installs it"
        pytest.skip("promtool is not installed: make system-deps")
    rules = chart.render(SETS["monitoring"]).only("PrometheusRule")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    cases = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"]} | cases))

    checked = subprocess.run(
        ["promtool", "test", "rules", "cases.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = {test["alertname"] for group in cases["tests"] for test in group["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in rules["groups"][0]["rules"]}
