"""From settings to a loaded engine, in phases that are shown as they happen.

read config ─▶ plan memory ─▶ load weights ─▶ allocate KV ─▶ warm up
               └ refuses here, before any weight is read, what cannot fit
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.adapters.peft_directory import BaseModel
from engine_svc.adapters.setup import AdapterSetup, load_modules, max_rank_of
from engine_svc.backends import prepare_torch
from engine_svc.constraints.compiler import GrammarCompiler
from engine_svc.devices import memory_to_take
from engine_svc.loader.open_model import open_model
from engine_svc.memory import (
    MemoryPlan,
    format_bytes,
    plan_memory,
    summary_lines,
)
from engine_svc.models.errors import ModelError
from engine_svc.packed_weights import packed_weights_cache
from engine_svc.parallel.leader import leading
from engine_svc.parallel.topology import topology_of
from engine_svc.planning.decoder import (
    choose_computation,
    decoder_needs,
    pool_request,
    step_tokens,
)
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.scheduler import Scheduler
from engine_svc.scheduling.scheduler_config import SchedulerConfig
from engine_svc.service.submission import MAX_CHOICES, RequestLimits
from engine_svc.worker.executor import LocalExecutor, WorkerLostError
from engine_svc.worker.executor_ahead import AheadExecutor
from engine_svc.worker.model_runner import ModelRunner
from engine_svc.worker.sampler import pick_inputs
from engine_svc.worker.tensor_parallel import (
    TensorParallelAheadExecutor,
    TensorParallelExecutor,
)
from kernels.backend import AsyncDecoder, StepInputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_svc.config import Settings
    from engine_svc.loader.opened import OpenedModel
    from engine_svc.parallel.team import Team
    from engine_svc.progress import StartupPrinter
    from engine_svc.worker.executor import Executor
    from kernels.backend import Decoder
    from kernels.cpu.weight_cache import WeightCache

    Watch = Callable[[Callable[[str], object]], object]

_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """All that serving needs, ready to run."""

    scheduler: Scheduler
    kv: KVCacheManager
    executor: Executor
    limits: RequestLimits
    model_info: pb.GetModelInfoResponse
    grammars: GrammarCompiler
    adapters: AdapterSetup | None  # None where the engine takes none
    # Has a function told when what computes is lost, and how, also between steps.
    watch: Watch


def load_engine(settings: Settings, printer: StartupPrinter) -> LoadedEngine:
    """Loads the model; with several ranks, as rank 0.

    Raises ModelError, ConfigError, DoesNotFitError or WorkerLostError, worded for people.
    """
    settings.batch.speculation()  # refused now, if wrong, rather than after the weights are read
    topology = topology_of(settings.parallel, os.environ)
    with printer.phase("reading config"):
        opened = open_model(settings.model.path)
    if topology.num_ranks == 1:
        return _load(settings, opened, None, printer)
    prepare_torch("ranks talk through torch.distributed")
    from engine_svc.parallel.team import assemble

    with printer.phase("meeting ranks"):
        team = assemble(settings, opened, topology)
    try:
        return _load(settings, opened, team, printer)
    except WorkerLostError as error:
        raise WorkerLostError(team.fate(error)) from error
    except BaseException:
        team.processes.kill()
        raise


def _load(
    settings: Settings, opened: OpenedModel, team: Team | None, printer: StartupPrinter
) -> LoadedEngine:
    with printer.phase("planning memory"):
        if team is None:
            cache = _packed_weights_cache(settings, opened, printer)
            computation = choose_computation(settings, opened, cache)
        else:
            computation = choose_computation(settings, opened, collectives=team.ranks.collectives)
        batched_tokens = step_tokens(settings, opened)
        part = None if team is None else team.shard.spec
        needs = decoder_needs(settings, opened, computation, part)
        pool = replace(pool_request(settings, opened), takes_all=computation.on_gpu)
        available = memory_to_take(
            on_gpu=computation.on_gpu, utilization=settings.cache.gpu_memory_utilization
        )
        if team is not None:
            available = team.share(available)
        plan = plan_memory(needs, available, pool)
    decoder: Decoder
    with printer.loading("loading weights") as on_progress:
        try:
            decoder = computation.backend.load(
                opened.spec, opened.source, computation.precision, on_progress
            )
        except ValueError as error:  # a weight's shape, or a value in it, is wrong
            raise ModelError(str(error)) from error
    with printer.phase("allocating KV"):
        if team is not None:
            decoder = leading(decoder, team.ranks)
            team.hold_together()
        decoder.allocate_kv(plan.num_blocks, plan.block_size)
    adapters = _adapters(settings, opened, decoder, printer)
    with printer.phase("warming up"):
        _warm_up(decoder, plan.block_size)
        runner = ModelRunner(
            decoder,
            vocab_size=opened.spec.vocab_size,
            block_size=plan.block_size,
            max_num_seqs=settings.batch.max_num_seqs,
            max_model_len=plan.max_model_len,
            max_num_batched_tokens=batched_tokens,
        )
        # What is loaded stays for good; the collector need not look at it again.
        gc.collect()
        gc.freeze()
    spec = opened.spec if team is None else team.shard.spec
    notices = [*opened.notices, *plan.notices, *computation.notices]
    summary = [
        f"model: {served_names(settings)[0]} ({opened.family}, {opened.format}), "
        f"{opened.num_parameters / 1e6:.1f} M parameters, "
        f"{format_bytes(opened.file_bytes)} on disk",
        computation.description,
        *([] if team is None else [team.summary]),
        *summary_lines(plan, spec, computation.kv_element_bytes),
        *([] if adapters is None else adapters.summary),
        *(f"note: {notice}" for notice in notices),
    ]
    kv = KVCacheManager(plan.num_blocks, plan.block_size)
    limits = RequestLimits(
        max_model_len=plan.max_model_len,
        vocab_size=opened.spec.vocab_size,
        eos_token_ids=opened.eos_token_ids,
        max_logprobs=settings.requests.max_logprobs,
        accepts_priority=settings.batch.accepts_priority,
        tokenizer_sha256=opened.tokenizer_sha256,
        weights_version=opened.weights_version,
    )
    executor, watch = _executor(runner, decoder, team)
    return LoadedEngine(
        scheduler=Scheduler(_scheduler_config(settings, plan, batched_tokens), kv, time.monotonic),
        kv=kv,
        executor=executor,
        limits=limits,
        model_info=_model_info(settings, opened, plan, limits, summary),
        grammars=GrammarCompiler(settings.model.path, opened.spec.vocab_size, opened.eos_token_ids),
        adapters=adapters,
        watch=watch,
    )


def _executor(runner: ModelRunner, decoder: Decoder, team: Team | None) -> tuple[Executor, Watch]:
    """What computes steps, one ahead where the decoder, the runner's, computes by itself."""
    if isinstance(decoder, AsyncDecoder):
        ahead = AheadExecutor(runner, decoder)
        if team is None:
            return ahead, _watch_nothing
        all_ahead = TensorParallelAheadExecutor(ahead, team.ranks, team.processes)
        return all_ahead, all_ahead.watch
    local = LocalExecutor(runner)
    if team is None:
        return local, _watch_nothing
    all_ranks = TensorParallelExecutor(local, team.ranks, team.processes)
    return all_ranks, all_ranks.watch


def _adapters(
    settings: Settings, opened: OpenedModel, decoder: Decoder, printer: StartupPrinter
) -> AdapterSetup | None:
    """What serves adapters, those of the flags loaded. Raises ModelError naming one that cannot."""
    config = settings.adapters
    if not config.enabled:
        return None
    served, path = served_names(settings), settings.model.path
    setup = AdapterSetup(
        base=BaseModel(opened.spec, opened.family, (*served, path.name, path.stem)),
        served_names=served,
        num_slots=config.num_slots,
        max_rank=max_rank_of(config),
        directory=config.directory,
        pack=decoder.pack_adapter,
    )
    if not config.modules:
        return setup
    with printer.phase("loading adapters"):
        return replace(setup, loaded=load_modules(config, setup, decoder))


def _watch_nothing(on_lost: Callable[[str], object]) -> None:
    """What computes is in this process, and is never lost alone."""


def _packed_weights_cache(
    settings: Settings, opened: OpenedModel, printer: StartupPrinter
) -> WeightCache | None:
    if not settings.model.keeps_packed_weights:
        return None
    return packed_weights_cache(
        settings.model.path, opened.weights_version, lambda text: printer.line(f"note: {text}")
    )


def served_names(settings: Settings) -> tuple[str, ...]:
    """Names that clients ask for."""
    return settings.model.served_names or (settings.model.path.stem,)


def _scheduler_config(settings: Settings, plan: MemoryPlan, batched_tokens: int) -> SchedulerConfig:
    return SchedulerConfig(
        fair_share=settings.batch.accepts_priority,
        max_num_seqs=settings.batch.max_num_seqs,
        max_num_batched_tokens=batched_tokens,
        max_model_len=plan.max_model_len,
        max_num_queued_reqs=settings.batch.max_num_queued_reqs,
        max_num_queued_tokens=settings.batch.max_num_queued_tokens,
        enable_prefix_caching=settings.cache.prefix_caching,
        enable_chunked_prefill=settings.batch.chunked_prefill,
        target_step_seconds=settings.batch.target_step_seconds,
        speculation=settings.batch.speculation(),
    )


def _warm_up(decoder: Decoder, block_size: int) -> None:
    """Runs a small prefill and a decode, so that the first request does not pay for what backends
    set up lazily. Block 0 gets their keys and values, which nothing will ever look for."""
    for num_tokens in (min(_WARM_UP_TOKENS, block_size), 1):
        positions = np.arange(num_tokens, dtype=np.int32)
        decoder.step(
            StepInputs(
                token_ids=np.zeros(num_tokens, dtype=np.int32),
                positions=positions,
                slot_mapping=positions,
                query_start_loc=np.array([0, num_tokens], dtype=np.int32),
                seq_lens=np.array([num_tokens], dtype=np.int32),
                block_tables=np.zeros((1, 1), dtype=np.int32),
                picks=pick_inputs((), (), ()),
                logits_rows=np.array([num_tokens - 1], dtype=np.int32),
            )
        )


def _model_info(
    settings: Settings,
    opened: OpenedModel,
    plan: MemoryPlan,
    limits: RequestLimits,
    summary: list[str],
) -> pb.GetModelInfoResponse:
    defaults = opened.default_sampling if settings.model.use_generation_config else {}
    return pb.GetModelInfoResponse(
        served_names=served_names(settings),
        source=str(settings.model.path),
        instance_id=settings.service.instance_id,
        max_model_len=limits.max_model_len,
        vocab_size=limits.vocab_size,
        eos_token_ids=sorted(limits.eos_token_ids),
        tokenizer_sha256=limits.tokenizer_sha256,
        weights_version=limits.weights_version,
        block_size=plan.block_size,
        num_blocks=plan.num_blocks,
        max_num_seqs=settings.batch.max_num_seqs,
        max_n=MAX_CHOICES,
        max_logprobs=limits.max_logprobs,
        ready_unix_seconds=int(time.time()),
        summary=summary,
        max_num_queued_reqs=settings.batch.max_num_queued_reqs,
        default_sampling=_sampling_message(defaults),
        generates=True,
        embedding_size=opened.spec.hidden_size,
    )


def _sampling_message(defaults: Mapping[str, float]) -> pb.SamplingParams:
    message = pb.SamplingParams()
    for name, value in defaults.items():
        setattr(message, name, int(value) if name == "top_k" else value)
    return message
