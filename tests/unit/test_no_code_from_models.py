"""A model is data: nothing in the product loads or runs code that comes with one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "remote code": r"trust_remote_code\s*=\s*True",
    "pickles": r"\b(pickle|cloudpickle|dill|joblib)\.loads?\(|\bimport (pickle|dill|joblib)\b",
    "torch's pickles": r"\btorch\.load\(",
    "YAML with constructors": r"\byaml\.(load|unsafe_load|full_load)(_all)?\(",
    "evaluated text": r"(?<![\w.])(eval|exec)\(",
    "modules by a model's name": r"\bget_class_from_dynamic_module\b|\bauto_map\s*\[",
}
SOURCES = [
    file
    for package in ("router_svc", "engine_svc", "kernels", "protos")
    for file in sorted((ROOT / package).rglob("*.py"))
]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_source_has(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])

    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in SOURCES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


def test_the_search_finds_what_it_looks_for() -> None:
    bad = ["f(trust_remote_code=True)", "pickle.loads(x)", "torch.load(f)", "yaml.load(f)"]
    bad += ["x = eval(text)", "get_class_from_dynamic_module(name)"]
    assert len(SOURCES) > 100
    for pattern, line in zip(FORBIDDEN.values(), bad, strict=True):
        assert re.search(pattern, line)
        assert not re.search(pattern, "model.eval()  # of a yaml.safe_load")
