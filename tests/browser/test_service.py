"""The screens of the service and of texts that are tried, and the page at /docs."""

import json
import os
import signal

from playwright.sync_api import expect

from tests.browser.console import MARKUP, NARROW, Console, assert_fine, strip


def test_workers_lanes_redis_and_deaths_are_shown(console: Console) -> None:
    page = console.open("#/service")
    expect(strip(page)).to_contain_text("1 worker")
    os.kill(console.stack.worker.child_pid, signal.SIGKILL)
    workers = page.get_by_role("table", name="Workers")
    expect(workers).to_contain_text("1, last")
    expect(workers).to_contain_text("signal 9, SIGKILL")
    expect(workers.get_by_role("row")).to_have_count(3)
    console.stack.call("POST", "/v1/embeddings", json={"input": ["one text", "another text"]})

    expect(page.get_by_role("table", name="Queue")).to_contain_text("bulk")
    expect(page.locator("main")).to_contain_text("1 serves all-MiniLM-L6-v2cpu, fake, float32, 384 dimensions")
    expect(page.locator("main")).to_contain_text("Tasks are refused above 63 %, queries above 70 %.")
    expect(page.get_by_role("img")).to_have_count(2)
    assert_fine(page, "service")
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme="dark", forced_colors="active")
    assert_fine(page)


def test_each_text_has_its_tokens_its_vector_or_its_error(console: Console) -> None:
    console.calls_may_fail = True
    page = console.open("#/try")
    texts = ("When is my parcel late?", "", f"{MARKUP} !!fail!!", "word " * 400)  # the last one: above 256 tokens
    page.get_by_label("Texts, one a line").fill("\n".join(texts))
    page.get_by_role("button", name="Embed").click()
    rows = page.get_by_role("table", name="Vectors").locator("tbody tr")
    expect(rows).to_have_count(3)
    first, failed, long = rows.all()
    expect(first).to_contain_text("384 numbers")
    expect(failed).to_contain_text(MARKUP)
    expect(failed).to_contain_text("The model could not encode this text (RuntimeError).")
    expect(failed).to_contain_text("encoding_failed")
    expect(long).to_contain_text("cut")
    expect(page.get_by_role("heading", name="Vectors")).to_be_focused()
    expect(page.get_by_role("table", name="Cosine of each pair").get_by_role("cell").first).to_have_text("1.00")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy vector 1").click()
    expect(page.get_by_text("vector 1 is copied.", exact=True)).to_be_attached()
    assert len(json.loads(page.evaluate("navigator.clipboard.readText()"))) == 384
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert f"{console.stack.api.base_url}/v1/embeddings" in page.evaluate("navigator.clipboard.readText()")
    assert_fine(page)


def test_the_page_of_the_reference_shows_the_routes_and_what_they_take(console: Console) -> None:
    page = console.open(path="/docs")
    expect(page.get_by_role("heading", name="embedq")).to_be_visible()
    route = page.locator("#operations-tasks-list_tasks")
    route.get_by_role("button").first.click()
    expect(route.get_by_text("Objects per page.")).to_be_visible()
    expect(route.get_by_text("4XX")).to_be_visible()
