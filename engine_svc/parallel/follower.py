"""A rank other than 0: loads its part of the model, then computes what rank 0 says until it stops.

It has no requests, no scheduler and no address; all it knows of a step are the step's arrays, and
of an adapter its matrices.
"""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.devices import memory_to_take
from engine_svc.loader.open_model import open_model
from engine_svc.models.errors import ModelError
from engine_svc.parallel.adapter_wire import hear_adapter
from engine_svc.parallel.step_wire import ADAPTER, HEAD, STOP, decode, rest_length
from engine_svc.parallel.team import assemble
from engine_svc.planning.decoder import choose_computation
from engine_svc.worker.executor import WorkerLostError

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.loader.opened import OpenedModel
    from engine_svc.parallel.ranks import Ranks
    from engine_svc.parallel.team import Team
    from engine_svc.parallel.topology import Topology
    from kernels.backend import Decoder

log = logging.getLogger(__name__)


def follow(settings: Settings, topology: Topology) -> int:
    """Serves rank 0 until it ends; returns the exit code.

    Raises ModelError or ConfigError, worded for people, and WorkerLostError if the ranks do not
    meet.
    """
    opened = open_model(settings.model.path)
    team = assemble(settings, opened, topology)
    try:
        decoder = _load(settings, opened, team)
        log.info(
            "rank %d of %d is ready, with %.1f MB of weights",
            *(topology.rank, topology.num_ranks, decoder.weight_bytes / 1e6),
        )
        _leave_signals_to_rank_0(topology)
        compute(decoder, team.ranks)
    except WorkerLostError as error:
        log.error("rank %d ends, as another is gone: %s", topology.rank, error)
        return 1
    finally:
        team.processes.kill()
    return 0


def _load(settings: Settings, opened: OpenedModel, team: Team) -> Decoder:
    """This rank's decoder with its part of the KV pool, as large as rank 0 has planned it."""
    computation = choose_computation(settings, opened, collectives=team.ranks.collectives)
    on_gpu, share = computation.on_gpu, settings.cache.gpu_memory_utilization
    team.share(memory_to_take(on_gpu=on_gpu, utilization=share))
    try:
        decoder = computation.backend.load(
            opened.spec, opened.source, computation.precision, lambda _done, _total: None
        )
    except ValueError as error:  # a weight's shape, or a value in it, is wrong
        raise ModelError(str(error)) from error
    team.hold_together()
    num_blocks, block_size = team.ranks.hear(2).tolist()
    decoder.allocate_kv(num_blocks, block_size)
    return decoder


def compute(decoder: Decoder, ranks: Ranks) -> None:
    """Takes part in every step of rank 0 until that says stop. Raises WorkerLostError."""
    while (head := ranks.hear(HEAD))[0] != STOP:
        if head[0] == ADAPTER:
            slot, adapter = hear_adapter(head, ranks.hear)
            decoder.set_adapter(slot, None if adapter is None else decoder.pack_adapter(adapter))
            continue
        count = rest_length(head)
        rest = ranks.hear(count) if count else np.empty(0, dtype=np.int32)
        try:
            decoder.step(decode(head, rest))
        except RuntimeError as error:  # of torch: a peer is gone, or this rank cannot compute
            raise WorkerLostError(str(error)) from error
    ranks.leave()


def _leave_signals_to_rank_0(topology: Topology) -> None:
    """Goes on through a drain: whoever stops a terminal's or a pod's processes stops rank 0 too.

    Ctrl-C, or a terminal that goes, on a node of its own ends that node's first rank, and with it
    the engine.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if topology.local_rank != 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
