"""The page for those who use a keyboard, a screen reader, a small screen, or strong contrast."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.page.conftest import OpenTab, Tab
from tests.support.server import RunningServer

VIEWS = ("#playground", "#live")

SCRIPTS = Path(__file__).parent
# Everything that takes input or is pressed, and what it is called.
NAMES = (SCRIPTS / "names.js").read_text()
# Each text that can be seen, with its contrast to what is painted behind it.
CONTRASTS = (SCRIPTS / "contrasts.js").read_text()


def with_everything(tab: Tab) -> None:
    """Shows an answer in tokens, an error, and each group of the settings."""
    tab.expects_refusals = True
    tab.settings(max_tokens=6, logprobs=True)
    tab.send("Hello")
    tab.wait_answered(1)
    tab.settings(top_p=7)
    tab.send("Hello")
    tab.wait_answered(2)
    for group in tab.page.locator("details").all():
        group.evaluate("each => { each.open = true }")
    tab.page.locator(".token").first.hover()


def test_every_control_has_a_name_and_the_page_has_its_landmarks(
    open_tab: OpenTab, server: RunningServer
) -> None:
    tab = open_tab(server.url)
    with_everything(tab)

    names = tab.page.evaluate(NAMES)
    assert len(names) > 40
    assert [control for control, name in names if not name] == []
    ids = [each.get_attribute("id") for each in tab.page.locator("[id]").all()]
    assert len(ids) == len(set(ids))
    for attribute in ("aria-labelledby", "aria-describedby", "aria-errormessage", "for"):
        for each in tab.page.locator(f"[{attribute}]").all():
            assert each.get_attribute(attribute) in ids
    for role, name in (
        ("navigation", "Views"),
        ("region", "Conversation"),
        ("region", "Messages"),
        ("form", "Settings of the request"),
    ):
        expect(tab.page.get_by_role(role, name=name)).to_be_visible()  # type: ignore[arg-type]
    for role in ("banner", "main", "status"):
        expect(tab.page.get_by_role(role)).to_have_count(1)  # type: ignore[arg-type]
    assert tab.page.locator("html").get_attribute("lang") == "en"
    assert tab.page.locator("img:not([alt]), svg:not([aria-label])").count() == 0
    for view in VIEWS:
        tab.page.click(f"nav a[href='{view}']")
        levels = [int(each[1]) for each in _headings(tab)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        assert re.match(r"\w+ · Octavo", tab.page.title())


def _headings(tab: Tab) -> list[str]:
    shown = "each => each.filter(one => one.checkVisibility()).map(one => one.localName)"
    return tab.page.locator("h1, h2, h3, h4").evaluate_all(shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(open_tab: OpenTab, server: RunningServer, scheme: str) -> None:
    tab = open_tab(server.url, color_scheme=scheme)
    with_everything(tab)
    assert tab.page.locator("#tip").is_visible()

    weak, texts = [], 0
    for view in VIEWS:
        tab.page.evaluate("hash => { location.hash = hash }", view)
        expect(tab.page.locator(view)).to_be_visible()
        found = tab.page.evaluate(CONTRASTS)
        texts += len(found)
        weak += [each for each in found if each[1] < 4.5]

    assert weak == []
    assert texts > 100


def test_all_can_be_done_from_the_keyboard(open_tab: OpenTab, server: RunningServer) -> None:
    tab = open_tab(server.url)
    tab.settings(max_tokens=4)
    page, focused = tab.page, tab.page.locator(":focus")
    page.reload()

    page.keyboard.press("Tab")
    expect(focused).to_have_text("Skip to the content")
    seen = []
    while "draft" not in seen:
        page.keyboard.press("Tab")
        seen.append(focused.get_attribute("id") or focused.inner_text())
        outline = "each => getComputedStyle(each).outlineStyle !== 'none'"
        assert focused.evaluate(outline), seen
    assert {"to-playground", "to-live", "key", "theme", "scroll", "Ask a question"} <= set(seen)

    page.keyboard.type("One")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Two")
    expect(page.locator("#draft")).to_have_value("One\nTwo")
    page.keyboard.press("Enter")
    expect(page.locator(".assistant")).to_have_count(1)
    page.keyboard.press("Escape")
    tab.wait_answered()


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_cut_off_on_a_small_screen(
    open_tab: OpenTab, server: RunningServer, view: str
) -> None:
    tab = open_tab(server.url, width=360, height=640)
    if view == "#playground":
        with_everything(tab)
    else:
        tab.page.click(f"nav a[href='{view}']")
        expect(tab.page.locator(".engine")).to_have_count(1)

    assert tab.page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_a_theme_can_be_chosen_and_stays(open_tab: OpenTab, server: RunningServer) -> None:
    tab = open_tab(server.url, color_scheme="light")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    button, light = tab.page.get_by_role("button", name="Theme"), tab.page.evaluate(ground)

    expect(button).to_have_text("Theme: as the system")
    button.click()
    assert tab.page.evaluate(ground) == light
    button.click()
    expect(button).to_have_text("Theme: dark")
    dark = tab.page.evaluate(ground)
    assert dark != light
    tab.page.reload()
    assert tab.page.evaluate(ground) == dark


def test_nothing_moves_by_itself_for_those_who_asked_for_that(
    open_tab: OpenTab, server: RunningServer
) -> None:
    moving = "() => document.getAnimations().length"
    for motion, some in (("no-preference", True), ("reduce", False)):
        tab = open_tab(server.url, reduced_motion=motion)
        tab.settings(other='{"ignore_eos": true}')
        tab.send("Count.")
        expect(tab.page.locator(".assistant .text")).not_to_be_empty()
        assert (tab.page.evaluate(moving) > 0) is some
        tab.page.click("#stop")
        tab.wait_answered()
