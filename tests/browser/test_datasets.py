"""The screen of datasets: the list, and one dataset that is read and searched."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.console import MARKUP, NARROW, Console, Stack, assert_fine

TOPICS = {
    "billing": "refund invoice payment card money",
    "shipping": "parcel courier address delivery box",
    "weather": "rain snow wind cloud storm",
}
LONG = "\n\n".join(f"Paragraph {number} of the long document. {'It goes on. ' * 60}" for number in range(12))


@pytest.fixture(scope="module")
def library(stack: Stack) -> str:
    """A dataset of 31 documents, one of them of several chunks and with markup wherever a user may write."""
    documents: list[dict[str, Any]] = [
        {"id": f"{topic}-{n}", "text": f"{words} number {n}", "metadata": {"topic": topic, "year": 2020 + n % 3}}
        for topic, words in TOPICS.items()
        for n in range(10)
    ]
    documents.append({"id": f"long {MARKUP}", "text": f"# {MARKUP}\n\n{LONG}", "metadata": {"topic": MARKUP}})
    stack.wait_for_end(f"/v1/ingestions/{stack.ingest('of the library', documents, 'library')}")
    return "library"


def test_datasets_are_listed_and_deleted_after_a_confirmation(console: Console, library: str) -> None:
    stack = console.stack
    ingestion = stack.ingest("one", [{"id": "only", "text": "one text"}], "short-lived")
    stack.wait_for_end(f"/v1/ingestions/{ingestion}")
    page = console.open("#/datasets", size=NARROW, color_scheme="dark")
    row = page.get_by_role("row").filter(has_text="short-lived")
    expect(page.get_by_role("row").filter(has_text=library)).to_contain_text("31")
    assert_fine(page)
    row.get_by_role("link", name="short-lived").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("All chunks (1) and their vectors are deleted for good")
    page.get_by_role("button", name="Delete this dataset").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Datasets")
    expect(page.get_by_role("row").filter(has_text=library)).to_be_visible()
    expect(row).to_have_count(0)


def test_documents_and_chunks_are_shown_as_text_and_unknown_names_are_errors(console: Console, library: str) -> None:
    page = console.open(f"#/datasets/{library}?view=documents")
    expect(page.get_by_role("table", name="Documents").locator("tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Older").click()
    page.get_by_role("link", name=f"long {MARKUP}").click()
    expect(page.get_by_role("heading", name=f"long {MARKUP}")).to_be_visible()
    second = page.locator("li.hit").nth(1)
    for text in ("characters", MARKUP, "It goes on."):  # the markup: in its metadata
        expect(second).to_contain_text(text)
    expect(page.locator("main img")).to_have_count(0)
    assert_fine(page)
    page.get_by_role("link", name="All documents").click()
    expect(page.get_by_role("table", name="Documents")).to_contain_text("billing-0")
    console.calls_may_fail = True
    page.goto(f"{page.url.partition('#')[0]}#/datasets/nowhere")
    expect(page.locator("main [role=alert]")).to_contain_text("dataset_not_found")


def test_a_dataset_is_searched_by_keyboard(console: Console, library: str) -> None:
    query = "when does it rain?"
    best = console.stack.call("POST", f"/v1/datasets/{library}/search", json={"query": query})["data"][0]
    page = console.open(f"#/datasets/{library}", size=NARROW)
    asked, where, hits = page.get_by_label("Search for"), page.get_by_label("Only where"), page.locator("li.hit")
    asked.focus()
    page.keyboard.type(query)
    page.keyboard.press("Enter")
    expect(hits).to_have_count(10)
    expect(hits.first).to_contain_text(best["document_id"])
    expect(hits.first).to_contain_text(f"1 {best['score']:.3f}")
    expect(page.locator("[aria-live]")).to_have_text("10 chunks found.")
    page.reload()  # what was asked stands in the address
    expect(asked).to_have_value(query)
    where.fill("year=2021")  # a number in the metadata
    page.keyboard.press("Enter")
    expect(page.locator(".about")).to_contain_text(["year=2021"] * 9)
    assert_fine(page)
    where.fill("year=1066")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No chunk has year=1066")).to_be_visible()
    where.fill("year")
    page.keyboard.press("Enter")
    expect(page.locator("main [role=alert]")).to_contain_text("“year” is not FIELD=VALUE.")
    expect(hits).to_have_count(0)
    where.fill("")
    asked.fill("umbrella parcel")
    page.get_by_text("Words", exact=True).click()
    page.get_by_role("button", name="Search").click()
    expect(hits.filter(has_text="parcel courier")).to_have_count(10)
    expect(page.locator("mark").first).to_have_text("parcel")
