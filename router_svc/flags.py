"""Flags of the commands that are a router. Each is also read from OCTAVO_<NAME>."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from octavo.flag_lists import Flags, with_flags
from octavo.tls import SERVER_TLS_FLAGS

from router_svc.edge import EDGE_FLAGS
from router_svc.engines.dialer import ENGINE_TLS_FLAGS
from router_svc.fleet.policies import POLICIES
from router_svc.parsing.formats import REASONING_FORMATS, TOOL_FORMATS

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ROUTER_FLAGS: Flags = (
    ("--host", {"default": "127.0.0.1", "help": "Address to listen on; 0.0.0.0 is all."}),
    ("--port", {"type": click.IntRange(0, 65535), "default": 8000, "help": "HTTP port."}),
    ("--grpc-port", {"type": click.IntRange(0, 65535), "default": 50051, "help": "gRPC port."}),
    (
        "--chat-template",
        {
            "type": click.Path(exists=True, dir_okay=False, path_type=Path),
            "help": "Jinja file to use instead of the model's own chat template.",
        },
    ),
    (
        "--routing-policy",
        {
            "type": click.Choice(list(POLICIES)),
            "default": "prefix_aware",
            "help": "Which of several engines gets a request: the one that is soonest done with "
            "it, what it has cached considered or not, or each in turn.",
        },
    ),
    (
        "--engine-drain",
        {
            "type": click.Choice(["move", "finish"]),
            "default": "move",
            "help": "What becomes of the answers of an engine that drains: they go on on another "
            "engine at once, if there is one, or are left to finish.",
        },
    ),
    (
        "--tool-call-parser",
        {
            "help": f"How the model writes calls of tools: {', '.join(TOOL_FORMATS)}, or none to "
            "refuse tools. Default: as its chat template shows.",
        },
    ),
    (
        "--reasoning-parser",
        {
            "help": f"How the model writes its reasoning: {', '.join(REASONING_FORMATS)}, or none "
            "to leave it in the text. Default: as its chat template shows.",
        },
    ),
    (
        "--allow-lora-updates/--no-allow-lora-updates",
        {
            "default": False,
            "help": "Let whoever may call load LoRA adapters into the engines and unload them, "
            "from within the engines' --lora-dir; see docs/lora.md.",
        },
    ),
    (
        "--max-body-bytes",
        {
            "type": click.IntRange(1024, 1 << 30),
            "default": 32 << 20,
            "help": "Largest request body, over HTTP and gRPC.",
        },
    ),
    (
        "--page/--no-page",
        {
            "default": True,
            "help": "Serve a web page at /: a playground and a live view; see docs/page.md.",
        },
    ),
    *EDGE_FLAGS,
    *SERVER_TLS_FLAGS,
    (
        "--workers",
        {
            "type": click.IntRange(1, 256),
            "default": 1,
            "help": "Router processes behind the two ports; see docs/processes.md.",
        },
    ),
    # What a worker is told by, which its parent starts: not for people.
    ("--worker-fd", {"type": click.IntRange(3), "hidden": True}),
)


def router_options(command: _Command) -> _Command:
    """Decorates a click command that serves the public API."""
    return with_flags(_ROUTER_FLAGS, command)


def engine_tls_options(command: _Command) -> _Command:
    """Decorates a click command whose engines may be on other machines."""
    return with_flags(ENGINE_TLS_FLAGS, command)
