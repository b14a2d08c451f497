"""What `octavo plan` found, as one record that prints as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engine_svc.backends import choose_encoder_backend
from engine_svc.config import ConfigError
from engine_svc.loader.encoder_directory import OpenedEncoder
from engine_svc.memory import DoesNotFitError, MemoryPlan, blocks_for, plan_encoder_memory
from engine_svc.planning.advice import Way, ways_to_fit
from engine_svc.planning.at_hand import has_weights
from engine_svc.planning.encoder import check_flags, max_input_tokens, max_step_tokens_of
from engine_svc.planning.scenario import Scenario, Sizes, fit, measure
from engine_svc.processor import usable_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_svc.config import Settings
    from engine_svc.loader.opened import OpenedModel
    from engine_svc.planning.target import Target

_LENGTHS = (512, 2048, 8192, 32_768)  # tokens
_MOST_TOKENS = 1 << 24
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LengthFit:
    """Requests of one length: KV of each, and how many fit; None where they are too long."""

    tokens: int
    kv_bytes: int
    max_concurrency: float | None
    at_once: int  # the same, whole, and no more than --max-num-seqs


@dataclass(frozen=True, slots=True)
class KvReport:
    """The KV cache of a rank."""

    bytes_per_token: int
    arithmetic: str
    block_size: int  # tokens
    num_blocks: int
    pool_tokens: int
    pool_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """All that a plan says; sizes are in bytes, and of one rank."""

    model: str
    family: str
    format: str
    weights_at_hand: bool
    num_parameters: int
    computation: str
    target: str
    available_bytes: int
    available_bound: str
    tensor_parallel_size: int
    fits: bool
    problem: str | None
    weight_bytes: int
    activation_bytes: int
    adapter_bytes: int  # of all that may be loaded together
    step_tokens: int
    kv: KvReport | None  # an encoder has none
    max_model_len: int  # tokens; 0 where nothing fits
    max_num_seqs: int
    lengths: tuple[LengthFit, ...]
    ways: tuple[Way, ...]  # to make it fit, or to give it its whole context
    notices: tuple[str, ...]

    @property
    def left_bytes(self) -> int:
        """What the plan leaves free."""
        pool = self.kv.pool_bytes if self.kv else 0
        fixed = self.weight_bytes + self.activation_bytes + self.adapter_bytes
        return self.available_bytes - fixed - pool

    def as_json(self) -> dict[str, Any]:
        """The record with names and numbers only."""
        return asdict(self) | {"left_bytes": self.left_bytes}


def parse_lengths(text: str | None) -> tuple[int, ...]:
    """The numbers of "512,4096"; none for None. Raises ConfigError."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= _MOST_TOKENS for part in parts):
        raise ConfigError(f"--lengths {text!r} are no numbers of tokens such as 512,4096")
    return tuple(sorted({int(part) for part in parts}))


def report(
    settings: Settings,
    opened: OpenedModel | OpenedEncoder,
    target: Target,
    *,
    num_ranks: int,
    lengths: Sequence[int],
) -> Report:
    """Plans a model for a memory. Raises ConfigError for flags that do not go together."""
    if isinstance(opened, OpenedEncoder):
        if num_ranks > 1:
            raise ConfigError("--tensor-parallel-size: an encoder is held whole")
        return _encoder_report(settings, opened, target, lengths)
    sizes = measure(Scenario(settings, opened, target, num_ranks))
    plan, problem = None, None
    try:
        plan = fit(sizes)
    except DoesNotFitError as error:
        problem = str(error)
    block_size, num_blocks = settings.cache.block_size, plan.num_blocks if plan else 0
    max_len = plan.max_model_len if plan else 0
    return Report(
        **_common(settings, opened, target, problem),
        computation=sizes.description,
        tensor_parallel_size=num_ranks,
        weight_bytes=sizes.needs.weights,
        activation_bytes=sizes.needs.activations,
        adapter_bytes=sizes.needs.adapters,
        step_tokens=sizes.step_tokens,
        kv=KvReport(
            sizes.kv_per_token,
            sizes.kv_arithmetic,
            block_size,
            num_blocks,
            num_blocks * block_size,
            num_blocks * sizes.needs.kv_per_block,
        ),
        max_model_len=max_len,
        lengths=tuple(
            _length_fit(tokens, sizes, plan)
            for tokens in lengths or _default_lengths(max_len or sizes.scenario.wanted_len)
        ),
        ways=ways_to_fit(sizes, plan),
        notices=(*sizes.notices, *(plan.notices if plan else ())),
    )


def _common(
    settings: Settings, opened: OpenedModel | OpenedEncoder, target: Target, problem: str | None
) -> dict[str, Any]:
    path = settings.model.path
    return {
        "model": settings.model.served_names[0] if settings.model.served_names else path.name,
        "family": opened.family,
        "format": opened.format,
        "weights_at_hand": has_weights(opened),
        "num_parameters": opened.num_parameters,
        "target": target.name,
        "available_bytes": target.available.num_bytes,
        "available_bound": target.available.bound,
        "fits": problem is None,
        "problem": problem,
        "max_num_seqs": settings.batch.max_num_seqs,
    }


def _default_lengths(max_len: int) -> tuple[int, ...]:
    return (*(tokens for tokens in _LENGTHS if tokens < max_len), max_len)


def _length_fit(tokens: int, sizes: Sizes, plan: MemoryPlan | None) -> LengthFit:
    most = sizes.scenario.settings.batch.max_num_seqs
    blocks = blocks_for(tokens, sizes.scenario.settings.cache.block_size)
    kv_bytes = blocks * sizes.needs.kv_per_block
    if plan is None or tokens > plan.max_model_len:
        return LengthFit(tokens, kv_bytes, None, 0)
    concurrency = plan.concurrency(tokens)
    return LengthFit(tokens, kv_bytes, concurrency, min(int(concurrency), most))


def _encoder_report(
    settings: Settings, opened: OpenedEncoder, target: Target, lengths: Sequence[int]
) -> Report:
    """An input is computed whole and kept nowhere: a step holds as many as its tokens allow."""
    check_flags(settings)
    max_len = max_input_tokens(settings, opened)
    step_tokens = max_step_tokens_of(settings, max_len)
    backend = choose_encoder_backend(settings.model.threads or usable_cores())
    needs = backend.plan(opened.spec, max_num_tokens=step_tokens)
    problem: str | None = None
    ways: tuple[Way, ...] = ()
    try:
        plan_encoder_memory(needs, target.available)
    except DoesNotFitError as error:
        problem = str(error)
        need = -(-(needs.weights + needs.activations) // _MIB)
        ways = (Way(f"memory of {need}MiB", needs.weights, max_len, 0),)
    most = settings.batch.max_num_seqs
    return Report(
        **_common(settings, opened, target, problem),
        computation=f"computing in float32: {backend.description}",
        tensor_parallel_size=1,
        weight_bytes=needs.weights,
        activation_bytes=needs.activations,
        adapter_bytes=0,
        step_tokens=step_tokens,
        kv=None,
        max_model_len=max_len,
        lengths=tuple(
            LengthFit(tokens, 0, step_tokens / tokens, min(step_tokens // tokens, most))
            if tokens <= max_len and problem is None
            else LengthFit(tokens, 0, None, 0)
            for tokens in lengths or _default_lengths(max_len)
        ),
        ways=ways,
        notices=opened.notices,
    )
