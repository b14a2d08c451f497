"""Flags of the edge: who may call, from which pages, and how long a request may take to arrive."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
from octavo.flag_types import FilePath, FiniteRange

from router_svc.admission.admission import Admission
from router_svc.auth.http import PROBES, RequireKey
from router_svc.auth.keyring import KeyRing
from router_svc.auth.keys import KeyFormatError
from router_svc.http.cors import CorsRules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from starlette.middleware import Middleware

    from router_svc.admission.account import NewBucket


# A scheme and a host, perhaps a port; pages of files and sandboxes send null.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+|null")


class _Several(click.types.StringParamType):
    """A string; an environment variable holds several with commas between, or one JSON list."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [rv] if rv.lstrip().startswith("[") else rv.split(",")


# One entry per flag: its declaration, then what click.option takes.
EDGE_FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--api-key",
        {
            "multiple": True,
            "type": _Several(),
            "metavar": "KEY",
            "help": "Key that every call but probes needs, as Authorization: Bearer or x-api-key; "
            "repeat it for more. A command line can be read by other users of the machine: better "
            "the variable, with commas between keys, or a file. Default: no key is needed.",
        },
    ),
    (
        "--api-key-file",
        {
            "type": FilePath(),
            "help": "YAML file of keys by tenant, read again when it changes; see docs/edge.md. "
            "Tenants share no cached prompts.",
        },
    ),
    (
        "--metrics-open/--no-metrics-open",
        {"default": False, "help": "Let /metrics be read without a key."},
    ),
    (
        "--allowed-origins",
        {
            "multiple": True,
            "type": _Several(),
            "metavar": "ORIGIN",
            "help": "Origin of web pages that may call, such as https://app.example, or * for any; "
            "repeat it, or give a JSON list. Default: none.",
        },
    ),
    (
        "--allowed-methods",
        {
            "multiple": True,
            "type": _Several(),
            "default": ["*"],
            "metavar": "METHOD",
            "help": "HTTP methods that those pages may use.",
        },
    ),
    (
        "--allowed-headers",
        {
            "multiple": True,
            "type": _Several(),
            "default": ["*"],
            "metavar": "HEADER",
            "help": "Headers that those pages may send.",
        },
    ),
    (
        "--allow-credentials/--no-allow-credentials",
        {"default": False, "help": "Let those pages send cookies; not together with origin *."},
    ),
    (
        "--body-timeout",
        {
            "type": FiniteRange(0.1, 86_400.0),
            "default": 60.0,
            "help": "Seconds that a request's body may take to arrive over HTTP.",
        },
    ),
    (
        "--max-requests-in-flight",
        {
            "type": click.IntRange(0, 1_000_000),
            "default": 4096,
            "help": "Requests that are served at once, over HTTP and gRPC together; one more is "
            "refused with 429 before its body is read. 0 is no bound.",
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Edge:
    """What the flags say. Without a key ring nobody needs a key; `body_timeout` is in seconds."""

    keyring: KeyRing | None = None
    open_paths: frozenset[str] = field(default=PROBES)
    cors: CorsRules | None = None
    body_timeout: float = 60.0
    max_requests_in_flight: int = 0

    @classmethod
    def of(cls, params: Mapping[str, Any], open_paths: Collection[str] = ()) -> Edge:
        """Reads click's parameters and the key file; `open_paths` need no key, as probes do.

        Raises click.ClickException.
        """
        origins = _strings("--allowed-origins", params["allowed_origins"])
        for origin in origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise click.ClickException(
                    f"--allowed-origins {origin}: must be an origin as browsers send it, such as "
                    "https://app.example or http://localhost:3000, without a path, or *"
                )
        if "*" in origins and params["allow_credentials"]:
            raise click.ClickException(
                "--allow-credentials needs --allowed-origins by name: with * any page could act "
                "for its visitors"
            )
        cors = CorsRules(
            origins,
            _strings("--allowed-methods", params["allowed_methods"]),
            _strings("--allowed-headers", params["allowed_headers"]),
            params["allow_credentials"],
        )
        return cls(
            _keyring(params["api_key"], params["api_key_file"]),
            PROBES.union(open_paths, {"/metrics"} if params["metrics_open"] else ()),
            cors if origins else None,
            params["body_timeout"],
            params["max_requests_in_flight"],
        )

    def admission(
        self, on_rejected: Callable[[str, str], None], new_bucket: NewBucket | None = None
    ) -> Admission:
        """The limits, which tell `on_rejected` reason and tenant of a refusal; see Admission."""
        keyring = self.keyring
        if keyring is None:
            return Admission(self.max_requests_in_flight, on_rejected=on_rejected)
        return Admission(
            self.max_requests_in_flight,
            lambda: keyring.limits,
            on_rejected=on_rejected,
            new_bucket=new_bucket,
        )

    def middleware(self) -> list[Middleware]:
        """What stands before the routes."""
        if self.keyring is None:
            return []
        return [RequireKey.middleware(self.keyring, self.open_paths)]


def _keyring(given: Sequence[str], path: Path | None) -> KeyRing | None:
    keys = [key for each in given if (key := each.strip())]
    # click takes an empty variable for none, but a secret that came out empty must not open a
    # server.
    if not keys and (given or "OCTAVO_API_KEY" in os.environ):
        raise click.ClickException(
            "--api-key or OCTAVO_API_KEY is given and empty; without it nobody needs a key"
        )
    if not keys and path is None:
        return None
    try:
        return KeyRing(keys, path)
    except KeyFormatError as error:
        raise click.ClickException(str(error)) from error


def _strings(flag: str, values: Sequence[str]) -> tuple[str, ...]:
    """The values of a flag that is repeated, or holds a JSON list as vLLM takes it."""
    found: list[str] = []
    for value in values:
        try:
            items = json.loads(value) if value.lstrip().startswith("[") else [value]
        except ValueError:
            items = [None]
        if not all(isinstance(item, str) for item in items):
            raise click.ClickException(f"{flag} must be a string or a JSON list of strings")
        found += (item.strip() for item in items)
    return tuple(found)
