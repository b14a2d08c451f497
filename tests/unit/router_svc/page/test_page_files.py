"""The page's files as they are served: who may read them, how they are kept, what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import httpx
import pytest
from error_shape import assert_error
from serving import served

from router_svc.flags import router_options
from router_svc.http.app import build_app
from router_svc.page.files import Page

PAGE = Page.load()
MAX_BYTES = 100_000


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a server of nothing but the page."""
    with served(build_app([], extra_routes=PAGE.routes())) as http:
        yield http


@pytest.fixture(scope="module")
def texts(client: httpx.Client) -> dict[str, str]:
    """Each file by its path."""
    return {path: client.get(path).raise_for_status().text for path in PAGE.paths}


def test_each_file_has_its_type_and_may_do_nothing_but_what_the_page_needs(
    client: httpx.Client,
) -> None:
    types = {
        "html": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    for path in PAGE.paths:
        headers = client.get(path).headers
        ending = path.rpartition(".")[2] if path != "/" else "html"
        assert headers["content-type"].startswith(types[ending])
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_a_browser_that_has_a_file_is_told_so(client: httpx.Client) -> None:
    first = client.get("/")
    again = client.get("/", headers={"if-none-match": f'W/"other", {first.headers["etag"]}'})
    other = client.get("/", headers={"if-none-match": '"other"'})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize("path", ["/page/nope.js", "/page/..%2ffiles.py", "/page/", "/page/a/b"])
def test_what_is_no_file_of_the_page_is_not_found(client: httpx.Client, path: str) -> None:
    assert_error(client.get(path), 404)


def test_the_page_needs_nothing_from_elsewhere_and_is_small(texts: dict[str, str]) -> None:
    for path, text in texts.items():
        links = [url for url in re.findall(r"https?://[^\s\"'<)]+", text) if "w3.org" not in url]
        assert links == [], path
    assert sum(len(text.encode()) for path, text in texts.items() if path != "/") < MAX_BYTES


def test_every_file_that_is_named_is_there(texts: dict[str, str]) -> None:
    named = re.findall(r'(?:src|href)="(page/[^"]+)"', texts["/"])
    for text in texts.values():
        named += [f"page/{name}" for name in re.findall(r'from "\./([^"]+)"', text)]

    assert len(named) > 10
    assert {f"/{name}" for name in named} | {"/", "/page/index.html"} == PAGE.paths


def test_no_script_or_style_stands_in_the_document(texts: dict[str, str]) -> None:
    assert re.findall(r"<script(?![^>]* src=)", texts["/"]) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", texts["/"]) == []
    for path, text in texts.items():
        assert re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", text) == [], path


@pytest.mark.parametrize(
    ("args", "variable", "shown"),
    [([], None, True), (["--no-page"], None, False), ([], "false", False)],
)
def test_the_page_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, args: list[str], variable: str | None, shown: bool
) -> None:
    if variable is not None:
        monkeypatch.setenv("OCTAVO_PAGE", variable)
    found: list[bool] = []

    @router_options
    def serve(page: bool, **_: Any) -> None:
        found.append(page)

    click.command()(serve).main(args, standalone_mode=False)

    assert found == [shown]
