"""A headless Chromium, and tabs of it that remember what they asked for and complained of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

REFUSED = "Failed to load resource: the server responded with a status of 4"
SECONDS = 20.0  # for whatever is waited for, on a busy machine


@dataclass
class Tab:
    """A tab that shows the page of one server."""

    page: Page
    context: BrowserContext
    url: str
    expects_refusals: bool = False  # the browser complains of each 4xx by itself
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def send(self, text: str) -> None:
        """Writes a message and sends it, as from the keyboard."""
        self.page.fill("#draft", text)
        self.page.press("#draft", "Enter")

    def settings(self, **values: Any) -> None:
        """Fills controls by their ids, in whatever group they are."""
        for id_, value in values.items():
            control = self.page.locator(f"#{id_}")
            control.evaluate(
                "each => { const box = each.closest('details'); if (box) box.open = true }"
            )
            if isinstance(value, bool):
                control.set_checked(value)
            elif control.evaluate("each => each.localName") == "select":
                control.select_option(value)
            else:
                control.fill(str(value))

    def wait_answered(self, number: int = 1) -> None:
        """Until so many answers have ended."""
        expect(self.page.locator(".assistant:not([aria-busy])")).to_have_count(number)

    def asked(self, path: str) -> int:
        """How many requests of this path were sent, whatever their query."""
        return sum(url.partition("?")[0] == self.url + path for url in self.requests)


OpenTab = Callable[..., Tab]


# Not for the whole session: while playwright runs, no other event loop can, and other files' tests
# need theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium; make system-deps installs it")
        pytest.skip("there is no chromium; make system-deps installs it")
    with sync_playwright() as playwright:
        # As root, as in containers, Chromium runs without its sandbox or not at all.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=program, args=args)
        yield chromium
        chromium.close()


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[OpenTab]:
    """Opens tabs. At the end none may have asked another host, or complained on its console."""
    tabs: list[Tab] = []

    def open_(url: str, view: str = "", *, width: int = 1280, height: int = 860, **how: Any) -> Tab:
        context = browser.new_context(viewport={"width": width, "height": height}, **how)
        context.set_default_timeout(SECONDS * 1000)
        page = context.new_page()
        tab = Tab(page, context, url)
        tabs.append(tab)
        page.on("request", lambda request: tab.requests.append(request.url))
        page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        page.on("console", lambda said: _note(tab, said.type, said.text))
        page.goto(f"{url}/{view}")
        return tab

    expect.set_options(timeout=SECONDS * 1000)
    yield open_
    for tab in tabs:
        tab.context.close()
        assert [each for each in tab.requests if not each.startswith(f"{tab.url}/")] == []
        assert tab.complaints == []


def _note(tab: Tab, kind: str, text: str) -> None:
    if kind in ("error", "warning") and not (tab.expects_refusals and text.startswith(REFUSED)):
        tab.complaints.append(text)
