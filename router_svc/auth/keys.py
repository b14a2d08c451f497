"""Keys and the tenants they stand for; only the SHA-256 of a key is kept.

A key file is YAML, with any number of keys per tenant, and limits where there are any:

    tenants:
      acme:
        - sk-acme-1                 # the key itself,
        - sha256:9f86d081884c…      # or the SHA-256 of one, in hex (sha256sum makes it)
      beta:
        keys: [sk-beta]
        limits: {requests_per_minute: 60, tokens_per_minute: 100000}

No message or log line that is made here holds any of a key.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import yaml

from router_svc.admission.limits import Limits
from router_svc.errors import ApiError, ErrorKind

DEFAULT_TENANT = "default"
"""The tenant of keys that were given without one."""

_MAX_FILE_BYTES = 4 << 20
_HASHED = "sha256:"
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# What a header or a metadata value can carry without quoting: printable ASCII, no spaces.
_KEY = re.compile(r"[!-~]{1,512}")
# Headers that may hold a key; a call that repeats them is tried with its first few.
_MAX_GIVEN = 4


class KeyFormatError(Exception):
    """Keys that cannot be used; the message says where and why, without the key."""


class ApiKeys:
    """A fixed set of keys."""

    def __init__(self, keys_by_tenant: Iterable[tuple[str, str]]) -> None:
        """Takes pairs of a tenant and a key or its hash. Raises KeyFormatError."""
        tenants: dict[bytes, str] = {}
        for tenant, key in keys_by_tenant:
            if not _TENANT.fullmatch(tenant):
                raise KeyFormatError(
                    f"{tenant[:64]!r} cannot be a tenant's name: letters, digits, '.', '_' and '-'"
                )
            digest = _digest_of(tenant, key)
            if tenants.setdefault(digest, tenant) != tenant:
                raise KeyFormatError(f"{tenants[digest]} and {tenant} have the same key")
        self._tenants = tuple(tenants.items())

    def __len__(self) -> int:
        return len(self._tenants)

    def tenant_of(self, key: bytes) -> str | None:
        """Whose key it is; all keys are compared, each in constant time, whichever it is."""
        given = hashlib.sha256(key).digest()
        found = None
        for digest, tenant in self._tenants:
            if hmac.compare_digest(digest, given):
                found = tenant
        return found

    def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The tenant that the headers' key stands for: `Authorization: Bearer` or `x-api-key`.

        Raises ApiError (401) without a key that is known.
        """
        given = [key for name, value in headers if (key := _key_in(name, value))]
        for key in given[:_MAX_GIVEN]:
            tenant = self.tenant_of(key)
            if tenant is not None:
                return tenant
        raise ApiError(
            ErrorKind.UNAUTHENTICATED,
            "The API key is not valid."
            if given
            else "An API key is needed, as Authorization: Bearer or as x-api-key.",
            code="invalid_api_key",
        )


class KeyFile(NamedTuple):
    """Pairs of a tenant and a key, as ApiKeys takes them, and limits of tenants that have any."""

    keys: list[tuple[str, str]]
    limits: dict[str, Limits]


def read_key_file(path: Path) -> KeyFile:
    """What a file holds. Raises KeyFormatError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFormatError(f"{path}: {error.strerror}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise KeyFormatError(f"{path} has more than {_MAX_FILE_BYTES} bytes")
    try:
        content = yaml.safe_load(text)
    # A value may look like a date that there is not, and brackets may be nested without end.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The error's own text quotes the lines around it, keys and all.
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise KeyFormatError(f"{path}{where}: this is not YAML") from None
    if not isinstance(content, dict) or set(content) != {"tenants"}:
        raise KeyFormatError(f"{path} must hold one mapping, tenants, and nothing else")
    tenants = content["tenants"]
    if not isinstance(tenants, dict):
        raise KeyFormatError(f"{path}: tenants must map names to lists of keys")
    pairs = []
    limits = {}
    for tenant, content in tenants.items():
        if not isinstance(tenant, str):
            raise KeyFormatError(f"{path}: a tenant's name is a string; put it in quotes")
        keys = content
        if isinstance(content, dict):
            if not {"keys"} <= set(content) <= {"keys", "limits"}:
                raise KeyFormatError(f"{path}: {tenant[:64]} must have keys, and may have limits")
            keys = content["keys"]
            if "limits" in content:
                try:
                    limits[tenant] = Limits.of(content["limits"])
                except ValueError as error:
                    raise KeyFormatError(f"{path}: {tenant[:64]}: {error}") from error
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise KeyFormatError(f"{path}: {tenant[:64]} must have a list of strings")
        pairs += [(tenant, key) for key in keys]
    return KeyFile(pairs, limits)


def _digest_of(tenant: str, key: str) -> bytes:
    if key.startswith(_HASHED):
        digest = key.removeprefix(_HASHED)
        if not _DIGEST.fullmatch(digest):
            raise KeyFormatError(f"a key of {tenant}: after {_HASHED} come 64 hexadecimal digits")
        return bytes.fromhex(digest)
    if not _KEY.fullmatch(key):
        raise KeyFormatError(
            f"a key of {tenant} is empty, too long or has other than printable ASCII characters"
        )
    return hashlib.sha256(key.encode("ascii")).digest()


def _key_in(name: bytes, value: bytes) -> bytes:
    """The key that a header carries, or b""."""
    match name.lower():
        case b"x-api-key":
            return value.strip()
        case b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            return key.strip() if scheme.lower() == b"bearer" else b""
        case _:
            return b""
