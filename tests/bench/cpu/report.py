"""Shows a campaign as Markdown, and puts that into a document between its markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from tests.bench.cpu.results import Campaign, Comparison, RowResult, compare
from tests.bench.cpu.rows import MODELS, ROWS, Row

BEGIN = "<!-- bench-cpu: begin -->"
END = "<!-- bench-cpu: end -->"


def markdown(campaign: Campaign) -> str:
    """Four tables: ratios, every system's figures, the serving path's CPU time, start-up."""
    machine = campaign.machine
    dates = sorted(result.date for result in campaign.rows.values())
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores ({machine['instructions']}), "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}; {campaign.threads} threads; "
        f"{_span(dates)}.",
        "Versions: " + "; ".join(f"{k} {v}" for k, v in campaign.versions.items()) + ".",
        _roof_table(campaign.roof),
        "### Ratios\n\n" + _ratio_table(campaign),
        "### Figures\n\nMedians over rounds, of every system in every row.\n\n"
        + _figure_table(campaign),
        "### CPU time of the serving path\n\nSeconds of CPU per second of the clock, in the median "
        "round with 8 or 32 streams.\n\n" + _cpu_table(campaign),
        "### Start-up and memory\n\n" + _system_table(campaign),
    ]
    return "\n\n".join(parts) + "\n"


def publish(document: Path, text: str) -> None:
    """Replaces what stands between the markers. Raises ValueError unless both are there."""
    before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has no {BEGIN} … {END}")
    document.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def _span(dates: Sequence[str]) -> str:
    if not dates:
        return "nothing measured"
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _roof_table(roof: Sequence[dict[str, float | None]]) -> str:
    columns = ("read_gb_s", "int8_gop_s", "bf16_gflop_s", "fp32_gflop_s")
    header = ["Threads", "Read GB/s", "int8 Gop/s", "bf16 GFLOP/s", "fp32 GFLOP/s"]
    return _table(
        header,
        ([str(line["threads"]), *(_number(line.get(c)) for c in columns)] for line in roof),
    )


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ratio_table(campaign: Campaign) -> str:
    header = ["Work", "Octavo", "Peer", "Ratio", "Rounds, least to greatest", "Goal", ""]
    return _table(header, (_ratio_row(row, result) for row, result in _rows(campaign)))


def _ratio_row(row: Row, result: RowResult) -> list[str]:
    title = f"{MODELS[row.model]}, {row.title}"
    goal = f"{'≤' if row.metric.lower_is_better else '≥'} {row.goal:g}"
    comparison = compare(row, result)
    if comparison is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in result.missing.items())
        return [title, "–", "–", "–", reasons, goal, ""]
    return [
        title,
        _side(comparison.ours, comparison.ours_value, row),
        _side(comparison.peer, comparison.peer_value, row),
        f"**{comparison.ratio:.2f}**",
        _rounds(comparison, result),
        goal,
        "yes" if row.reaches(comparison.ratio) else "no",
    ]


def _side(name: str | None, value: float | None, row: Row) -> str:
    return "–" if name is None else f"{name}: {_number(value)} {row.metric.unit}"


def _rounds(comparison: Comparison, result: RowResult) -> str:
    names = [name for name in (comparison.ours, comparison.peer) if name is not None]
    turns = [turn for name in names for turn in result.turns[name]]
    disturbed = sum(turn.is_disturbed for turn in turns)
    note = f", {disturbed} of {len(turns)} turns disturbed" if disturbed else ""
    absent = "".join(f"; {name}: {reason}" for name, reason in result.missing.items())
    return f"{comparison.low:.2f} to {comparison.high:.2f}{note}{absent}"


def _rows(campaign: Campaign) -> list[tuple[Row, RowResult]]:
    return [(row, campaign.rows[name]) for name, row in ROWS.items() if name in campaign.rows]


def _figure_table(campaign: Campaign) -> str:
    columns = {
        "output_tok_s": "tok/s",
        "decode_tok_s": "one stream's decode tok/s",
        "prefill_tok_s": "prefill tok/s",
        "ttft_p50_ms": "TTFT p50 ms",
        "ttft_p95_ms": "p95 ms",
        "between_p50_ms": "between tokens p50 ms",
    }
    lines = []
    for row, result in _rows(campaign):
        for name, turns in result.turns.items():
            if turns[0].speed:
                figures = [_number(median(t.speed[key] for t in turns)) for key in columns]
                lines.append([f"{row.name}: {name}", *figures, str(len(turns))])
    return _table(["Row: system", *columns.values(), "rounds"], lines)


def _cpu_table(campaign: Campaign) -> str:
    roles = ("engine", "router", "server", "library", "client")
    lines = []
    for row, result in _rows(campaign):
        if row.shape.concurrency == 1:
            continue
        for name, turns in result.turns.items():
            by_seconds = sorted(turns, key=lambda turn: turn.cpu["seconds"])
            cpu = by_seconds[len(turns) // 2].cpu
            used = cpu["by_process"]
            lines.append(
                [
                    f"{row.name}: {name}",
                    *(f"{used[r] / cpu['seconds']:.2f}" if r in used else "–" for r in roles),
                ]
            )
    return _table(["Row: system", *roles], lines)


def _system_table(campaign: Campaign) -> str:
    header = ["System", "Start to ready, s", "PSS when ready, MiB", "RSS", "PSS at the end", "RSS"]
    lines = []
    for name, facts in sorted(campaign.systems.items()):
        memory = [facts["ready"], facts["end"] or {"pss": None, "rss": None}]
        sizes = [_number(part[key]) for part in memory for key in ("pss", "rss")]
        lines.append([name, f"{facts['start_s']:.1f}", *sizes])
    return _table(header, lines)
