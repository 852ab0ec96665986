"""The screen of one job: what failed and what to do, and its files."""

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.console import NARROW, Console, assert_accessible, assert_no_sideways_scroll, take_picture

MARKUP = "<script>alert(1)</script>"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def failure(page: Page, name: str) -> Locator:
    """The row of what failed."""
    return page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))


def line(custom_id: str, **body: Any) -> str:
    request = {"method": "POST", "url": "/v1/embeddings", "body": {"model": MODEL, **body}}
    return json.dumps({"custom_id": custom_id, **request}) + "\n"


def test_a_failed_text_has_its_reason(console: Console) -> None:
    task_id = console.stack.submit("two of three", "good", "bad !!fail!!", "worse !!nan!!")
    page = console.open(f"#/jobs/{task_id}")

    expect(failure(page, "input[1]")).to_contain_text("encoding_failed")
    expect(failure(page, "input[1]")).to_contain_text("Submit it once more, then leave it out.")
    expect(failure(page, "input[2]")).to_contain_text("non_finite_vector")
    expect(page.get_by_role("region", name="Progress")).to_contain_text("3 of 3 · 100 % 2 failed")
    assert_accessible(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the vectors").click()
    assert len(json.loads(Path(download.value.path()).read_text())["data"]) == 3


def test_failed_lines_of_a_batch_and_its_files(console: Console) -> None:
    lines = line("fine", input="a text") + line(f"empty {MARKUP}", input="") + line("nan", input="!!nan!!")
    batch_id = console.stack.batch("questions of April", lines)
    page = console.open(f"#/jobs/{batch_id}")

    expect(failure(page, f"empty {MARKUP}")).to_contain_text("empty_input")
    expect(failure(page, "nan")).to_contain_text("Change the text, or leave it out.")
    take_picture(page, "job")
    page.emulate_media(color_scheme="dark")
    assert_accessible(page)
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {batch_id}-output.jsonl").click()
    assert json.loads(Path(download.value.path()).read_text())["custom_id"] == "fine"

    page.get_by_role("button", name="Retry").click()
    page.get_by_role("button", name="Yes, retry").click()
    expect(page.get_by_role("term").filter(has_text="metadata.retry_of").locator("..")).to_contain_text(batch_id)
    expect(failure(page, "nan")).to_be_visible()


def test_a_file_that_cannot_be_used_names_its_lines(console: Console) -> None:
    batch_id = console.stack.batch("unusable", line("a", input="x") + "no json\n")
    page = console.open(f"#/jobs/{batch_id}")

    expect(failure(page, "line 2")).to_contain_text("invalid_json_line")
    expect(failure(page, "line 2")).to_contain_text("This line is not parseable as valid JSON.")
    expect(page.get_by_text("failed", exact=True).first).to_be_visible()


def test_failed_documents_are_tried_again(console: Console) -> None:
    documents = {"good": "words", f"bad {MARKUP}": "!!fail!!", "empty": " "}
    ingestion_id = console.stack.ingest("two failures", documents, dataset="failures")
    page = console.open(f"#/jobs/{ingestion_id}", size=NARROW)

    expect(failure(page, "empty")).to_contain_text("The document has no text. Leave it out.")
    expect(failure(page, f"bad {MARKUP}")).to_contain_text("embedding")
    assert_no_sideways_scroll(page)
    take_picture(page, "job-narrow")
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("button", name="Yes, retry").click()
    expect(page.locator("[aria-live]")).to_have_text("The ingestion is completed.")
    expect(page.get_by_role("link", name="failures")).to_have_attribute("href", "#/datasets/failures")
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("^Download part-")).click()
    assert Path(download.value.path()).read_bytes()[:4] == b"PAR1"


def test_a_job_that_is_deleted_meanwhile(console: Console) -> None:
    console.calls_may_fail = True
    with console.stack.standing_still():
        task_id = console.stack.submit("deleted while open", *(f"text {number}" for number in range(50)))
        page = console.open(f"#/jobs/{task_id}")
        expect(page.get_by_role("heading", level=1)).to_have_text("deleted while open")
        console.stack.call("DELETE", f"/v1/tasks/{task_id}")
        expect(page.get_by_role("heading", name="This job is not there")).to_be_visible()
