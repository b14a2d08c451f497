"""A report for people: where the memory goes, what fits, and what helps where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from engine_svc.memory import concurrency_line, format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from engine_svc.planning.report import LengthFit, Report


def show(report: Report, console: Console) -> None:
    """Prints a report."""
    parameters = f"{report.num_parameters / 1e6:,.1f} M parameters"
    console.print(f"{report.model} ({report.family}, {report.format}), {parameters}")
    console.print(report.computation)
    console.print(
        f"{report.target}: {format_bytes(report.available_bytes)} ({report.available_bound})"
        + (f" on each of {report.tensor_parallel_size} ranks" * (report.tensor_parallel_size > 1))
    )
    console.print(_memory(report))
    if report.kv is not None:
        product = f" = {report.kv.arithmetic}" if report.kv.arithmetic else ""
        console.print(f"KV per token: {report.kv.bytes_per_token:,} bytes{product}")
    for length in report.lengths:
        console.print(_line(length, report))
    for notice in report.notices:
        console.print(f"note: {notice}")
    if report.problem is not None:
        console.print(f"does not fit: {report.problem}")
    if report.ways:
        console.print(_ways(report))


def _memory(report: Report) -> Table:
    table = Table("Memory", "Size", "")
    table.columns[1].justify = "right"
    table.add_row("weights", format_bytes(report.weight_bytes), "as they are packed")
    step = f"at most, in a step of {report.step_tokens:,} tokens"
    table.add_row("activations", format_bytes(report.activation_bytes), step)
    if report.adapter_bytes:
        table.add_row(
            "adapters", format_bytes(report.adapter_bytes), "all that may be loaded together"
        )
    if (kv := report.kv) is not None and kv.num_blocks:
        blocks = f"{kv.num_blocks:,} blocks of {kv.block_size} tokens = {kv.pool_tokens:,} tokens"
        table.add_row("KV pool", format_bytes(kv.pool_bytes), blocks)
    if not report.fits:
        name = "left for KV" if report.left_bytes >= 0 else "missing"
        table.add_row(name, format_bytes(abs(report.left_bytes)), "")
    else:
        table.add_row("left free", format_bytes(report.left_bytes), "not planned for")
    return table


def _line(length: LengthFit, report: Report) -> str:
    if length.max_concurrency is None:
        if report.max_model_len and length.tokens > report.max_model_len:
            reason = f"longer than the {report.max_model_len:,} tokens that are served"
        else:
            reason = f"do not fit; KV of each: {format_bytes(length.kv_bytes)}"
        return f"Requests of {length.tokens:,} tokens: {reason}"
    if report.kv is None:
        return f"Inputs of {length.tokens:,} tokens: {length.at_once} in a step"
    line = concurrency_line(length.tokens, length.max_concurrency)
    limit = " (--max-num-seqs)" if length.at_once == report.max_num_seqs else ""
    return f"{line}; KV of each: {format_bytes(length.kv_bytes)}; at once: {length.at_once}{limit}"


def _ways(report: Report) -> Table:
    table = Table("What helps", "weights", "context", "KV pool")
    table.columns[0].no_wrap = True  # flags are to be copied
    for column in table.columns[1:]:
        column.justify = "right"
    for way in report.ways:
        pool = f"{way.pool_tokens:,} tokens" if way.pool_tokens else ""
        weights = format_bytes(way.weight_bytes)
        table.add_row(way.flags, weights, f"{way.max_model_len:,} tokens", pool)
    return table
