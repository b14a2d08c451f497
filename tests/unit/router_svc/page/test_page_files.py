"""The page's files as they are served: who may read them, how they are kept, what they hold."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import click
import httpx
import pytest

from router_svc.flags import router_options
from router_svc.fleet.fleet import Fleet
from router_svc.http.app import build_app
from router_svc.page.files import Page
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig

PAGE = Page.load()
MAX_BYTES = 100_000


def get(path: str, **headers: str) -> httpx.Response:
    """What a server of nothing but the page answers."""
    app = build_app([], extra_routes=PAGE.routes())

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Each file by its path."""
    return {path: get(path).raise_for_status().text for path in PAGE.paths}


def test_each_file_has_its_type_and_may_do_nothing_but_what_the_page_needs() -> None:
    types = {
        "html": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    for path in PAGE.paths:
        headers = get(path).headers
        ending = path.rpartition(".")[2] if path != "/" else "html"
        assert headers["content-type"].startswith(types[ending])
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_a_browser_that_has_a_file_is_told_so() -> None:
    first = get("/")
    again = get("/", **{"if-none-match": f'W/"other", {first.headers["etag"]}'})
    other = get("/", **{"if-none-match": '"other"'})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize("path", ["/page/nope.js", "/page/..%2ffiles.py", "/page/", "/page/a/b"])
def test_what_is_no_file_of_the_page_is_not_found(path: str) -> None:
    response = get(path)

    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"


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


@pytest.mark.parametrize("page", [PAGE, None])
async def test_a_router_without_it_has_nothing_at_its_address(page: Page | None) -> None:
    # No call gets as far as the model.
    model = ServedModel(Fleet(""), None, None, None)  # type: ignore[arg-type] -- see above
    router = Router(RouterConfig("127.0.0.1", 0, 0, 1 << 20, 1.0, page=page), [model])
    await router.start()
    transport = httpx.ASGITransport(router.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        answers = [await client.get(path) for path in ("/", "/page/main.js")]
    await router.close()

    for answer in answers:
        if page is not None:
            assert answer.status_code == 200
            continue
        assert answer.status_code == 404
        error = {"message": "There is nothing at this path for GET.", "type": "not_found_error"}
        assert answer.json() == {"error": error | {"param": None, "code": None}}
