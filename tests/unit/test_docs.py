"""What the documentation refers to is there: pages and their sections, flags, commands of make."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from router_svc.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GUIDES = [ROOT / "docs" / f"{name}.md" for name in ("architecture", "operations", "performance")]
# Flags of other programs that the guides show.
OTHERS_FLAGS = {"--batch", "--pid"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
each_guide = pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)


@cache
def sections(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in texts}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, section = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not section or section in sections(there), target


@each_guide
def test_flags_that_guides_name_exist(page: Path) -> None:
    options = [
        option
        for command in main.commands.values()
        for option in command.params
        if option.param_type_name == "option"
    ]
    flags = set(chain.from_iterable((*each.opts, *each.secondary_opts) for each in options))

    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()))
    assert named <= flags | OTHERS_FLAGS


@each_guide
def test_make_targets_that_guides_name_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets


@each_guide
def test_files_and_modules_that_guides_name_exist(page: Path) -> None:
    text = page.read_text()
    paths = re.findall(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|yaml|json|proto|toml))`", text)
    modules = re.findall(r"python -m ([\w.]+)", text)

    roots = (ROOT, ROOT / "protos", ROOT / "engine_svc", ROOT / "router_svc")
    assert [p for p in paths if not any((root / p).exists() for root in roots)] == []
    for module in modules:
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or place.is_dir() or module == "tests", module
