"""The chart as tests see it: what it renders to, and what is wrong with that."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "helm"
Object = dict[str, Any]


class RefusedError(Exception):
    """The chart does not render with these values; says why."""


@dataclass(frozen=True)
class Rendered:
    """Objects of a release, and their faults against the schemas of their kinds."""

    objects: list[Object]
    faults: list[str]
    notes: str

    def only(self, kind: str, name: str | None = None) -> Object:
        """The object of a kind, which has just one (of that name)."""
        (found,) = (
            each
            for each in self.objects
            if each["kind"] == kind and name in (None, each["metadata"]["name"])
        )
        return found

    def kinds(self) -> set[str]:
        """Kinds of all objects."""
        return {each["kind"] for each in self.objects}

    def pods(self) -> list[Object]:
        """Pod templates of everything that serves, by whatever it is run."""
        templates = []
        for each in self.objects:
            if each["kind"] in ("StatefulSet", "Deployment"):
                templates.append(each["spec"]["template"])
            elif each["kind"] == "LeaderWorkerSet":
                group = each["spec"]["leaderWorkerTemplate"]
                templates += [group["leaderTemplate"], group["workerTemplate"]]
        return templates

    def container(self, name: str) -> Object:
        """The container of that name in the first pod that has it."""
        containers = [each for pod in self.pods() for each in pod["spec"]["containers"]]
        return next(each for each in containers if each["name"] == name)


class ChartTool:
    """Helm, in a process of its own environment."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(HERE / "chart_tool.py"), str(CHART)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: dict[str, Any] = {}

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()

    def lint(self, values: Object) -> list[str]:
        """Errors of `helm lint --strict`."""
        answer = self._ask({"lint": values})
        return [*answer["errors"], *(m for m in answer["messages"] if m["severity"] > 1)]

    def render(self, values: Object, name: str = "octavo", namespace: str = "llm") -> Rendered:
        """Raises RefusedError."""
        answer = self._ask({"values": values, "name": name, "namespace": namespace})
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        faults = list(answer["faults"])
        for each in answer["objects"]:
            title = f"{each['kind']}/{each['metadata']['name']}"
            if title in answer["unknown"]:
                faults += (f"{title}: {text}" for text in _faults_of_other_kind(each))
        return Rendered(answer["objects"], faults, answer["notes"])

    def _ask(self, request: Object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        text = json.dumps(request)
        if text not in self._answers:
            print(text, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
            assert line, "Helm's process ended"
            self._answers[text] = json.loads(line)
        return self._answers[text]


def value_sets() -> dict[str, Object]:
    """The values in values/, by name."""
    files = sorted((HERE / "values").glob("*.yaml"))
    return {file.stem: yaml.safe_load(file.read_text()) for file in files}


def _faults_of_other_kind(each: Object) -> list[str]:
    validator = _other_kinds().get(f"{each['apiVersion']} {each['kind']}")
    if validator is None:
        return ["a kind that other_kinds.yaml does not have"]
    if set(each) != {"apiVersion", "kind", "metadata", "spec"}:
        return [f"has {', '.join(each)}"]
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(each["spec"])]


@cache
def _other_kinds() -> dict[str, jsonschema.Draft7Validator]:
    schemas = yaml.safe_load((HERE / "other_kinds.yaml").read_text())
    definitions = schemas.pop("definitions")
    return {
        kind: jsonschema.Draft7Validator(schema | {"definitions": definitions})
        for kind, schema in schemas.items()
    }
