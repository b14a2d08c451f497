"""Shows what was measured: a table for a terminal, a plot, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from router_svc.bench.run import Level

_COLUMNS = (
    "streams", "requests", "errors", "tok/s", "TTFT p50", "p95", "inter-token p50", "p95",
)  # fmt: skip


def table(title: str, levels: Sequence[Level]) -> Table:
    """One row per concurrency; durations in milliseconds."""
    result = Table(title=title, caption="durations in ms", title_justify="left")
    for column in _COLUMNS:
        result.add_column(column, justify="right")
    for level in levels:
        result.add_row(
            str(level.concurrency),
            str(level.num_requests),
            f"[red]{level.num_errors}[/red]" if level.num_errors else "0",
            f"{level.output_tokens_per_second:.1f}",
            *(
                f"{value:.1f}"
                for value in (
                    level.ttft_p50,
                    level.ttft_p95,
                    level.inter_token_p50,
                    level.inter_token_p95,
                )
            ),
        )
    return result


def write_json(path: Path, settings: dict[str, Any], levels: Sequence[Level]) -> None:
    """The settings and every level's figures."""
    value = {"settings": settings, "levels": [level.as_json() for level in levels]}
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


def write_plot(path: Path, title: str, levels: Sequence[Level]) -> None:
    """Throughput and latencies against concurrency, as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    concurrency = [level.concurrency for level in levels]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    figure.suptitle(title)
    left.plot(concurrency, [lv.output_tokens_per_second for lv in levels], "o-", color="#1b6ca8")
    left.set(xlabel="concurrent requests", ylabel="output tokens per second", ylim=(0, None))
    series = (
        ("time to first token", "ttft_p50", "ttft_p95", "#b8432f"),
        ("between tokens", "inter_token_p50", "inter_token_p95", "#3a7d44"),
    )
    for label, p50, p95, color in series:
        right.plot(concurrency, [getattr(lv, p50) for lv in levels], "o-", color=color, label=label)
        right.plot(concurrency, [getattr(lv, p95) for lv in levels], "^:", color=color)
    right.set(xlabel="concurrent requests", ylabel="ms (log scale)", yscale="log")
    right.legend(title="● p50   ▲ p95")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(concurrency, [str(c) for c in concurrency])
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
