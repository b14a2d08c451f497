"""Keys and key files: whose a key is, what a file may hold, and that no key is ever repeated."""

import asyncio
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from router_svc.admission.limits import Limits
from router_svc.auth.keyring import KeyRing
from router_svc.auth.keys import ApiKeys, KeyFormatError, read_key_file
from router_svc.errors import ApiError, ErrorKind

SECRET = "sk-not-to-be-seen"


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    """Headers with a key."""
    return [(b"accept", b"*/*"), (b"authorization", f"Bearer {key}".encode())]


def hashed(key: str) -> str:
    """A key as a file may hold it instead."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


@pytest.fixture
def keys() -> ApiKeys:
    return ApiKeys([("acme", "sk-one"), ("acme", "sk-two"), ("beta", hashed(SECRET))])


@pytest.mark.parametrize(
    ("key", "tenant"), [("sk-one", "acme"), ("sk-two", "acme"), (SECRET, "beta")]
)
def test_a_key_stands_for_its_tenant(keys: ApiKeys, key: str, tenant: str) -> None:
    assert keys.authenticate(bearer(key)) == tenant
    assert keys.authenticate([(b"x-api-key", key.encode())]) == tenant


@pytest.mark.parametrize(
    "headers",
    [
        [],
        bearer(""),
        bearer("sk-onE"),
        bearer("sk-one2"),
        bearer("sk-on"),
        bearer(hashed(SECRET)),
        [(b"authorization", b"Basic sk-one")],
        [(b"authorization", b"sk-one")],
        [(b"authorization", b"\xff\xfe")],
        [(b"x-api-key", b"")],
        [(b"cookie", b"sk-one")],
        [(b"x-api-key", b"wrong")] * 4 + [(b"x-api-key", b"sk-one")],
    ],
)
def test_anything_else_lets_nobody_in(keys: ApiKeys, headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ApiError) as caught:
        keys.authenticate(headers)

    assert caught.value.kind is ErrorKind.UNAUTHENTICATED
    assert caught.value.code == "invalid_api_key"
    assert "sk-" not in str(caught.value)


def test_the_scheme_may_have_any_case_and_either_header_will_do(keys: ApiKeys) -> None:
    assert keys.authenticate([(b"Authorization", b"bearer  sk-one ")]) == "acme"
    assert keys.authenticate([*bearer("placeholder"), (b"x-api-key", b"sk-two")]) == "acme"


def test_without_keys_nobody_comes_in() -> None:
    with pytest.raises(ApiError):
        ApiKeys([]).authenticate(bearer("sk-one"))


def test_a_file_has_keys_by_tenant(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(f"tenants:\n  acme:\n    - sk-one  # ours\n    - {hashed('b')}\n  beta: []\n")

    keys, limits = read_key_file(path)

    assert keys == [("acme", "sk-one"), ("acme", hashed("b"))]
    assert limits == {}


def test_a_file_has_limits_of_tenants(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(
        "tenants:\n"
        "  acme:\n"
        "    keys: [sk-one]\n"
        "    limits: {requests_per_minute: 60, tokens_per_minute: 100000}\n"
        "  beta: {keys: [sk-two]}\n"
        "  default: {keys: [], limits: {concurrent_requests: 8}}\n"
    )

    keyring = KeyRing(["sk-flag"], path)

    assert keyring.keys.authenticate(bearer("sk-two")) == "beta"
    assert keyring.limits == {
        "acme": Limits(requests_per_minute=60, tokens_per_minute=100_000),
        "default": Limits(concurrent_requests=8),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "one mapping, tenants"),
        ("- sk", "one mapping, tenants"),
        (f"acme: [{SECRET}]", "one mapping, tenants"),
        ("tenants:", "names to lists"),
        (f"tenants: {{acme: {SECRET}}}", "acme must have a list of strings"),
        ("tenants: {acme: [12345]}", "acme must have a list of strings"),
        ("tenants: {acme: {keys: sk-a}}", "acme must have a list of strings"),
        ("tenants: {acme: {limits: {}}}", "acme must have keys, and may have limits"),
        (f"tenants: {{acme: {{keys: [{SECRET}], limit: 1}}}}", "acme must have keys, and may"),
        (f"tenants: {{acme: {{keys: [{SECRET}], limits: 5}}}}", "acme: limits map some of"),
        ("tenants: {acme: {keys: [], limits: {tokens_per_minute: 0}}}", "a whole number above 0"),
        (f"tenants: {{1: [{SECRET}]}}", "a string; put it in quotes"),
        (f"tenants: {{a b: [{SECRET}]}}", "'a b' cannot be a tenant's name"),
        ("tenants: {acme: ['']}", "empty, too long or has other"),
        ("tenants: {acme: ['a b']}", "empty, too long or has other"),
        ("tenants: {acme: ['sha256:abc']}", "64 hexadecimal digits"),
        (f"tenants: {{acme: [{SECRET}], beta: [{SECRET}]}}", "have the same key"),
        (f"tenants:\n  acme: [{SECRET}\n  b: {{", "line 3: this is not YAML"),
        ("tenants: {acme: [2026-13-45]}", "this is not YAML"),
        ("tenants: " + "[" * 400, "this is not YAML"),
        (f"tenants: !!python/object/apply:os.system [{SECRET}]", "this is not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_no_key(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)

    with pytest.raises(KeyFormatError) as caught:
        KeyRing([], path)

    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFormatError, match=r"none\.yaml: No such file"):
        KeyRing([], tmp_path / "none.yaml")


# -- changes -----------------------------------------------------------------------------------


async def until(condition: Any) -> None:
    """Waits for a change to be seen; the test's own time limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110 -- the key ring tells nobody that it has read
        await asyncio.sleep(0.005)


def lets_in(ring: KeyRing, key: str) -> bool:
    """Whether the key is in use."""
    return ring.keys.tenant_of(key.encode()) is not None


def write(path: Path, key: str) -> None:
    """Puts a new file in the old one's place, as editors and mounted secrets do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f"tenants: {{acme: [{key}]}}")
    fresh.replace(path)


async def test_a_changed_file_is_read_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    write(path, "sk-old")
    ring = KeyRing(["sk-flag"], path)
    following = asyncio.create_task(ring.follow(0.01))

    write(path, "sk-new")
    await until(lambda: lets_in(ring, "sk-new"))

    assert not lets_in(ring, "sk-old")
    assert ring.keys.tenant_of(b"sk-flag") == "default"
    following.cancel()


async def test_a_file_written_in_place_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("tenants: {acme: [sk-old]}")
    ring = KeyRing([], path)
    following = asyncio.create_task(ring.follow(0.01))

    path.write_text("tenants: {acme: [sk-new]}")
    later = time.time_ns() + 10**9
    os.utime(path, ns=(later, later))
    await until(lambda: lets_in(ring, "sk-new"))

    following.cancel()


@pytest.mark.parametrize("broken", ["tenants: [", f"tenants: {{acme: {SECRET}}}", None])
async def test_a_broken_file_leaves_the_keys_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    path = tmp_path / "keys.yaml"
    write(path, "sk-old")
    ring = KeyRing([], path)
    following = asyncio.create_task(ring.follow(0.01))
    caplog.set_level(logging.ERROR)

    if broken is None:
        path.unlink()
    else:
        path.write_text(broken)
    await until(lambda: "the API keys stay as they were" in caplog.text)

    assert lets_in(ring, "sk-old")
    assert SECRET not in caplog.text
    caplog.clear()
    write(path, "sk-new")
    await until(lambda: lets_in(ring, "sk-new"))
    following.cancel()


async def test_a_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys.yaml").write_text(f"tenants: {{acme: [sk-{name}]}}")
    link = tmp_path / "current"
    link.symlink_to("one")
    ring = KeyRing([], link / "keys.yaml")
    following = asyncio.create_task(ring.follow(0.01))

    other = tmp_path / "next"
    other.symlink_to("two")
    other.replace(link)
    await until(lambda: lets_in(ring, "sk-two"))

    following.cancel()
