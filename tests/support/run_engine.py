"""Runs a whole engine (flags, loader, scheduler, back end) in this thread, without its services."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from octavo.flags import engine_options, process_options

from engine_svc import encoder_startup
from engine_svc.config import Settings, settings_from
from engine_svc.encoder_startup import LoadedEncoder
from engine_svc.progress import StartupPrinter
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import Request
from engine_svc.startup import LoadedEngine, load_engine

_FLAGS = engine_options(process_options(click.command()(lambda: None)))
_keys = itertools.count()


def load(model: Path, *args: str) -> LoadedEngine:
    """The engine that `octavo engine MODEL ARGS` would run."""
    return load_engine(settings_of(model, *args), StartupPrinter())


def load_encoder(model: Path, *args: str) -> LoadedEncoder:
    """The same for a model that embeds or scores."""
    return encoder_startup.load_encoder(settings_of(model, *args), StartupPrinter())


def settings_of(model: Path, *args: str) -> Settings:
    """What an engine makes of its command line."""
    return settings_from(model, _FLAGS.make_context("engine", list(args)).params)


def greedy_tokens(
    engine: LoadedEngine,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    stop: bool = False,
    adapter_slot: int = -1,
) -> list[list[int]]:
    """Output ids of prompts that run together; `stop` is for the model's own end tokens."""
    ends = engine.limits.eos_token_ids if stop else frozenset()
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, eos_token_ids=ends)
    requests = [
        Request(
            next(_keys),
            "r",
            0,
            tuple(prompt),
            sampling,
            arrival=0.0,
            adapter_slot=adapter_slot,
        )
        for prompt in prompts
    ]
    for request in requests:
        engine.scheduler.add(request)
    while (batch := engine.scheduler.schedule()) is not None:
        engine.scheduler.update(batch, engine.executor.submit(batch), 0.0)
    engine.scheduler.check_integrity()
    return [list(request.output_token_ids) for request in requests]


def embeddings(
    engine: LoadedEngine, prompts: Sequence[Sequence[int]]
) -> list[npt.NDArray[np.float32]]:
    """Vectors of prompts that run together, on a model that generates."""
    sampling = SamplingParams(max_tokens=0)
    requests = [
        Request(next(_keys), "r", 0, tuple(prompt), sampling, arrival=0.0, embeds=True)
        for prompt in prompts
    ]
    engine.scheduler.add_group(requests)
    found = {}
    while (batch := engine.scheduler.schedule()) is not None:
        outputs = engine.scheduler.update(batch, engine.executor.submit(batch), 0.0)
        found |= {item.key: item.vector for item in outputs.embeddings}
    engine.scheduler.check_integrity()
    return [found[request.key] for request in requests]
