"""The screen of one job: what failed and what to do, and its files."""

import json
import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.console import (
    NARROW,
    Console,
    assert_accessible,
    assert_no_sideways_scroll,
    line,
    take_picture,
)

MARKUP = "<script>alert(1)</script>"


def group(page: Page, code: str) -> Locator:
    """What failed with this code."""
    return page.get_by_role("listitem").filter(has=page.get_by_text(code, exact=True))


def test_a_failed_text_has_its_reason(console: Console) -> None:
    task_id = console.stack.submit("two of three", "good", "bad !!fail!!", "worse !!nan!!")
    page = console.open(f"#/jobs/{task_id}")

    expect(group(page, "encoding_failed")).to_contain_text("Submit it once more, then leave it out.")
    expect(group(page, "encoding_failed")).to_contain_text("input[1]")
    expect(group(page, "non_finite_vector")).to_contain_text("a retry would fail again")
    expect(page.get_by_role("region", name="Progress")).to_contain_text("1 of 3 texts")
    assert_accessible(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the vectors").click()
    assert len(json.loads(Path(download.value.path()).read_text())["data"]) == 3


def test_failed_lines_of_a_batch_and_its_files(console: Console) -> None:
    lines = line("fine", input="a text") + line(f"empty {MARKUP}", input="") + line("again", input="!!fail!!")
    batch_id = console.stack.batch("questions of April", lines)
    page = console.open(f"#/jobs/{batch_id}", forced_colors=True)

    expect(group(page, "empty_input")).to_contain_text(MARKUP)
    expect(group(page, "empty_input")).to_contain_text("a retry would fail again")
    expect(page.get_by_role("listitem").filter(has_text="Embed")).to_contain_text("2 failed")
    assert_accessible(page)
    page.emulate_media(forced_colors="none")
    take_picture(page, "job")
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {batch_id}-output.jsonl").click()
    assert json.loads(Path(download.value.path()).read_text())["custom_id"] == "fine"

    page.get_by_role("button", name="Retry 1 line").click()
    page.get_by_role("button", name="Retry this batch").click()
    expect(page.get_by_role("link", name=batch_id)).to_be_visible()  # the new one names that of which it is a retry
    expect(group(page, "encoding_failed")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its files stay until they are deleted or expire.")
    page.get_by_role("button", name="Delete this batch").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_a_file_that_cannot_be_used_names_its_lines_and_is_not_retried(console: Console) -> None:
    page = console.open(
        f"#/jobs/{console.stack.batch('unusable', line('a', input='x') + 'no json' + chr(10) + 'nor this')}"
    )

    found = group(page, "invalid_json_line")
    expect(found).to_contain_text("This line is not parseable as valid JSON.")
    found.get_by_text("line 2 and 1 other").click()
    expect(found).to_contain_text("line 3")
    expect(page.locator("main")).to_contain_text("Correct the file and upload it again.")
    expect(page.get_by_role("listitem").filter(has_text="Check")).to_contain_text("it broke here")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Retry"))).to_have_count(0)
    expect(page).to_have_title("failed: unusable · embedq")


def test_failed_documents_are_tried_again(console: Console) -> None:
    documents = {"good": "words", f"bad {MARKUP}": "!!fail!!", "empty": " ", "blank": " "}
    ingestion_id = console.stack.ingest("three failures", documents, dataset="failures")
    page = console.open(f"#/jobs/{ingestion_id}", size=NARROW)

    expect(group(page, "empty_document")).to_contain_text("The document has no text. Leave it out.")
    expect(group(page, "encoding_failed")).to_contain_text(f"bad {MARKUP}")
    expect(page.get_by_role("heading", name="Failed documents")).to_contain_text(
        "3, of which 1 can be retried as it is"
    )
    assert_no_sideways_scroll(page)
    assert_accessible(page)
    take_picture(page, "job-narrow")
    page.get_by_role("button", name="Retry 1 document").click()
    page.get_by_role("button", name="Retry this ingestion").click()
    expect(page.locator("[aria-live]")).to_have_text("The ingestion is completed, 3 failed.")
    expect(page.get_by_role("link", name="failures")).to_have_attribute("href", "#/datasets/failures")
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("^Download part-")).click()
    assert Path(download.value.path()).read_bytes()[:4] == b"PAR1"
    page.get_by_role("link", name="Show all 4 documents").click()
    expect(page.get_by_role("table", name="Documents").get_by_role("row")).to_have_count(5)


def test_a_job_that_is_deleted_meanwhile(console: Console) -> None:
    console.calls_may_fail = True
    with console.stack.standing_still():
        task_id = console.stack.submit("deleted while open", *(f"text {number}" for number in range(50)))
        page = console.open(f"#/jobs/{task_id}")
        expect(page.get_by_role("heading", level=1)).to_have_text("deleted while open")
        console.stack.call("DELETE", f"/v1/tasks/{task_id}")
        expect(page.get_by_role("heading", name="This job is not there")).to_be_visible()
