"""The screen of datasets: the list, and one dataset that is read and searched."""

import pytest
from playwright.sync_api import expect

from tests.browser.console import NARROW, Console, Stack, assert_accessible, assert_no_sideways_scroll

MARKUP = "<img src=x onerror=alert(1)>"
TOPICS = {
    "billing": "refund invoice payment card money",
    "shipping": "parcel courier address delivery box",
    "weather": "rain snow wind cloud storm",
}
LONG = "\n\n".join(f"Paragraph {number} of the long document. {'It goes on. ' * 60}" for number in range(12))


def ingest(stack: Stack, dataset: str, documents: list[dict[str, object]]) -> None:
    """Loads documents into a dataset."""
    body = {"source": {"documents": documents}, "sink": {"type": "dataset", "dataset": dataset}}
    with stack.api.client() as client:
        ingestion = client.post("/v1/ingestions", json=body).raise_for_status().json()
    assert stack.wait_for_end(f"/v1/ingestions/{ingestion['id']}")["status"] == "completed"


@pytest.fixture(scope="module")
def library(stack: Stack) -> str:
    """A dataset of 31 documents, one of them of several chunks and with markup wherever a user may write."""
    documents: list[dict[str, object]] = [
        {
            "id": f"{topic}-{number}",
            "text": f"{words} number {number}",
            "metadata": {"topic": topic, "year": 2020 + number % 3},
        }
        for topic, words in TOPICS.items()
        for number in range(10)
    ]
    documents.append({"id": f"long {MARKUP}", "text": f"# {MARKUP}\n\n{LONG}", "metadata": {"topic": MARKUP}})
    ingest(stack, "library", documents)
    return "library"


def test_datasets_are_listed_and_deleted_after_a_confirmation(console: Console, library: str) -> None:
    ingest(console.stack, "short-lived", [{"id": "only", "text": "one text"}])
    page = console.open("#/datasets", size=NARROW, dark=True)
    row = page.get_by_role("row").filter(has_text="short-lived")
    expect(page.get_by_role("row").filter(has_text=library)).to_contain_text("31")
    assert_no_sideways_scroll(page)
    assert_accessible(page)
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="No, keep it").click()
    row.get_by_role("link", name="short-lived").click()
    page.get_by_role("button", name="Delete dataset short-lived").click()
    expect(page.get_by_role("dialog")).to_contain_text("All chunks (1) and their vectors are deleted for good")
    page.get_by_role("button", name="Yes, delete").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Datasets")
    expect(page.get_by_role("row").filter(has_text=library)).to_be_visible()
    expect(row).to_have_count(0)


def test_documents_and_chunks_are_shown_as_text_and_unknown_names_are_errors(console: Console, library: str) -> None:
    page = console.open(f"#/datasets/{library}?view=documents")
    expect(page.get_by_role("table", name="Documents").locator("tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name=f"long {MARKUP}").click()

    expect(page.get_by_role("heading", name=f"Chunks of long {MARKUP}")).to_be_visible()
    second = page.get_by_role("article").nth(1)
    expect(second).to_contain_text("chunk 1 · characters")
    expect(second).to_contain_text(MARKUP)  # in its metadata
    expect(second).to_contain_text("It goes on.")
    expect(page.locator("main img")).to_have_count(0)
    assert_accessible(page)
    page.get_by_role("link", name="All documents").click()
    expect(page.get_by_role("table", name="Documents")).to_contain_text("billing-0")
    page.goto(f"{page.url.partition('?')[0]}?view=toString")  # typed by hand: not a view, though objects have it
    expect(page.get_by_role("heading", name="Search")).to_be_visible()
    console.calls_may_fail = True
    page.goto(f"{page.url.partition('#')[0]}#/datasets/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("dataset_not_found")
    expect(page.get_by_role("heading", level=1)).to_have_text("Dataset nowhere")


def test_a_dataset_is_searched_by_keyboard(console: Console, library: str) -> None:
    query = "when does it rain?"
    with console.stack.api.client() as client:
        (best, *_) = client.post(f"/v1/datasets/{library}/search", json={"query": query}).json()["data"]
    page = console.open(f"#/datasets/{library}", size=NARROW)
    page.get_by_role("searchbox", name="Text").focus()
    page.keyboard.type(query)
    page.keyboard.press("Enter")
    hits = page.get_by_role("article")
    expect(hits).to_have_count(10)
    expect(hits.first).to_contain_text(best["document_id"])
    expect(hits.first.get_by_title("Cosine similarity")).to_have_text(f"{best['score']:.3f}")
    page.get_by_text("Only chunks with a value").click()
    page.get_by_label("Field").fill("year")
    page.get_by_label("Value").fill("2021")  # a number in the metadata
    page.keyboard.press("Enter")

    expect(page.locator(".metadata")).to_contain_text(["year 2021"] * 9)
    expect(page.get_by_role("region", name="curl command")).to_contain_text('"filter":{"year":2021}')
    assert_no_sideways_scroll(page)
    assert_accessible(page)
    page.get_by_label("Value").fill("1066")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No chunk of library fits.")).to_be_visible()
    page.get_by_label("Field").fill("")
    page.get_by_role("searchbox", name="Text").fill("umbrella parcel")
    page.get_by_role("combobox", name="Search").select_option("by words")
    page.get_by_role("button", name="Search").click()
    expect(hits.first.get_by_title("Rank")).to_be_visible()
    expect(page.get_by_role("article").filter(has_text="parcel courier")).to_have_count(10)
