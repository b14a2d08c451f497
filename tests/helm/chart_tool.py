"""Renders, lints and validates the chart, in the environment that has Helm.

A request a line, an answer a line:

{"values", "name", "namespace"} ──► {"notes", "objects", "faults", "unknown"} or {"refused"}
{"lint"}                        ──► {"messages", "errors"}

Faults are what Kubernetes' own schemas find, strictly; kinds that they do not have are unknown.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import helm_python
import kubernetes_validate.utils as validator
import yaml

KUBERNETES = "1.34"


def main(chart_directory: str) -> None:
    """Answers until its input ends."""
    # Megabytes that do not change are read and parsed once.
    validator.schema_contents = functools.cache(validator.schema_contents)
    validator.all_versions = functools.cache(validator.all_versions)
    chart = helm_python.Chart.load(chart_directory)
    for line in sys.stdin:
        request = json.loads(line)
        if "lint" in request:
            answer = helm_python.lint(chart_directory, request["lint"], strict=True)
        else:
            answer = _render(chart, request)
        print(json.dumps(answer), flush=True)


def _render(chart: Any, request: dict[str, Any]) -> dict[str, Any]:
    try:
        files = chart.render(
            request["values"], name=request["name"], namespace=request["namespace"]
        )
    except helm_python.HelmError as error:
        return {"refused": str(error)}
    objects, notes = [], ""
    for path, text in files.items():
        if path.endswith("NOTES.txt"):
            notes = text
        else:
            objects += [each for each in yaml.safe_load_all(text) if each is not None]
    faults: list[str] = []
    unknown: list[str] = []
    for each in objects:
        title = f"{each['kind']}/{each['metadata']['name']}"
        for part in [each, *_known_parts(each)]:
            try:
                validator.validate(part, KUBERNETES, strict=True)
            except validator.SchemaNotFoundError:
                unknown.append(title)
            except validator.ValidationError as error:
                faults.append(f"{title}: {'.'.join(map(str, error.path))}: {error.message}")
    return {"notes": notes, "objects": objects, "faults": faults, "unknown": unknown}


def _known_parts(each: dict[str, Any]) -> list[dict[str, Any]]:
    """What is Kubernetes' own inside an object of an unknown kind."""
    if each["kind"] == "LeaderWorkerSet":
        group = each["spec"]["leaderWorkerTemplate"]
        templates = [group["leaderTemplate"], group["workerTemplate"]]
        return [{"apiVersion": "v1", "kind": "PodTemplate", "template": each} for each in templates]
    if each["kind"] == "ServingRuntime":
        fields = ("containers", "volumes", "nodeSelector", "tolerations", "imagePullSecrets")
        spec = {name: each["spec"][name] for name in fields if name in each["spec"]}
        return [{"apiVersion": "v1", "kind": "Pod", "spec": spec}]
    return []


main(sys.argv[1])
