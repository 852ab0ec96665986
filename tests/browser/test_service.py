"""The screens of the service and of texts that are tried, and the page at /docs."""

import json
import os
import shlex
import signal

import numpy as np
from playwright.sync_api import Page, expect

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
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    page.emulate_media(color_scheme="dark", forced_colors="active")
    assert_fine(page)


def embed(page: Page, *texts: str) -> None:
    page.get_by_label("Texts, one a line").fill("\n".join(texts))
    page.get_by_role("button", name="Embed").click()


def copied(page: Page, button: str, says: str) -> str:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=button).click()
    expect(page.get_by_text(says, exact=True)).to_be_attached()
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_each_text_has_its_tokens_its_vector_or_its_error(console: Console) -> None:
    console.calls_may_fail = True
    page = console.open("#/try")
    embed(page, "a late parcel", "", f"{MARKUP} !!fail!!", "word " * 400)  # the last one: above the model's 256 tokens
    rows = page.get_by_role("table", name="Vectors").locator("tbody tr")
    expect(rows).to_have_count(3)
    first, failed, long = rows.all()
    expect(first).to_contain_text("384 numbers")
    expect(failed).to_contain_text(MARKUP)
    expect(failed).to_contain_text("The model could not encode this text (RuntimeError).")
    expect(failed).to_contain_text("encoding_failed")
    expect(long).to_contain_text("cut")
    expect(page.get_by_role("heading", name="Vectors")).to_be_focused()
    assert len(json.loads(copied(page, "Copy vector 1", "vector 1 is copied."))) == 384
    assert_fine(page)


def test_cosines_the_same_call_as_code_and_a_refused_call(console: Console) -> None:
    console.calls_may_fail = True
    texts = ["When is my parcel late?", 'It\'s on "Monday".', "Rain and sun."]
    answer = console.stack.call("POST", "/v1/embeddings", json={"input": texts, "dimensions": 64})
    vectors = np.array([one["embedding"] for one in answer["data"]])
    page = console.open("#/try", size=NARROW, dark=True)
    page.get_by_label("Dimensions").fill("64")
    embed(page, *texts)
    cells = page.get_by_role("table", name="Cosine of each pair").get_by_role("cell")
    expect(cells.first).to_have_text("1.00")
    shown = [float(text.replace("\N{MINUS SIGN}", "-")) for text in cells.all_inner_texts()]
    assert np.allclose(shown, (vectors @ vectors.T).ravel(), atol=0.01)
    assert_fine(page)

    page.get_by_label("As").select_option("query")
    command = shlex.split(copied(page, "Copy as curl", "Copied"))
    assert command[4] == f"{console.stack.api.base_url}/v1/embeddings"
    body = json.loads(command[-1])
    assert (body["input"], body["dimensions"], body["prompt_name"]) == (texts, 64, "query")
    page.get_by_label("Dimensions").evaluate("(field) => field.form.noValidate = true")
    page.get_by_label("Dimensions").fill("385")
    embed(page, "a text")
    expect(page.locator("main [role=alert]")).to_contain_text("dimensions")


def test_the_page_of_the_reference_shows_the_routes_and_what_they_take(console: Console) -> None:
    page = console.open(path="/docs")
    expect(page.get_by_role("heading", name="embedq")).to_be_visible()
    route = page.locator("#operations-tasks-list_tasks")
    route.get_by_role("button").first.click()
    expect(route.get_by_text("Objects per page.")).to_be_visible()
    expect(route.get_by_text("4XX")).to_be_visible()
