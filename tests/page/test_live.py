"""The live view and the API key, in a real browser, on a router with keys and two engines.

The engines are real processes whose steps only take their time (tests/support/paced_engine.py), so
that a load can be had without a processor for it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.page.conftest import OpenTab, Tab
from tests.support import plain_http
from tests.support.held_service import running_process
from tests.support.server import READY_SECONDS, RunningServer, free_port

KEY = "sk-page-7c31"
HEADERS = {"authorization": f"Bearer {KEY}"}
SEATS = 2  # choices that an engine runs at once
SOME = re.compile(r"^[1-9]")


@dataclass(frozen=True)
class Pair:
    """A router that wants KEY, and its engines' processes."""

    url: str
    engines: dict[str, subprocess.Popen[bytes]]  # by target

    def metrics(self) -> str:
        """The exposition."""
        return plain_http.get(f"{self.url}/metrics", headers=HEADERS, timeout=10).text

    @contextmanager
    def load(self, clients: int) -> Iterator[None]:
        """So many clients, each with one request after the other."""
        over = threading.Event()
        body = {"prompt": "An octavo is", "max_tokens": 200, "ignore_eos": True}

        def client() -> None:
            with httpx.Client(base_url=self.url, headers=HEADERS, timeout=60) as http:
                while not over.is_set():
                    http.post("/v1/completions", json=body).raise_for_status()

        with ThreadPoolExecutor(clients) as pool:
            running = [pool.submit(client) for _ in range(clients)]
            try:
                yield
            finally:
                over.set()
            for each in running:
                each.result()


@pytest.fixture(scope="module")
def pair(smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The processes, until all tests of this file have ended."""
    directory, model = tmp_path_factory.mktemp("pair"), str(smollm2_checkpoint)
    targets = [f"unix:{directory}/engine{i}.sock" for i in range(2)]
    port, grpc_port = free_port(), free_port()
    router = [sys.executable, "-m", "router_svc", "router", model]
    router += [word for target in targets for word in ("--engines", target)]
    router += ["--port", str(port), "--grpc-port", str(grpc_port), "--api-key", KEY]
    router += ["--routing-policy", "round_robin"]
    with ExitStack() as stack:
        engines = {}
        for i, target in enumerate(targets):
            engine = [sys.executable, "-m", "tests.support.paced_engine", f"{directory}/steps{i}"]
            engine += [model, "--listen", target, "--served-model-name", "smollm2"]
            engine += ["--max-num-seqs", str(SEATS)]
            log = directory / f"engine{i}.log"
            engines[target] = stack.enter_context(running_process(engine, log))
        log = directory / "router.log"
        process = stack.enter_context(running_process(router, log))
        url = f"http://127.0.0.1:{port}"
        started = Pair(url, engines)
        server = RunningServer(url, "", process, log)

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                lines = started.metrics().splitlines()
            except httpx.TransportError:
                return False
            up = re.compile(r"octavo_router_engine_ready\{.* 1\.0$")
            return sum(up.match(line) is not None for line in lines) == len(targets)

        assert server.wait_until(ready, READY_SECONDS), log.read_text()
        yield started


@pytest.fixture
def live(open_tab: OpenTab, pair: Pair) -> Tab:
    """A tab with the live view, and the key in its field."""
    tab = open_tab(pair.url, "#live")
    tab.expects_refusals = True
    _enter(tab, KEY)
    expect(tab.page.locator("#health")).to_have_attribute("data-state", "ok")
    return tab


def _enter(tab: Tab, key: str) -> None:
    tab.page.fill("#key", key)
    tab.page.press("#key", "Enter")


def tile(tab: Tab, name: str) -> str:
    """Where a tile's value is."""
    return f"[data-tile={name}] strong"


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(open_tab: OpenTab, pair: Pair) -> None:
    tab = open_tab(pair.url)
    tab.expects_refusals = True
    notice, health = tab.page.locator("#key-notice"), tab.page.locator("#health-text")
    expect(notice).to_contain_text("This server needs an API key. It answered 401")
    expect(health).to_have_text("API key needed")

    _enter(tab, "sk-wrong")
    expect(notice).to_contain_text("This key is not valid.")
    tab.settings(max_tokens=8)
    tab.send("Hello")
    expect(tab.page.locator(".error")).to_contain_text("Error 401")

    notice.get_by_role("button").click()
    expect(tab.page.locator("#key")).to_be_focused()
    _enter(tab, KEY)
    expect(notice).to_be_hidden()
    expect(health).to_have_text("2 of 2 engines ready")
    expect(tab.page.locator("#model")).to_have_value("smollm2")
    tab.page.get_by_role("button", name="Try again").click()
    expect(tab.page.locator("[data-stat=answer]")).to_have_text("8 tokens")

    tab.page.click("#code summary")
    expect(tab.page.locator("#curl")).to_contain_text("Bearer $OCTAVO_KEY")
    assert KEY not in tab.page.locator("main").inner_text()
    assert tab.page.evaluate("() => ({...sessionStorage})") == {"octavo.key": KEY}
    assert tab.page.evaluate("() => ({...localStorage})") == {}
    assert tab.context.cookies() == []
    tab.page.reload()
    expect(health).to_have_text("2 of 2 engines ready")


def test_the_view_moves_under_load_and_comes_to_rest(live: Tab, pair: Pair) -> None:
    with pair.load(clients=4 * SEATS):
        for name in ("running", "waiting", "generated", "prompt", "firstToken", "kv"):
            expect(live.page.locator(tile(live, name))).to_have_text(SOME)
        expect(live.page.locator(tile(live, "running"))).to_have_text(str(2 * SEATS))
        card = live.page.locator(".engine").first
        expect(card.locator("dt:text-is('Running') + dd")).to_have_text(str(SEATS))
        line = re.compile(r"^M.*L")
        for drawn in live.page.locator("[data-tile=generated] .line, .engine .line-0").all():
            expect(drawn).to_have_attribute("d", line)

    for name in ("running", "waiting", "generated"):
        expect(live.page.locator(tile(live, name))).to_have_text("0")
    label = live.page.locator("[data-tile=running] svg")
    expect(label).to_have_attribute("aria-label", f"Running, last 3 minutes: at most {2 * SEATS}")


def test_it_asks_only_while_it_can_be_seen_and_is_not_paused(live: Tab) -> None:
    page = live.page
    page.clock.install()
    page.reload()
    expect(page.locator("#health")).to_have_attribute("data-state", "ok")
    with page.expect_request("**/metrics?*"):
        page.clock.run_for(1100)

    def settled() -> int:
        page.wait_for_load_state("networkidle")
        return live.asked("/metrics")

    see = """state => {
      Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    for end, begin in (
        (lambda: page.evaluate(see, "hidden"), lambda: page.evaluate(see, "visible")),
        (lambda: page.click("#pause"), lambda: page.click("#pause")),
    ):
        end()
        before = settled()
        page.clock.run_for(10_000)
        assert settled() == before
        with page.expect_request("**/metrics?*"):
            begin()


def test_counts_of_an_engine_that_began_anew_do_not_go_back(live: Tab) -> None:
    """Rates, quantiles and restarts by numbers that are known: what no running engine has."""
    script = """async () => {
      const { Fleet, WANTED } = await import("/page/fleet.js");
      const { parseExposition } = await import("/page/exposition.js");
      const at = (engine, tokens, first) => parseExposition([
        '# HELP vllm:generation_tokens_total Tokens.',
        'octavo_router_engine_ready{target="a:1"} 2.0',
        'octavo_router_engine_circuit{state="closed",target="a:1"} 3.0',
        `octavo_router_engine_info{engine="${engine}",model_name="q\\\\"",target="a:1"} 1`,
        `vllm:num_requests_running{engine="${engine}"} 1.0`,
        `vllm:generation_tokens_total{engine="${engine}",model_name="m{}"} ${tokens}`,
        `vllm:time_to_first_token_seconds_bucket{engine="${engine}",le="0.1"} ${first}`,
        `vllm:time_to_first_token_seconds_bucket{engine="${engine}",le="0.3"} ${3 * first}`,
        `vllm:time_to_first_token_seconds_bucket{engine="${engine}",le="+Inf"} ${4 * first}`,
      ].join("\\n"), WANTED);
      const fleet = new Fleet();
      const seen = [[0, "e1", 1000, 0], [1, "e1", 1050, 10], [2, "e2", 7, 0], [3, "e2", 27, 0]];
      return seen.map(([t, engine, tokens, first]) => {
        const { total, engines: [one] } = fleet.update(at(engine, tokens, first), t);
        return [String(total.generated), String(total.firstToken), one.label, one.id, one.model];
      });
    }"""

    before, moved, restarted, after = live.page.evaluate(script)

    label = "Ready for 2 of 3 routers"
    assert before == ["0", "NaN", label, "e1", 'q"']
    # Of 40 first tokens the 20th is in the middle of the 20 between 0.1 and 0.3 s.
    assert moved == ["50", "0.2", label, "e1", 'q"']
    assert restarted[0] == "0"
    assert after == ["20", "NaN", label, "e2", 'q"']


# Last, as the engine does not come back.
def test_an_engine_that_is_down_is_shown_as_that(live: Tab, pair: Pair) -> None:
    (target, engine), (other, _) = pair.engines.items()
    os.kill(engine.pid, signal.SIGKILL)

    lost = live.page.locator(f"[data-target='{target}']")
    expect(lost).to_have_attribute("data-state", "down")
    expect(lost.locator(".chip")).to_have_text("Not reachable")
    expect(lost.locator("dt:text-is('Running') + dd")).to_have_text("–")
    expect(live.page.locator(f"[data-target='{other}'] .chip")).to_have_text("Ready")
    expect(live.page.locator("#health-text")).to_have_text("1 of 2 engines ready")
    expect(live.page.locator("#announce")).to_have_text("1 of 2 engines ready")
