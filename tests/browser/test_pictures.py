"""The pictures of docs/console.md that need vectors with a meaning: the texts of docs/, and the real model."""

import pytest
from playwright.sync_api import expect

from tests.browser.console import Console, Stack, take_picture
from tests.processes import wait_until
from tests.source_tree import CHECKOUT

pytestmark = pytest.mark.timeout(600)

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def manual(stack: Stack) -> str:
    """A dataset of the project's own documentation."""
    stack.roles.worker(compute="auto", served_name=MODEL, storage_url=stack.roles.folder / "storage")
    wait_until(lambda: MODEL in [one["id"] for one in stack.call("GET", "/v1/models")["data"]], message=MODEL)
    documents = [
        {"id": page.name, "text": page.read_text(), "metadata": {"page": page.stem}}
        for page in sorted((CHECKOUT / "docs").glob("*.md"))
    ]
    chunking = {"type": "static", "static": {"max_chunk_size_tokens": 80, "chunk_overlap_tokens": 0}}
    sink = {"type": "dataset", "dataset": "manual"}
    body = {"source": {"documents": documents}, "sink": sink, "model": MODEL, "chunking": chunking}
    with stack.api.client() as client:
        ingestion = client.post("/v1/ingestions", json=body).raise_for_status().json()
    path = f"/v1/ingestions/{ingestion['id']}"
    wait_until(lambda: stack.call("GET", path)["status"] == "completed", timeout_s=500, message="the manual is loaded")
    return "manual"


def test_texts_are_compared(console: Console, manual: str) -> None:
    page = console.open("#/try")
    page.get_by_label("Model").select_option(MODEL)
    page.get_by_role("button", name="Embed").click()
    expect(page.get_by_role("heading", name="Cosine")).to_be_visible()
    take_picture(page, "try")


def test_a_dataset_is_searched(console: Console, manual: str) -> None:
    page = console.open(f"#/datasets/{manual}?q=Why+does+my+task+wait+so+long%3F&by=hybrid")
    expect(page.locator("li.hit").first).to_be_visible()
    take_picture(page, "search")
