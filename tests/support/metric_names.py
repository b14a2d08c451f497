"""Names of metrics: those that are shown, that something asks for, and that docs describe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "docs" / "metrics.md"
_TEXTS = (".yaml", ".tpl", ".txt", ".json", ".py", ".md")
_OURS = re.compile(r"\b(?:vllm:|octavo_|grpc_server_|gen_ai_server_)\w+")
_LABELS_OF_ENGINES = ("model_name", "engine")


@dataclass(frozen=True)
class Described:
    """A metric as docs/metrics.md has it."""

    name: str
    kind: str
    labels: frozenset[str]


def asked_for(text: str) -> set[str]:
    """Metrics that a text names; not what it says of all that begin alike, as `octavo_router_…`."""
    return {name for name in _OURS.findall(text) if not name.endswith("_")}


def shown(exposition: str) -> set[str]:
    """Names of all samples, and of families, of those too whose labels have not occurred yet."""
    lines = [line.removeprefix("# TYPE ") for line in exposition.splitlines()]
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in lines if not line.startswith("#")}


def readers() -> list[Path]:
    """What names metrics: the chart with its dashboard, and what people read."""
    chart = [path for path in (ROOT / "helm").rglob("*") if path.suffix in _TEXTS]
    return sorted([*chart, *(ROOT / "docs").glob("*.md"), ROOT / "README.md"])


def described() -> dict[str, Described]:
    """The rows of the tables in docs/metrics.md, by name."""
    rows = {}
    before: frozenset[str] = frozenset()
    common: frozenset[str] = frozenset()
    for line in TABLES.read_text().splitlines():
        if line.startswith("## "):
            common = frozenset(_LABELS_OF_ENGINES if line == "## Of each engine" else ())
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not _OURS.fullmatch(cells[0].strip("`")):
            continue
        name, kind, labels, text = cells
        assert text.endswith("."), line
        if labels != "as above":
            before = frozenset(re.findall(r"`(\w+)`", labels))
        rows[name.strip("`")] = Described(name.strip("`"), kind, before | common)
    return rows


def families(exposition: str) -> dict[str, Metric]:
    """Families by the name that their TYPE line has, without those of creation times."""
    found = {}
    for family in text_string_to_metric_families(exposition):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.endswith("_created"):
            found[name] = family
    return found
