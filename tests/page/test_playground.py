"""The playground in a real browser, on a real server with a real model."""

from __future__ import annotations

import contextlib
import io
import json
import math
import subprocess
from typing import Any

import httpx
import pytest
from playwright.sync_api import Route, expect

from tests.page.conftest import OpenTab, Tab
from tests.support.server import RunningServer

CHAT = "/v1/chat/completions"
FOX = {"role": "user", "content": "Tell me of a fox."}


def api_answer(server: RunningServer, messages: list[Any], **fields: Any) -> dict[str, Any]:
    """What the API answers, greedily."""
    body = {"messages": messages, "temperature": 0, **fields}
    answer = httpx.post(f"{server.url}{CHAT}", json=body, timeout=60).raise_for_status().json()
    return answer["choices"][0]


@pytest.fixture
def tab(open_tab: OpenTab, server: RunningServer) -> Tab:
    """A tab whose answers are greedy and short."""
    opened = open_tab(server.url)
    opened.settings(temperature=0, max_tokens=16)
    return opened


def test_a_conversation_streams_and_goes_on(tab: Tab, server: RunningServer) -> None:
    first = api_answer(server, [FOX], max_tokens=16)["message"]
    messages = [{"role": "system", "content": "Be brief."}, FOX, first]
    messages.append({"role": "user", "content": "And then?"})

    tab.send(FOX["content"])
    tab.wait_answered(1)
    answer = tab.page.locator(".assistant").first
    expect(answer.locator(".text")).to_have_text(first["content"])
    expect(answer.locator(".chip")).to_have_text("cut at the most tokens")
    expect(answer.locator("[data-stat=answer]")).to_have_text("16 tokens")
    expect(answer.locator("[data-stat=speed]")).to_contain_text("tokens/s")
    expect(answer.locator("[data-stat=ttft]")).to_contain_text("s")
    expect(tab.page.locator("#announce")).to_contain_text("16 tokens")

    tab.settings(system="Be brief.")
    tab.send("And then?")
    tab.wait_answered(2)
    second = api_answer(server, messages, max_tokens=16)["message"]
    expect(tab.page.locator(".assistant .text").nth(1)).to_have_text(second["content"])


def test_stop_ends_the_answer_here_and_in_the_engine(tab: Tab, server: RunningServer) -> None:
    tab.settings(max_tokens="", other='{"ignore_eos": true}')

    tab.send("Count.")
    expect(tab.page.locator(".assistant .text")).not_to_be_empty()
    tab.page.click("#stop")
    tab.wait_answered()

    expect(tab.page.locator(".assistant .chip")).to_have_text("stopped by you")
    expect(tab.page.locator("#send")).to_be_visible()
    assert server.wait_until(server.idle)


def test_each_token_shows_its_chances_on_hover_and_on_focus(
    tab: Tab, server: RunningServer
) -> None:
    wanted = api_answer(server, [FOX], max_tokens=8, logprobs=True, top_logprobs=3)
    known = wanted["logprobs"]["content"]
    tab.settings(max_tokens=8, logprobs=True, top_logprobs=3)

    tab.send(FOX["content"])
    tab.wait_answered()
    tokens, tip = tab.page.locator(".token"), tab.page.locator("#tip")
    assert tokens.all_text_contents() == [each["token"] for each in known]
    assert "".join(tokens.all_text_contents()) == wanted["message"]["content"]

    tokens.nth(2).hover()
    expect(tip).to_contain_text(f"{known[2]['logprob']:.3f}")
    for other in known[2]["top_logprobs"]:
        expect(tip).to_contain_text(other["token"].replace(" ", "␣").replace("\n", "⏎"))
    tab.page.mouse.move(0, 0)
    expect(tip).to_be_hidden()

    tokens.first.focus()
    tab.page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    expect(tip).to_contain_text(f"{known[1]['logprob']:.3f}")
    share = 100 * math.exp(known[1]["logprob"])
    expect(tab.page.locator("#announce")).to_contain_text(
        f"{share:.1f} %" if share < 10 else f"{share:.0f} %"
    )
    tab.page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_tool_call_is_shown_and_its_result_goes_back(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Have a tool called").click()
    tab.settings(temperature=0, max_tokens=80)
    tab.page.click("#send")
    tab.wait_answered()
    call = tab.page.locator(".call")
    expect(call.locator(".call-name")).to_have_text("get_weather")
    assert set(json.loads(call.locator("pre").inner_text())) == {"city", "unit"}

    tab.settings(tool_choice="none", max_tokens=4)
    tab.page.get_by_label("Result of get_weather").fill("Sunny")
    with tab.page.expect_request(f"**{CHAT}") as sent:
        tab.page.get_by_role("button", name="Send the result").click()
    *_, asked, result = sent.value.post_data_json["messages"]
    assert asked["tool_calls"][0]["function"]["name"] == "get_weather"
    assert result["role"] == "tool"
    assert result["content"] == "Sunny"
    assert result["tool_call_id"] == asked["tool_calls"][0]["id"]
    tab.wait_answered(2)


def test_an_error_is_shown_with_its_field(tab: Tab) -> None:
    tab.expects_refusals = True
    tab.settings(temperature=3)

    tab.send("Hello")

    error = tab.page.locator(".error")
    expect(error).to_contain_text("Error 400")
    expect(error).to_contain_text("temperature must be between 0 and 2, not 3.")
    expect(tab.page.locator("#temperature")).to_have_attribute("aria-invalid", "true")
    expect(tab.page.locator("#announce")).to_contain_text("temperature must be")
    expect(tab.page.locator("#draft")).to_have_value("Hello")
    tab.settings(temperature=0)
    tab.page.get_by_role("button", name="Try again").click()
    tab.wait_answered()
    expect(error).to_have_count(0)
    expect(tab.page.locator("#temperature")).not_to_have_attribute("aria-invalid", "true")


def test_what_cannot_be_read_is_not_sent(tab: Tab) -> None:
    tab.settings(tools="[{")

    tab.send("Hello")

    expect(tab.page.locator("#tools-error")).to_contain_text("no JSON")
    expect(tab.page.locator("#tools")).to_be_focused()
    assert tab.asked(CHAT) == 0


def test_what_a_model_writes_is_text_and_nothing_else(tab: Tab) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    tab.settings(max_tokens=64, other=json.dumps({"structured_outputs": {"choice": [evil]}}))

    for logprobs in (False, True):
        tab.settings(logprobs=logprobs)
        tab.send(evil)
        tab.wait_answered(1 + logprobs)
        expect(tab.page.locator(".assistant .text").last).to_have_text(evil)

    assert tab.page.locator("main img, main script").count() == 0


def test_the_code_it_shows_gives_the_same_answer(tab: Tab, server: RunningServer) -> None:
    expected = api_answer(server, [{"role": "user", "content": "Say 'it''s'."}], max_tokens=16)
    text = expected["message"]["content"]
    tab.settings(top_k=1)
    tab.page.fill("#draft", "Say 'it''s'.")
    tab.page.click("#code summary")
    expect(tab.page.locator("#python")).to_be_visible()  # what is hidden has no inner text
    expect(tab.page.locator("#python")).to_contain_text("Say")

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(tab.page.locator("#python").inner_text(), {})
    command = tab.page.locator("#curl").inner_text()
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    chunks = [json.loads(line[6:]) for line in ran.stdout.split("\n\n") if "{" in line]

    assert printed.getvalue() == text
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text


def test_reasoning_stands_apart_and_a_stream_that_fails_says_so(tab: Tab) -> None:
    """The bytes are written here, as no small model reasons: with odd line ends and comments."""

    def chunk(**delta: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return "data: " + json.dumps({"id": "c", "choices": [choice]}) + "\r\n\r\n"

    error = {"message": "The engine was lost.", "type": "server_error", "param": None, "code": "x"}
    body = ": ping\n\n" + chunk(reasoning_content="Hm, ") + chunk(reasoning_content="well.")
    body += (
        chunk(content="Yes – ")
        + chunk(content="so.")
        + f'data: {{"error": {json.dumps(error)}}}\n\n'
    )

    def answer(route: Route) -> None:
        route.fulfill(body=body, headers={"content-type": "text/event-stream; charset=utf-8"})

    tab.page.route(f"**{CHAT}", answer)
    tab.send("Why?")
    tab.wait_answered()

    expect(tab.page.locator(".reasoning")).to_have_text("Hm, well.")
    expect(tab.page.locator(".assistant .text:not(.reasoning)")).to_have_text("Yes – so.")
    expect(tab.page.locator(".error")).to_contain_text("Error in the stream")
    expect(tab.page.locator(".error")).to_contain_text("The engine was lost.")
