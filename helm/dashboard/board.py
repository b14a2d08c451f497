"""What the dashboard shows.

waiting │ first token p95 │ tokens/s │ KV cache      how it stands, in four numbers
── traffic and latency ── queue ── KV cache ── engine step ── fleet ──
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from helm.dashboard.panels import (
    COUNT,
    DATA_SOURCE,
    PER_SECOND,
    REQUESTS_PER_SECOND,
    SECONDS,
    SHARE,
    TOKENS_PER_SECOND,
    Limit,
    Line,
    number,
    plot,
    table,
)
from helm.dashboard.queries import engines, increase, per, quantile, rate, routers, share, total

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders.stat import Panel as Number
    from grafana_foundation_sdk.builders.table import Panel as Table
    from grafana_foundation_sdk.builders.timeseries import Panel as Plot

FILE = Path(__file__).parents[1] / "files" / "octavo-dashboard.json"


def as_json() -> str:
    """The dashboard as Grafana imports it."""
    return json.dumps(board().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def board() -> dashboard.Dashboard:
    """The dashboard."""
    made = (
        dashboard.Dashboard("Octavo")
        .uid("octavo")
        .description("How an Octavo deployment stands. What to do about it: docs/operations.md.")
        .tags(["octavo", "llm"])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(_data_source())
        .with_variable(_choice("namespace", "Namespace", "vllm:num_requests_running"))
        .with_variable(
            _choice("model_name", "Model", 'vllm:num_requests_running{namespace=~"$namespace"}')
        )
        .with_variable(
            _choice(
                "engine",
                "Engine",
                'vllm:num_requests_running{namespace=~"$namespace",model_name=~"$model_name"}',
            )
        )
    )
    ids = itertools.count(1)
    for each in _four_numbers():
        made = made.with_panel(each.id(next(ids)))
    for title, panels in (
        ("Traffic and latency", _traffic()),
        ("Queue", _queue()),
        ("KV cache", _cache()),
        ("Engine step", _step()),
        ("Fleet", _fleet()),
    ):
        made = made.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            made = made.with_panel(panel.id(next(ids)))
    return made


def _data_source() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _choice(label: str, title: str, series: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(label)
        .label(title)
        .datasource(DATA_SOURCE)
        .query(f"label_values({series}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _four_numbers() -> list[Number]:
    first_token = engines("vllm:time_to_first_token_seconds_bucket")
    return [
        number(
            "Requests waiting",
            "Zero as long as the engines keep up. More for minutes: too few engines or blocks.",
            total(engines("vllm:num_requests_waiting")),
            COUNT,
            [Limit(1, "orange"), Limit(20, "red")],
        ),
        number(
            "First token, p95",
            "Nineteen of twenty answers began within this time, the wait in the queue included.",
            quantile(0.95, first_token),
            SECONDS,
            [Limit(2, "orange"), Limit(5, "red")],
        ),
        number(
            "Output tokens",
            "Tokens of answers in a second, over all engines.",
            total(rate(engines("vllm:generation_tokens_total"))),
            TOKENS_PER_SECOND,
        ),
        number(
            "KV cache in use",
            "Of the fullest engine. Near 100 % requests are preempted and computed again.",
            f"max({engines('vllm:kv_cache_usage_perc')})",
            SHARE,
            [Limit(0.9, "orange"), Limit(0.98, "red")],
        ),
    ]


def _traffic() -> list[Plot]:
    return [
        plot(
            "Calls by outcome",
            "Calls of the public API that ended. Clients that left are cancelled; what the client "
            "got wrong is invalid_request; unavailable: no engine was ready.",
            REQUESTS_PER_SECOND,
            Line(total(rate(routers("octavo_router_requests_total")), "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        plot(
            "Tokens",
            "Prompt tokens that were computed or found in the cache, and tokens of answers.",
            TOKENS_PER_SECOND,
            Line(total(rate(engines("vllm:generation_tokens_total"))), "output"),
            Line(total(rate(engines("vllm:prompt_tokens_total"))), "prompt"),
            Line(total(rate(engines("vllm:prompt_tokens_cached_total"))), "prompt, cached"),
        ),
        plot(
            "Answers that ended",
            "By reason. Aborted: the client went away. Timeouts: the request's own deadline.",
            REQUESTS_PER_SECOND,
            Line(
                total(rate(engines("vllm:request_success_total")), "finished_reason"),
                "{{finished_reason}}",
            ),
            stacked=True,
        ),
        plot(
            "First token",
            "From an engine's receipt of a request to its first token.",
            SECONDS,
            *_quantiles("vllm:time_to_first_token_seconds"),
        ),
        plot(
            "Between tokens",
            "What a reader of a stream feels. It grows with the streams of a step, and with long "
            "prompts beside them.",
            SECONDS,
            *_quantiles("vllm:inter_token_latency_seconds"),
        ),
        plot(
            "Whole answer",
            "From an engine's receipt of a request to its end.",
            SECONDS,
            *_quantiles("vllm:e2e_request_latency_seconds"),
        ),
    ]


def _queue() -> list[Plot]:
    return [
        plot(
            "Running and waiting",
            "Running is bounded by --max-num-seqs and the KV pool; what is beyond them waits.",
            COUNT,
            Line(total(engines("vllm:num_requests_running")), "running"),
            Line(total(engines("vllm:num_requests_waiting")), "waiting"),
            width=12,
        ),
        plot(
            "Wait in the queue",
            "From an engine's receipt of a request to its first step.",
            SECONDS,
            *_quantiles("vllm:request_queue_time_seconds"),
            width=12,
        ),
        plot(
            "What they wait for",
            "How many wait, on average, by reason: step: the next step; batch_full: --max-num-seqs "
            "run; no_free_blocks: the KV pool is full; token_budget: the step's tokens are spent; "
            "prefix_in_progress: another computes their prefix; turn: others go first.",
            COUNT,
            Line(total(rate(engines("octavo_queue_wait_seconds_total")), "reason"), "{{reason}}"),
            width=12,
            stacked=True,
        ),
        plot(
            "Refused",
            "By engines (queue_full, draining, overloaded, invalid, expectation), and by limits "
            "of tenants or of a router.",
            PER_SECOND,
            Line(
                total(rate(engines("vllm:admission_rejections_total")), "reason"),
                "engine: {{reason}}",
            ),
            Line(
                total(rate(routers("octavo_router_rejections_total")), "reason"),
                "router: {{reason}}",
            ),
            width=12,
        ),
    ]


def _cache() -> list[Plot]:
    hits = total(rate(engines("vllm:prefix_cache_hits_total")), "engine")
    queries = total(rate(engines("vllm:prefix_cache_queries_total")), "engine")
    return [
        plot(
            "Blocks in use",
            "Blocks that running requests hold. Those that are only cached count as free.",
            SHARE,
            Line(engines("vllm:kv_cache_usage_perc"), "{{engine}}"),
        ),
        plot(
            "Prefix cache: hit rate",
            "Of the prompt tokens that were looked up, those that need not be computed.",
            SHARE,
            Line(share(hits, queries), "{{engine}}"),
        ),
        plot(
            "Preemptions",
            "Requests that gave up their blocks to others. Each is computed again: the pool is too "
            "small for what runs at once.",
            COUNT,
            Line(total(increase(engines("vllm:num_preemptions_total")), "engine"), "{{engine}}"),
        ),
    ]


def _step() -> list[Plot]:
    steps = engines("vllm:iteration_tokens_total_count")
    tokens = engines("vllm:iteration_tokens_total_sum")
    phases = total(rate(engines("octavo_step_phase_seconds_total")), "phase")
    return [
        plot(
            "Steps",
            "Steps in a second. None while requests run: the engine hangs.",
            PER_SECOND,
            Line(total(rate(steps), "engine"), "{{engine}}"),
        ),
        plot(
            "Step",
            "From a step's first command to its outputs. Every stream gets a token in each.",
            SECONDS,
            *_quantiles("octavo_step_seconds"),
        ),
        plot(
            "Where a step's time goes",
            "Seconds of a step by phase, on average. send runs beside the next step.",
            SECONDS,
            Line(per(phases, total(rate(steps))), "{{phase}}"),
            stacked=True,
        ),
        plot(
            "Tokens of a step",
            "On average. Few: one stream after the other; many: prompts, or many streams at once.",
            COUNT,
            Line(share(total(rate(tokens), "engine"), total(rate(steps), "engine")), "{{engine}}"),
        ),
        plot(
            "Cores in kernels",
            "CPU time inside kernels. Far below the engine's threads while requests run: it waits "
            "for something else.",
            COUNT,
            Line(total(rate(engines("octavo_kernel_cpu_seconds_total")), "engine"), "{{engine}}"),
        ),
        plot(
            "Guesses that were right",
            "Of the tokens that speculation guessed. Empty without --speculative-config.",
            SHARE,
            Line(
                share(
                    total(rate(engines("vllm:spec_decode_num_accepted_tokens_total")), "engine"),
                    total(rate(engines("vllm:spec_decode_num_draft_tokens_total")), "engine"),
                ),
                "{{engine}}",
            ),
        ),
    ]


def _fleet() -> list[Plot | Table]:
    return [
        plot(
            "Engines ready",
            "That each router may send requests to.",
            COUNT,
            Line(total(routers("octavo_router_engine_ready")), "ready, over all routers"),
            Line(f"count({routers('octavo_router_engine_ready')})", "known, over all routers"),
        ),
        plot(
            "Circuits that are not closed",
            "Engines that routers spare because requests failed on them.",
            COUNT,
            Line(
                total(
                    routers("octavo_router_engine_circuit", ',state!="closed"'),
                    "target",
                    "state",
                ),
                "{{target}} {{state}}",
            ),
        ),
        plot(
            "Engines lost under way",
            "Answers that went on on another engine, and requests that were sent again before "
            "their first token. Clients notice neither.",
            COUNT,
            Line(total(increase(routers("octavo_router_failovers_total"))), "failovers"),
            Line(total(increase(routers("octavo_router_retries_total"))), "retries"),
        ),
        plot(
            "In flight",
            "Requests that routers have sent to an engine and that have not ended.",
            COUNT,
            Line(total(routers("octavo_router_engine_requests_in_flight"), "target"), "{{target}}"),
            stacked=True,
        ),
        plot(
            "Time to an engine",
            "From a prompt that is ready to the engine that gets it, waits for one included.",
            SECONDS,
            *_router_quantiles("octavo_router_time_to_route_seconds"),
        ),
        plot(
            "Whole call",
            "From a call's arrival at a router to the last byte of its answer.",
            SECONDS,
            *_router_quantiles("octavo_router_request_duration_seconds"),
        ),
        table(
            "Who is who",
            "The engine that routers last met at each target: targets are theirs, engines are "
            "labels of the panels above.",
            f"count by (target, engine, model_name) ({routers('octavo_router_engine_info')})",
            hidden=("Time", "Value"),
        ),
    ]


def _quantiles(histogram: str) -> list[Line]:
    buckets = engines(f"{histogram}_bucket")
    return [Line(quantile(level, buckets), f"p{level * 100:g}") for level in (0.5, 0.95, 0.99)]


def _router_quantiles(histogram: str) -> list[Line]:
    buckets = routers(f"{histogram}_bucket")
    return [Line(quantile(level, buckets), f"p{level * 100:g}") for level in (0.5, 0.95, 0.99)]
