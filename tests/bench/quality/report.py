"""Shows what was measured: tables for a terminal and for a page, JSON, and a plot."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from rich.table import Table

from tests.bench.quality.scoring import num_scored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.quality.run import Amount, Cut, RowFigures, TextFigures

BEGIN, END = "<!-- quality: begin -->", "<!-- quality: end -->"
_COLUMNS = ("perplexity", "change, %", "same token", "prefix")
_NONE = "–"


def table(name: str, rows: Sequence[RowFigures]) -> Table:
    """One text's figures, a row for each server; 80 columns are enough."""
    result = Table(title=f"Quality on {name}", title_justify="left")
    for column in ("weights", "KV"):
        result.add_column(column)
    for column in _COLUMNS:
        result.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        result.add_row(row.row.weights, row.row.kv_cache, *_cells(row.texts[name]))
    return result


def markdown(rows: Sequence[RowFigures], cuts: Sequence[Cut], amount: Amount) -> str:
    """All texts' figures side by side, with the notes below."""
    names = [f"{cut.text.name}: {column}" for cut in cuts for column in _COLUMNS]
    cells = [
        [row.row.weights, row.row.kv_cache, *(c for t in row.texts.values() for c in _cells(t))]
        for row in rows
    ]
    lines = [
        f"| Weights | KV cache | {' | '.join(names)} |",
        f"|---|---|{'---:|' * len(names)}",
        *(f"| {' | '.join(line)} |" for line in cells),
        "",
        *(f"- {note}" for note in notes(rows, cuts, amount)),
    ]
    return "\n".join(lines) + "\n"


def notes(rows: Sequence[RowFigures], cuts: Sequence[Cut], amount: Amount) -> list[str]:
    """What a reader must know of the run: when, where, on what."""
    seconds = sum(row.seconds_to_ready + row.seconds for row in rows)
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu_name()}, Octavo {version('octavo')}, "
        f"{seconds:.0f} s for all rows.",
        *(
            f"{cut.text.name}: {len(cut.windows)} windows of {amount.window_tokens} tokens, "
            f"about {_scored_bytes(cut) / 1e3:.0f} kB of {cut.text.num_bytes / 1e3:.0f} kB "
            f"(SHA-256 {cut.text.sha256[:12]}…): {cut.text.source}."
            for cut in cuts
        ),
    ]


def write_json(path: Path, rows: Sequence[RowFigures], cuts: Sequence[Cut], amount: Amount) -> None:
    """Everything that was measured, and on what."""
    value: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "octavo": version("octavo"),
        "amount": asdict(amount),
        "texts": [
            {
                "name": cut.text.name,
                "source": cut.text.source,
                "bytes": cut.text.num_bytes,
                "sha256": cut.text.sha256,
                "tokens": len(cut.tokens),
                "windows": len(cut.windows),
                "scored_tokens": num_scored(cut.windows),
            }
            for cut in cuts
        ],
        "rows": [
            {
                "weights": row.row.weights,
                "kv_cache": row.row.kv_cache,
                "model": row.row.model.name,
                "flags": " ".join(row.row.flags),
                "seconds_to_ready": row.seconds_to_ready,
                "seconds": row.seconds,
                "texts": {name: asdict(text) for name, text in row.texts.items()},
            }
            for row in rows
        ],
    }
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


def write_docs(path: Path, text: str) -> None:
    """Puts the text between the page's two markers. Raises ValueError if it lacks them."""
    write_between(path, BEGIN, END, text)


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """Puts the text between two markers of a page. Raises ValueError if it lacks them."""
    page = path.read_text(encoding="utf-8")
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"{path} has no {begin} … {end}")
    path.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")


def write_plot(path: Path, rows: Sequence[RowFigures]) -> None:
    """Change of perplexity and agreement of each row against the baseline, as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    compared = [row for row in rows if all(text.change for text in row.texts.values())]
    labels = [f"{row.row.weights}, KV {row.row.kv_cache}" for row in compared]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 0.5 * len(rows) + 1.5), sharey=True)
    names, lowest = list(rows[0].texts), 100.0
    for offset, (name, color) in enumerate(zip(names, ("#1b6ca8", "#b8432f"), strict=True)):
        places = [i + 0.36 * (offset - 0.5) for i in range(len(compared))]
        texts = [row.texts[name] for row in compared]
        changes = [text.change for text in texts if text.change]
        margins = [[c.percent - c.low for c in changes], [c.high - c.percent for c in changes]]
        values = [c.percent for c in changes]
        left.barh(places, values, 0.34, xerr=margins, color=color, label=name, capsize=3)
        same = [text.agreement.same_top for text in texts if text.agreement]
        lowest = min(lowest, *same)
        right.barh(places, same, 0.34, color=color, label=name)
    left.set(xlabel="change of perplexity in %, with its 95 % interval")
    right.set(xlabel="places with the same likeliest token, in %", xlim=(lowest - 5, 100))
    left.set_yticks(range(len(labels)), labels)
    left.invert_yaxis()
    right.legend()
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    figure.suptitle(f"Against {rows[0].row.weights} weights, KV {rows[0].row.kv_cache}")
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def cpu_name() -> str:
    """The processor's name and number of cores that Linux tells; what Python knows elsewhere."""
    info = Path("/proc/cpuinfo")
    name = platform.machine()
    if info.is_file():
        lines = info.read_text().splitlines()
        name = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), name)
    return f"{os.cpu_count()} × {name}"


def _cells(text: TextFigures) -> list[str]:
    cells = [f"{text.perplexity:.3f}"]
    if text.change is None or text.agreement is None:
        return [*cells, *[_NONE] * 3]
    change, same = text.change, text.agreement
    return [
        *cells,
        f"{change.percent:+.2f} ± {(change.high - change.low) / 2:.2f}",
        f"{same.same_top:.1f} %",
        _NONE if same.common_prefix is None else f"{same.common_prefix:.1f}",
    ]


def _scored_bytes(cut: Cut) -> float:
    share = sum(len(window) for window in cut.windows) / len(cut.tokens)
    return share * cut.text.num_bytes
