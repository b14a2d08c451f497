"""The engine's command-line flags, declared once for every command that starts an engine.

`octavo serve` parses them, turns the values back into arguments with `engine_args` and hands those
to its child `python -m engine_svc`, which parses the same declarations. Names and meanings are
vLLM's where vLLM has the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from octavo.flag_lists import Flags, arguments, environment_name, with_flags
from octavo.flag_types import FiniteRange, ListenAddress, Name
from octavo.logs import LOG_FLAGS
from octavo.lora_flags import LORA_FLAGS
from octavo.tls import SERVER_TLS_FLAGS
from octavo.tracing import TRACING_FLAGS

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MAX_TOKENS = 1 << 24  # no served context or step comes near it, and sums stay far from overflow
_MAX_BYTES = 1 << 48
QUANTIZED_CHECKPOINTS = ("awq", "gptq", "fp8", "compressed-tensors")
"""Values of --quantization that name how a checkpoint has to be quantised."""

_ENGINE_FLAGS: Flags = (
    (
        "--served-model-name",
        {
            "multiple": True,
            "type": Name(),
            "help": "Name that clients ask for; repeat it for aliases, the first is shown. "
            "Default: the model as it was named on the command line.",
        },
    ),
    (
        "--device",
        {
            "type": click.Choice(["auto", "cpu", "cuda"]),
            "default": "auto",
            "help": "What computes. auto: an NVIDIA GPU if torch finds one, else the CPU.",
        },
    ),
    (
        "--batch-invariant/--no-batch-invariant",
        {
            "default": True,
            "help": "Answers have the same bits whatever is computed beside them. Off: on a GPU "
            "cuBLAS multiplies matrices, which may be faster, and near ties between tokens may "
            "fall otherwise, also where another engine goes on with an answer. On a CPU they are "
            "invariant in any case.",
        },
    ),
    (
        "--enforce-eager/--no-enforce-eager",
        {
            "default": False,
            "help": "On a GPU, launch decode steps kernel by kernel rather than capture graphs of "
            "them: a quicker start and less memory, and slower tokens. No effect on a CPU.",
        },
    ),
    (
        "--dtype",
        {
            "type": click.Choice(["auto", "bfloat16", "float16", "half", "float32", "float"]),
            "default": "auto",
            "help": "Type of activations, KV cache and dense weights. auto: float32 where the "
            "checkpoint is in it, else bfloat16. In all but bfloat16 torch computes, several times "
            "slower.",
        },
    ),
    (
        "--quantization",
        {
            "type": click.Choice(["auto", "none", "int8", "int4", *QUANTIZED_CHECKPOINTS]),
            "default": "auto",
            "help": "Precision of the weights. auto: as the files have them. none: --dtype, "
            "quantised files too. int8: a scale for each output. int4: a scale for each 32 "
            "weights of a layer; embeddings and head in int8. awq, gptq, fp8, "
            "compressed-tensors: auto, for a checkpoint that has to be quantised so.",
        },
    ),
    (
        "--packed-weights-cache/--no-packed-weights-cache",
        {
            "default": True,
            "help": "Keep weights that took work to pack in packed/ of the cache directory "
            "(OCTAVO_CACHE), at most 16 GiB, so that the next start only reads them.",
        },
    ),
    (
        "--max-model-len",
        {
            "type": click.IntRange(1, _MAX_TOKENS),
            "help": "Most tokens of prompt and output together. Default: the model's own, or what "
            "the KV pool holds if that is less.",
        },
    ),
    (
        "--max-num-seqs",
        {
            "type": click.IntRange(1, 4096),
            "default": 32,
            "help": "Most choices that run together.",
        },
    ),
    (
        "--max-num-batched-tokens",
        {
            "type": click.IntRange(1, _MAX_TOKENS),
            "help": "Most tokens computed in one step. Default: 512, or the context length "
            "without chunked prefill.",
        },
    ),
    (
        "--target-step-seconds",
        {
            "type": FiniteRange(0.001, 60.0),
            "default": 0.1,
            "help": "Duration that a step is sized for, so that a long prompt does not stall "
            "running streams.",
        },
    ),
    (
        "--block-size",
        {"type": click.IntRange(1, 256), "default": 16, "help": "Tokens in a KV block."},
    ),
    (
        "--kv-cache-dtype",
        {
            "type": click.Choice(["auto", "int8", "fp8"]),
            "default": "auto",
            "help": "Type of the KV cache. auto: --dtype. int8: half of that, a scale for each "
            "token and head. fp8: half, on GPUs only.",
        },
    ),
    (
        "--kv-cache-memory-bytes",
        {
            "type": click.IntRange(1, _MAX_BYTES),
            "help": "Bytes of the KV pool. Default: half of the memory left beside weights and "
            "activations, at most 4 GiB and no more than --max-num-seqs full contexts use.",
        },
    ),
    (
        "--num-gpu-blocks-override",
        {
            "type": click.IntRange(1, _MAX_TOKENS),
            "help": "Blocks of the KV pool, whatever the device; overrides "
            "--kv-cache-memory-bytes.",
        },
    ),
    (
        "--gpu-memory-utilization",
        {
            "type": FiniteRange(0.0, 1.0, min_open=True),
            "default": 0.9,
            "help": "Share of a GPU's free memory that may be used. No effect on a CPU.",
        },
    ),
    (
        "--enable-prefix-caching/--no-enable-prefix-caching",
        {"default": True, "help": "Reuse KV blocks of common prompt prefixes."},
    ),
    (
        "--enable-chunked-prefill/--no-enable-chunked-prefill",
        {"default": True, "help": "Compute long prompts in several steps."},
    ),
    (
        "--scheduling-policy",
        {
            "type": click.Choice(["fcfs", "priority"]),
            "default": "priority",
            "help": "priority: lower values first, then turns between tenants by tokens, then by "
            "arrival. fcfs: by arrival alone; a request that sets a priority is refused.",
        },
    ),
    (
        "--speculative-config",
        {
            "metavar": "JSON",
            "help": "Guess at next tokens from the request's own n-grams and verify several in a "
            "step; answers stay the same. For example "
            '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4,'
            '"prompt_lookup_min":2}.',
        },
    ),
    (
        "--max-num-queued-reqs",
        {
            "type": click.IntRange(1, 1_000_000),
            "default": 1024,
            "help": "Most choices that wait; beyond, requests are refused with RESOURCE_EXHAUSTED.",
        },
    ),
    (
        "--max-num-queued-tokens",
        {
            "type": click.IntRange(1, 1 << 32),
            "default": 1 << 20,
            "help": "Most uncomputed tokens of waiting choices; beyond, requests are refused.",
        },
    ),
    (
        "--max-logprobs",
        {
            "type": click.IntRange(0, 1024),
            "default": 20,
            "help": "Most log-probabilities per position that a request may ask for.",
        },
    ),
    (
        "--seed",
        {
            "type": click.IntRange(0, (1 << 64) - 1),
            "help": "Makes the seeds of requests that give none repeat from run to run, in order "
            "of arrival. Default: they are drawn from the system's entropy.",
        },
    ),
    (
        "--generation-config",
        {
            "type": click.Choice(["auto", "vllm"]),
            "default": "auto",
            "help": "Sampling defaults. auto: the model's generation_config. vllm: neutral ones.",
        },
    ),
    (
        "--tensor-parallel-size",
        {
            "type": click.IntRange(1, 1024),
            "default": 1,
            "help": "Ranks, processes that each hold a part of every matrix and of the KV cache; "
            "sizes of memory are then of each rank. On CPUs torch computes; a GPU is one rank's.",
        },
    ),
    (
        "--threads",
        {
            "type": click.IntRange(1, 1024),
            "help": "Threads that compute, in each rank. Default: the cores this process may use, "
            "shared among the ranks of its node.",
        },
    ),
    (
        "--shutdown-timeout",
        {
            "type": FiniteRange(0.0, 86_400.0),
            "default": 30.0,
            "help": "Seconds that running requests get to finish after SIGTERM.",
        },
    ),
    (
        "--stall-timeout",
        {
            "type": FiniteRange(0.1, 86_400.0),
            "default": 60.0,
            "help": "Seconds without progress of a pending step after which health fails.",
        },
    ),
    *LORA_FLAGS,
    *TRACING_FLAGS,
    *LOG_FLAGS,
)

# For commands that are an engine, rather than start one: serve chooses these for its child.
_PROCESS_FLAGS: Flags = (
    (
        "--listen",
        {
            "type": ListenAddress(),
            "default": "127.0.0.1:50061",
            "help": "Where to serve gRPC: host:port or unix:/path.",
        },
    ),
    *SERVER_TLS_FLAGS,
    (
        "--nnodes",
        {
            "type": click.IntRange(1, 1024),
            "default": 1,
            "help": "Nodes that the ranks of --tensor-parallel-size are on, as many on each; the "
            "same command runs on all.",
        },
    ),
    (
        "--node-rank",
        {
            "type": click.IntRange(0),
            "default": 0,
            "help": "This node's number. Node 0 serves, the others compute for it.",
        },
    ),
    (
        "--master-addr",
        {"metavar": "HOST", "help": "Node 0 as the others reach it, where the ranks meet."},
    ),
    (
        "--master-port",
        {
            "type": click.IntRange(1, 65535),
            "help": "Port of --master-addr. On one node a free one is taken.",
        },
    ),
    (
        "--local-rank",
        {
            "type": click.IntRange(0),
            "hidden": True,
            "help": "The rank on its node, for processes that a node's first rank starts.",
        },
    ),
    (
        "--exit-with-parent",
        {
            "type": click.IntRange(1),
            "metavar": "PID",
            "help": "Id of the process that starts this one; when it ends, this one is killed.",
        },
    ),
)

# What `octavo plan` takes beside an engine's flags.
_PLAN_FLAGS: Flags = (
    (
        "--memory",
        {
            "metavar": "SIZE",
            "help": "Memory that is free for the model, for example 16GiB, or 2GB; of each rank. "
            "The process itself takes 0.1 GiB beside it, with torch 0.4. Default: what this "
            "machine, or the cgroup of this process, has free.",
        },
    ),
    (
        "--gpu",
        {
            "metavar": "NAME",
            "help": "Plan for the memory of a GPU, for example H100, less --gpu-memory-utilization."
            " It need not be in this machine.",
        },
    ),
    (
        "--lengths",
        {
            "metavar": "TOKENS,…",
            "help": "Lengths of requests to count, for example 512,4096. Default: a few, up to the "
            "context length.",
        },
    ),
    ("--json", {"is_flag": True, "help": "Print JSON instead of tables."}),
)


def engine_options(command: _Command) -> _Command:
    """Decorates a click command with every flag that shapes an engine."""
    return with_flags(_ENGINE_FLAGS, command)


def telemetry_options(command: _Command) -> _Command:
    """Decorates a click command that is no engine with the flags that both services have."""
    return with_flags((*TRACING_FLAGS, *LOG_FLAGS), command)


def process_options(command: _Command) -> _Command:
    """Decorates a click command that becomes an engine with where it listens and when it ends."""
    return with_flags(_PROCESS_FLAGS, command)


def plan_options(command: _Command) -> _Command:
    """Decorates a click command that plans an engine rather than runs it."""
    return with_flags(_PLAN_FLAGS, engine_options(command))


def plan_args(params: Mapping[str, Any]) -> list[str]:
    """As `engine_args`, for the flags of `plan_options`."""
    return arguments(_PLAN_FLAGS + _ENGINE_FLAGS, params)


def engine_args(params: Mapping[str, Any]) -> list[str]:
    """The arguments that make an engine parse `params` again, for a child process.

    Keys are click's parameter names; absent and None values are left out, and so are keys that are
    not the engine's.
    """
    return arguments(_ENGINE_FLAGS, params)


def process_args(params: Mapping[str, Any]) -> list[str]:
    """The same for the flags of `process_options`."""
    return arguments(_PROCESS_FLAGS, params)


def without_process_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for an engine that is told by arguments where it listens and how.

    The variables of those flags may be meant for the process that starts it, which has some of the
    same names.
    """
    names = {environment_name(declaration) for declaration, _ in _PROCESS_FLAGS}
    return {name: text for name, text in environment.items() if name not in names}
