"""What was found, as lines while it is found and as a Markdown file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from tests.gpu_check.outcome import COLUMNS, TITLES, Outcome, Section, Status


class Lines:
    """Prints outcomes as they come, with a heading for each section."""

    def __init__(self) -> None:
        self._section: Section | None = None

    def __call__(self, outcome: Outcome) -> None:
        if outcome.section is not self._section:
            self._section = outcome.section
            print(f"\n== {TITLES[outcome.section]}", flush=True)
        note = outcome.findings.note
        line = f"{outcome.status:8}{outcome.seconds:6.1f} s  {outcome.name}"
        print(f"{line}: {note}" if note else line, flush=True)


def summary(outcomes: Sequence[Outcome]) -> str:
    """All counts, and the names of what failed."""
    counts = ", ".join(
        f"{sum(outcome.status is status for outcome in outcomes)} {status}" for status in Status
    )
    failed = [
        f"  {outcome.section}: {outcome.name}: {outcome.findings.note}"
        for outcome in outcomes
        if outcome.status is Status.FAILED
    ]
    return "\n".join([counts, *failed])


def tables(outcomes: Sequence[Outcome]) -> str:
    """What was measured, for a terminal."""
    return "\n".join(
        f"\n{TITLES[section]}\n{_aligned([columns, *_rows(outcomes, section)])}"
        for section, columns in COLUMNS.items()
        if _rows(outcomes, section)
    )


def markdown(description: Iterable[str], outcomes: Sequence[Outcome], seconds: float) -> str:
    """The whole run, as docs/ would keep it."""
    parts = ["# make gpu-check", ""]
    parts += [f"- {line}" for line in description]
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    parts += [f"- {now}, {seconds:.0f} s: {summary(outcomes).splitlines()[0]}", ""]
    for section in Section:
        mine = [outcome for outcome in outcomes if outcome.section is section]
        if not mine:
            continue
        parts += [f"## {TITLES[section]}", ""]
        if rows := _rows(outcomes, section):
            parts += [*_markdown_table(COLUMNS[section], rows), ""]
        checks = [(o.name, str(o.status), f"{o.seconds:.1f}", o.findings.note) for o in mine]
        parts += [*_markdown_table(("Check", "", "s", "Found"), checks), ""]
    return "\n".join(parts)


def _rows(outcomes: Sequence[Outcome], section: Section) -> list[tuple[str, ...]]:
    return [row for o in outcomes if o.section is section for row in o.findings.rows]


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
