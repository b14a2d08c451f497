"""Takes the pictures of docs/page.md: `make page-images`, with a real model on two engines.

python -m tests.page.images MODEL DIRECTORY
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import psutil
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.server import RunningServer, running_server

MAX_BYTES = 150_000
COLOURS = 256
CLIENTS = 20
LOAD_SECONDS = 150.0
FLAGS = ("--data-parallel-size=2", "--max-num-seqs=6", "--kv-cache-memory-bytes=60000000")
TOPICS = ("a fox", "the sea", "a printer of books", "winter", "a clock", "two rivers")


def take(model: str, directory: Path) -> None:
    """Writes the four pictures."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        args = (*FLAGS, "--served-model-name", "smollm2", "--max-model-len", "2048")
        with running_server(model, *args, log=Path(scratch) / "log") as server:
            assert server.wait_until(lambda: server.metric("octavo_router_engine_ready") == 2, 60)
            program = shutil.which("chromium")
            sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=program, args=sandbox)
            expect.set_options(timeout=120_000)
            _playgrounds(browser, server, directory)
            _live(browser, server, directory)
            browser.close()


def _open(browser: Browser, server: RunningServer, scheme: str, view: str = "") -> Page:
    context = browser.new_context(
        viewport={"width": 1280, "height": 860},
        color_scheme=scheme,  # type: ignore[arg-type] -- one of its words
        device_scale_factor=1.5,
    )
    page = context.new_page()
    page.goto(f"{server.url}/{view}")
    expect(page.locator("#health")).to_have_attribute("data-state", "ok")
    return page


def _playgrounds(browser: Browser, server: RunningServer, directory: Path) -> None:
    page = _open(browser, server, "light")
    page.get_by_role("button", name="See each token's chances").click()
    page.fill("#draft", "Tell me about the sea in three sentences.")
    page.fill("#temperature", "0.7")
    page.fill("#seed", "3")
    page.fill("#max_tokens", "120")
    page.click("#send")
    expect(page.locator(".assistant:not([aria-busy])")).to_have_count(1)
    unlikely = "each => parseInt(each.style.getPropertyValue('--unlikely'))"
    tokens = page.locator(".token").all()
    next(token for token in tokens if 40 < token.evaluate(unlikely) < 70).hover()
    _keep(page, directory / "page-light.png")

    page = _open(browser, server, "dark")
    page.get_by_role("button", name="Have a tool called").click()
    page.fill("#temperature", "0")
    page.fill("#max_tokens", "100")
    page.click("#send")
    page.get_by_label("Result of get_weather").fill('{"sky": "clear", "celsius": 21}')
    _keep(page, directory / "page-dark.png")


def _live(browser: Browser, server: RunningServer, directory: Path) -> None:
    light, dark = (_open(browser, server, scheme, "#live") for scheme in ("light", "dark"))
    with _load(server):
        end = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < end:
            light.wait_for_timeout(1000)
        light.bring_to_front()
        _keep(light, directory / "page-live.png")
        engine = _engines(server)[0]
        os.kill(engine.pid, signal.SIGKILL)
        expect(dark.locator(".engine[data-state=down]")).to_contain_text("for 3 s")
        _keep(dark, directory / "page-engine-down.png")


def _engines(server: RunningServer) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if "engine_svc" in child.cmdline()]


@contextmanager
def _load(server: RunningServer) -> Iterator[None]:
    """Clients that come and go in waves, behind prompts that share their beginning."""
    over = threading.Event()
    rules = "You are a careful writer. Answer in plain words. " * 8

    def client(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=300) as http:
            for turn in range(1000):
                over.wait(2.0 * ((number + turn) % 5))
                if over.is_set():
                    return
                user = f"Tell a story of {TOPICS[(number + turn) % len(TOPICS)]}."
                body = {
                    "messages": [
                        {"role": "system", "content": rules},
                        {"role": "user", "content": user},
                    ],
                    "max_tokens": 60 + 30 * ((number * 7 + turn) % 6),
                }
                http.post("/v1/chat/completions", json=body)

    with ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(CLIENTS):
            pool.submit(client, number)
        try:
            yield
        finally:
            over.set()


def _keep(page: Page, path: Path) -> None:
    """A screenshot in its commonest colours, which stay as they are; the others become these."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    pixels = np.asarray(picture, dtype=np.int32).reshape(-1, 3)
    colours, of_pixel, counts = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(-counts)[:COLOURS]]
    distances = ((colours[:, None] - kept[None]) ** 2).sum(axis=2)  # [num_colours, num_kept]
    nearest = distances.argmin(axis=1).astype(np.uint8)[of_pixel.reshape(-1)]
    few = Image.fromarray(nearest.reshape(picture.height, picture.width), "P")
    few.putpalette(kept.astype(np.uint8).tobytes())
    few.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {size / 1000:.0f} kB")
    assert size < MAX_BYTES


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
