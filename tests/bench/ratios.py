"""Prints the ratios of one benchmark run: python tests/bench/ratios.py DIR (made by run.sh)."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def _levels(path: Path) -> list[dict]:
    return json.loads(path.read_text())["levels"]


def main(directory: Path) -> None:
    levels = _levels(directory / "concurrency.json")
    one, most = levels[0], levels[-1]
    gain = most["output_tokens_per_second"] / one["output_tokens_per_second"]
    print(f"{most['concurrency']} streams over one stream, aggregate tok/s: {gain:.1f}x")
    on, off = (
        _levels(directory / f"prefix-{name}.json")[0]["ttft_p50"]
        for name in ("enable", "no-enable")
    )
    print(f"time to first token of a shared 1,000-token prefix, cache off over on: {off / on:.1f}x")


main(Path(sys.argv[1]))
