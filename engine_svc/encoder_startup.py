"""From settings to a loaded encoder, in phases that are shown as they happen.

read config ─▶ plan memory ─▶ load weights ─▶ warm up
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import psutil
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.backends import choose_encoder_backend
from engine_svc.loader.encoder_directory import open_encoder
from engine_svc.memory import available_memory, format_bytes, plan_encoder_memory
from engine_svc.models.errors import ModelError
from engine_svc.planning.encoder import check_flags, max_input_tokens, max_step_tokens_of
from engine_svc.processor import usable_cores
from engine_svc.service.embedding import EmbedLimits
from engine_svc.startup import served_names
from kernels.encoder import ClassifierSpec, EncoderInputs

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.loader.encoder_directory import OpenedEncoder
    from engine_svc.progress import StartupPrinter
    from kernels.encoder import Encoder, EncoderSpec

_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """All that serving needs, ready to run."""

    encoder: Encoder
    max_step_tokens: int
    limits: EmbedLimits
    model_info: pb.GetModelInfoResponse


def load_encoder(settings: Settings, printer: StartupPrinter) -> LoadedEncoder:
    """Loads the model. Raises ModelError, ConfigError or DoesNotFitError, worded for people."""
    check_flags(settings)
    with printer.phase("reading config"):
        opened = open_encoder(settings.model.path)
        max_len = max_input_tokens(settings, opened)
        max_step_tokens = max_step_tokens_of(settings, max_len)
        backend = choose_encoder_backend(settings.model.threads or usable_cores())
    with printer.phase("planning memory"):
        needs = backend.plan(opened.spec, max_num_tokens=max_step_tokens)
        memory = plan_encoder_memory(needs, available_memory(psutil.virtual_memory().available))
    with printer.loading("loading weights") as on_progress:
        try:
            encoder = backend.load(opened.spec, opened.source, on_progress)
        except ValueError as error:  # a weight's shape, or a value in it, is wrong
            raise ModelError(str(error)) from error
    with printer.phase("warming up"):
        _warm_up(encoder, min(max_len, _WARM_UP_TOKENS))
        # What is loaded stays for good; the collector need not look at it again.
        gc.collect()
        gc.freeze()
    summary = [
        f"model: {served_names(settings)[0]} ({opened.family}, {opened.format}), "
        f"{opened.num_parameters / 1e6:.1f} M parameters, "
        f"{format_bytes(opened.file_bytes)} on disk",
        f"computing in float32: {backend.description}",
        memory,
        _output_line(opened.spec),
        f"inputs of at most {max_len:,} tokens, {max_step_tokens:,} tokens and "
        f"{settings.batch.max_num_seqs} inputs a step",
        *(f"note: {notice}" for notice in opened.notices),
    ]
    limits = _limits(settings, opened, max_len)
    return LoadedEncoder(
        encoder, max_step_tokens, limits, _model_info(settings, opened, limits, summary)
    )


def _warm_up(encoder: Encoder, num_tokens: int) -> None:
    """Runs a small step, so that the first request does not pay for what is set up lazily."""
    positions = np.arange(num_tokens, dtype=np.int32)
    zeros = np.zeros_like(positions)
    encoder.encode(EncoderInputs(zeros, positions, zeros, np.array([0, num_tokens])))


def _output_line(spec: EncoderSpec) -> str:
    output = spec.output
    if isinstance(output, ClassifierSpec):
        labels = f"{output.num_labels} label{'s' * (output.num_labels > 1)}"
        return f"scores: {labels}, activation {output.scores}"
    modes = " and ".join(output.modes)
    normalized = "normalised" if output.normalize else "not normalised"
    return f"embeddings: {spec.output_size} elements, pooled by {modes}, {normalized}"


def _limits(settings: Settings, opened: OpenedEncoder, max_len: int) -> EmbedLimits:
    scores = isinstance(opened.spec.output, ClassifierSpec)
    return EmbedLimits(
        task=pb.EMBED_TASK_SCORE if scores else pb.EMBED_TASK_EMBEDDING,
        max_model_len=max_len,
        vocab_size=opened.spec.vocab_size,
        has_segments=opened.spec.num_token_types > 1,
        accepts_priority=settings.batch.accepts_priority,
        tokenizer_sha256=opened.tokenizer_sha256,
        weights_version=opened.weights_version,
    )


def _model_info(
    settings: Settings, opened: OpenedEncoder, limits: EmbedLimits, summary: list[str]
) -> pb.GetModelInfoResponse:
    size = opened.spec.output_size
    scores = limits.task == pb.EMBED_TASK_SCORE
    return pb.GetModelInfoResponse(
        served_names=served_names(settings),
        source=str(settings.model.path),
        instance_id=settings.service.instance_id,
        max_model_len=limits.max_model_len,
        vocab_size=limits.vocab_size,
        tokenizer_sha256=limits.tokenizer_sha256,
        weights_version=limits.weights_version,
        max_num_seqs=settings.batch.max_num_seqs,
        ready_unix_seconds=int(time.time()),
        summary=summary,
        max_num_queued_reqs=settings.batch.max_num_queued_reqs,
        embedding_size=0 if scores else size,
        num_labels=size if scores else 0,
    )
