"""The screen on which texts are tried: their vectors, how near they are to each other, and the same call as code."""

import json
import shlex

import numpy as np
from playwright.sync_api import Page, expect

from tests.browser.console import NARROW, Console, assert_accessible, assert_no_sideways_scroll

LONG = "word " * 400
"""Above the model's 256 tokens."""
MARKUP = "<img src=x onerror=alert(1)>"


def embed(page: Page, *texts: str) -> None:
    page.get_by_label("Texts, one a line").fill("\n".join(texts))
    page.get_by_role("button", name="Embed").click()


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_each_text_has_its_tokens_its_vector_or_its_error(console: Console) -> None:
    console.calls_may_fail = True
    page = console.open("#/try")
    embed(page, "a late parcel", "", f"{MARKUP} !!fail!!", LONG)
    rows = page.get_by_role("table", name="Vectors").locator("tbody tr")
    expect(rows).to_have_count(3)
    first, failed, long = rows.all()

    expect(first).to_contain_text("384 numbers")
    expect(failed).to_contain_text(MARKUP)
    expect(failed).to_contain_text("The model could not encode this text (RuntimeError).")
    expect(failed).to_contain_text("encoding_failed")
    expect(long).to_contain_text("cut")
    expect(page.get_by_role("heading", name="Vectors")).to_be_focused()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy vector 1").click()
    expect(page.get_by_text("vector 1 is copied.")).to_be_attached()
    assert len(json.loads(clipboard(page))) == 384
    assert_accessible(page)


def test_cosines_the_same_call_as_code_and_a_refused_call(console: Console) -> None:
    console.calls_may_fail = True
    texts = ["When is my parcel late?", 'It\'s on "Monday".', "Rain and sun."]
    with console.stack.api.client() as client:
        answer = client.post("/v1/embeddings", json={"input": texts, "dimensions": 64}).json()
    vectors = np.array([one["embedding"] for one in answer["data"]])
    page = console.open("#/try", size=NARROW, dark=True)
    page.get_by_label("Dimensions").fill("64")
    embed(page, *texts)
    table = page.get_by_role("table", name="Cosine of each pair")

    expect(table.get_by_role("cell").first).to_have_text("1.00")
    shown = [float(text.replace("\N{MINUS SIGN}", "-")) for text in table.get_by_role("cell").all_inner_texts()]
    assert np.allclose(shown, (vectors @ vectors.T).ravel(), atol=0.01)
    assert_no_sideways_scroll(page)
    assert_accessible(page)

    page.get_by_label("As").select_option("query")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    command = shlex.split(clipboard(page))
    assert command[4] == f"{console.stack.api.base_url}/v1/embeddings"
    body = json.loads(command[-1])
    assert (body["input"], body["dimensions"], body["prompt_name"]) == (texts, 64, "query")

    page.get_by_label("Dimensions").evaluate("(field) => field.form.noValidate = true")
    page.get_by_label("Dimensions").fill("385")
    embed(page, "a text")
    expect(page.locator("main [role=alert]")).to_contain_text("dimensions")
