"""The screen on which texts are tried: their vectors, how near they are to each other, and the same call as code."""

import numpy as np
from playwright.sync_api import Page, expect

from tests.browser.console import NARROW, Console, assert_accessible, assert_no_sideways_scroll

LONG = "word " * 400
"""Above the model's 256 tokens."""
MARKUP = "<img src=x onerror=alert(1)>"


def make_vectors(page: Page, *texts: str) -> None:
    page.get_by_label("Texts, one per line").fill("\n".join(texts))
    page.get_by_role("button", name="Make vectors").click()


def test_each_text_has_its_tokens_its_vector_or_its_error(console: Console) -> None:
    console.calls_may_fail = True
    page = console.open("#/try")
    make_vectors(page, "a late parcel", "", f"{MARKUP} !!fail!!", LONG)
    rows = page.get_by_role("table", name="Vectors").locator("tbody tr")
    expect(rows).to_have_count(3)
    first, failed, long = rows.all()

    expect(first).to_contain_text("384")
    expect(failed).to_contain_text(MARKUP)
    expect(failed).to_contain_text("The model could not encode this text (RuntimeError).")
    expect(failed).to_contain_text("encoding_failed")
    expect(long).to_contain_text("truncated")
    expect(page.get_by_role("heading", name="Vectors")).to_be_focused()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy vector 1").click()
    expect(page.get_by_text("Vector 1 is copied.")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText().then((text) => JSON.parse(text).length)") == 384
    assert_accessible(page)


def test_similarity_is_a_table_of_cosines_and_the_call_is_code(console: Console) -> None:
    texts = ["When is my parcel late?", "The parcel comes on Monday.", "Rain and sun."]
    with console.stack.api.client() as client:
        answer = client.post("/v1/embeddings", json={"input": texts, "dimensions": 64}).json()
    vectors = np.array([one["embedding"] for one in answer["data"]])
    page = console.open("#/try")
    page.get_by_label("Dimensions").fill("64")
    make_vectors(page, *texts)
    table = page.get_by_role("table", name="Cosine similarity")

    expect(table.get_by_role("cell").first).to_have_text("1.00")
    shown = [float(text) for text in table.get_by_role("cell").all_inner_texts()]
    assert np.allclose(shown, (vectors @ vectors.T).ravel(), atol=0.01)
    expect(page.get_by_role("table", name="Vectors").locator("tbody tr").first).to_contain_text("64")

    # The same call as code.
    page.get_by_label("Texts, one per line").fill('it\'s "quoted"')
    page.get_by_label("Dimensions").fill("8")
    page.get_by_label("Prompt").select_option("query")
    command = page.get_by_role("region", name="curl code")

    expect(command).to_contain_text(f"{console.stack.api.base_url}/v1/embeddings")
    expect(command).to_contain_text('"dimensions":8,"prompt_name":"query"')
    page.get_by_role("button", name="Python", exact=True).click()
    code = page.get_by_role("region", name="Python code").inner_text()
    assert 'input=["it\'s \\"quoted\\""]' in code
    compile(code, "shown", "exec")


def test_a_refused_call_says_why(console: Console) -> None:
    console.calls_may_fail = True
    page = console.open("#/try", size=NARROW, dark=True)
    page.get_by_label("Dimensions").evaluate("(field) => field.form.noValidate = true")
    page.get_by_label("Dimensions").fill("385")
    make_vectors(page, "a text", "another text")

    expect(page.get_by_role("alert")).to_contain_text("dimensions")
    page.get_by_label("Dimensions").fill("")
    make_vectors(page, "a text", "another text", LONG)
    expect(page.get_by_role("heading", name="Similarity")).to_be_visible()
    assert_no_sideways_scroll(page)
    assert_accessible(page)
