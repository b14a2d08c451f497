"""The Dockerfile, read: pinned, without root, made of what is there; and how small a router is."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helm.chart import CHART, ChartTool, value_sets

ROOT = CHART.parent
TARGETS = ("router", "engine-cpu", "engine-gpu")
ROUTER_BYTES = 200_000_000


class Instruction(NamedTuple):
    """A line of a Dockerfile, continuations joined."""

    word: str
    rest: str


@pytest.fixture(scope="module")
def stages() -> dict[str, tuple[str, list[Instruction]]]:
    """What each stage starts from, and its instructions."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    found: dict[str, tuple[str, list[Instruction]]] = {}
    current: list[Instruction] = []
    for line in lines:
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, name = rest.split(" AS ")
            current = []
            found[name] = (base, current)
        elif found:
            current.append(Instruction(word, rest))
    return found


def lineage(stages: dict, name: str) -> list[Instruction]:
    """A stage's instructions after those of the stages that it starts from."""
    base, own = stages[name]
    return [*(lineage(stages, base) if base in stages else []), *own]


def test_every_image_starts_from_one_pinned_base(stages: dict) -> None:
    default = re.search(r"^ARG BASE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert default
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", default[1])
    assert {base for base, _ in stages.values()} - set(stages) == {"${BASE}"}
    assert "latest" not in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_images_run_as_the_user_that_the_chart_runs_them_as(
    stages: dict, chart: ChartTool, target: str
) -> None:
    security = chart.render({}).pods()[0]["spec"]["securityContext"]
    last = [each for each in lineage(stages, target) if each.word in ("USER", "RUN", "COPY")][-1]

    assert last == ("USER", f"{security['runAsUser']}:{security['runAsGroup']}")
    words = dict(lineage(stages, target))
    assert words["ENTRYPOINT"] == '["octavo"]'
    assert words["STOPSIGNAL"] == "SIGTERM"


def test_what_pip_installs_is_pinned(stages: dict) -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in constraints.splitlines()}
    for name in stages:
        for each in lineage(stages, name):
            if each.word == "RUN" and "pip install" in each.rest:
                packages = re.search(r"pip install (?:-C \S+ )?(\S+)", each.rest)
                assert packages
                package = packages[1].strip('"')
                assert "==" in package or package.startswith(".") or package in pinned
        if name.startswith("build"):
            assert any("PIP_CONSTRAINT" in each.rest for each in lineage(stages, name))
    for each in router_distributions():
        assert canonicalize_name(each.metadata["Name"]) in pinned


def test_stages_copy_what_is_there_and_not_ignored(stages: dict) -> None:
    kept = {
        line[1:].strip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = set()
    for _, instructions in stages.values():
        for each in instructions:
            if each.word == "COPY" and "--from" not in each.rest:
                copied |= {source.strip("/") for source in each.rest.split()[:-1]}
            assert each.word != "ADD"

    assert copied == kept
    assert all((ROOT / each).exists() for each in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["scikit-build"]["wheel"]["packages"]
    assert {each.split("/")[0] for each in packages} <= copied


def test_the_chart_runs_these_images(stages: dict) -> None:
    images = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    gpu = value_sets()["gpu"]["image"]["engine"]["repository"]

    names = {images["router"]["repository"], images["engine"]["repository"], gpu}
    assert names == {f"octavo-{target}" for target in TARGETS}
    assert set(TARGETS) <= set(stages)


def test_what_a_router_needs_is_small_and_has_no_torch() -> None:
    found = router_distributions()
    names = {canonicalize_name(each.metadata["Name"]) for each in found}

    assert not names & {"torch", "triton", "transformers"}
    sizes = {each.metadata["Name"]: sum(map(size_of, files_of(each))) for each in found}
    assert sum(sizes.values()) < ROUTER_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:9]


@cache
def router_distributions() -> tuple[Distribution, ...]:
    """The project's dependencies without extras, and theirs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(each), "") for each in project["dependencies"]]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        found[name] = distribution(name)
        needs = [Requirement(each) for each in found[name].requires or ()]
        waiting += [(need, own) for need in needs for own in ("", *requirement.extras)]
    return tuple(found.values())


def files_of(installed: Distribution) -> list[Path]:
    """Its files in the image, but for bytecode, which is a third more."""
    files = [Path(str(each.locate())) for each in installed.files or ()]
    return [each for each in files if each.suffix != ".pyc" and "tests" not in each.parts]


def size_of(file: Path) -> int:
    """Bytes, 0 of what is not there."""
    return file.stat().st_size if file.exists() else 0
