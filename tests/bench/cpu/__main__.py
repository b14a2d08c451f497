"""Octavo and its peers side by side: python -m tests.bench.cpu --help."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import click

from tests.bench.cpu import report
from tests.bench.cpu.catalogue import Catalogue
from tests.bench.cpu.machine import Roof, description
from tests.bench.cpu.plot import write_plot
from tests.bench.cpu.results import Campaign
from tests.bench.cpu.rows import ROWS, Row
from tests.bench.cpu.runner import Runner


def _choose(_context: click.Context, _option: click.Parameter, names: str) -> list[Row]:
    wanted = list(ROWS) if names == "all" else names.split(",")
    if unknown := [name for name in wanted if name not in ROWS]:
        raise click.BadParameter(f"no row {unknown[0]!r}; there are {', '.join(ROWS)}")
    return [ROWS[name] for name in wanted]


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command()
@click.option(
    "--peers",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench/peers"),
    show_default=True,
    help="Where install_peers.sh put engines and models.",
)
@click.option("--rows", callback=_choose, default="all", help="Names of rows, with commas.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024), default=2, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench"),
    show_default=True,
    help="Folder for cpu.json, cpu.md, cpu.png and logs.",
)
@click.option(
    "--keep", is_flag=True, help="Keep the rows of an earlier run that are not measured now."
)
@click.option(
    "--publish",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Measure nothing; put the last run's tables into this document, between its markers.",
)
def main(
    peers: Path,
    rows: list[Row],
    rounds: int,
    threads: int,
    out: Path,
    keep: bool,
    publish: Path | None,
) -> None:
    """Measures Octavo and its peers in turns on this machine, and prints the ratios."""
    json_path = out / "cpu.json"
    if publish is not None:
        report.publish(publish, report.markdown(Campaign.read(json_path)))
        return
    # So that servers are stopped when this is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peers, out = peers.resolve(), out.resolve()
    catalogue = Catalogue(peers, out / "logs", threads)
    if missing := [row.model for row in rows if not (catalogue.model_dir(row.model)).is_dir()]:
        raise click.ClickException(
            f"{catalogue.model_dir(missing[0])} is missing; tests/bench/cpu/install_peers.sh "
            f"{peers} models makes it"
        )
    try:
        roof = Roof(out / "roof")
    except (OSError, subprocess.CalledProcessError) as error:
        raise click.ClickException(f"the roof program cannot be compiled: {error}") from error
    campaign = Campaign(
        dict(description()), catalogue.versions(), roof.measure(threads, arithmetic=True), threads
    )
    if keep and json_path.exists():
        earlier = Campaign.read(json_path)
        campaign.rows, campaign.systems = earlier.rows, earlier.systems
    runner = Runner(catalogue, roof, rounds, _say)
    try:
        for number, row in enumerate(rows):
            for result in runner.run(row, rows[number + 1 :]):
                campaign.rows[row.name] = result
                campaign.write(json_path)  # so that nothing is lost when this is ended
    finally:
        runner.pool.close()
        campaign.systems |= runner.pool.facts
        campaign.write(json_path)
    text = report.markdown(campaign)
    (out / "cpu.md").write_text(text, encoding="utf-8")
    write_plot(out / "cpu.png", campaign)
    click.echo(text)


main()
