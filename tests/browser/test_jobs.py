"""Jobs: the list, live, searched, filtered, paged; and one job with its progress, its failures and its files."""

import json
import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.console import MARKUP, NARROW, Console, assert_fine


def row(page: Page, name: str) -> Locator:
    """The row of a job."""
    return page.get_by_role("listitem").filter(has=page.get_by_role("link", name=name, exact=True))


def group(page: Page, code: str) -> Locator:
    """What failed with this code."""
    return page.get_by_role("listitem").filter(has=page.get_by_text(code, exact=True))


def press(page: Page, *buttons: str) -> None:
    for name in buttons:
        page.get_by_role("button", name=name).click()


def downloaded(page: Page, button: str | re.Pattern[str]) -> bytes:
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path()).read_bytes()


def test_an_ingestion_is_followed_from_its_beginning_to_its_end(console: Console) -> None:
    page = console.open("#/jobs?kind=ingestion")
    title = page.get_by_role("heading", level=1)
    with console.stack.standing_still():
        console.stack.ingest("followed", [{"id": f"doc {n}", "text": f"words of {n}"} for n in range(3)])
        expect(row(page, "followed")).to_contain_text("in progress")
        page.get_by_role("link", name="followed").click()
        expect(title).to_have_text("followed")
        expect(title).to_be_focused()
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.get_by_role("dialog", name="Cancel “followed”?")).to_contain_text("The others will be left out.")
        expect(page.get_by_role("button", name="Keep it running")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    expect(page.get_by_role("region", name="Progress")).to_contain_text("3 of 3 documents loaded")
    expect(page.locator("[aria-live]")).to_have_text("The ingestion is completed.")
    expect(page.get_by_role("listitem").filter(has_text="Parse")).to_contain_text("3 chunks")
    expect(page).to_have_title("followed · embedq")
    page.go_back()
    expect(row(page, "followed")).to_contain_text("3 of 3 documents loaded")


def test_all_kinds_are_in_one_list_and_say_why_they_wait(console: Console) -> None:
    stack = console.stack
    stack.wait_for_end(f"/v1/batches/{stack.batch('questions of May', {'good': 'a text', 'bad': ''})}")
    chapters = [{"id": f"chapter-{number:02}.md", "text": f"text {number}"} for number in range(20)]
    stack.wait_for_end(f"/v1/ingestions/{stack.ingest('handbook, nightly', chapters)}")
    stack.submit("first single")
    stack.wait_for_end(f"/v1/tasks/{stack.submit('second single')}")
    stack.wait_for_end(f"/v1/batches/{stack.batch('export of the wiki', {}, '{}', 'no json')}")
    page = console.open("#/jobs")
    with stack.standing_still():
        stack.submit("reviews of 2026", *(f"review {number}" for number in range(300)), lane="bulk")
        waits = stack.submit("product texts", *(f"product {number}" for number in range(300)), lane="bulk")
        for name, says in {
            "product texts": "0 of 300 texts · other work goes first",
            "export of the wiki": "Line 1: ",
            "questions of May": "completed, 1 failed",
            "handbook, nightly": "20 of 20 documents loaded",
        }.items():
            expect(row(page, name)).to_contain_text(says)
        expect(page.get_by_role("group")).to_contain_text("2 single texts")
        expect(page.get_by_role("link", name="first single")).to_be_hidden()
        assert_fine(page, "jobs")
        page.get_by_role("link", name="product texts").click()
        press(page, "Cancel", "Cancel this task")
        expect(page.locator("main")).to_contain_text("cancelled")
        assert stack.call("GET", f"/v1/tasks/{waits}")["status"] == "cancelled"
        press(page, "Delete", "Delete this task")
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        expect(row(page, "product texts")).to_have_count(0)


def test_jobs_are_found_by_name_kind_and_state(console: Console) -> None:
    stack = console.stack
    found = stack.submit("filtered, once", "a text")
    stack.wait_for_end(f"/v1/tasks/{found}")
    stack.wait_for_end(f"/v1/tasks/{stack.submit('half of it', 'good', '!!fail!!')}")
    page = console.open("#/jobs")
    name, kind, state = (page.get_by_label(each, exact=True) for each in ("Find by name or id", "Kind", "State"))
    name.fill("FILTERED")
    expect(row(page, "filtered, once")).to_be_visible()
    expect(page.locator("ol.rows > li")).to_have_count(1)
    expect(name).to_be_focused()
    expect(page.locator("[aria-live]")).to_have_text("1 job")
    kind.select_option("Tasks")
    page.reload()
    expect(name).to_have_value("FILTERED")
    expect(row(page, "filtered, once")).to_be_visible()
    kind.select_option("Batches")
    expect(page.get_by_role("heading", name="No job is called “FILTERED”")).to_be_visible()
    kind.select_option("All kinds")
    name.fill(found[-8:])
    expect(row(page, "filtered, once")).to_be_visible()
    name.fill("half")
    state.select_option("Failed, or with failures")
    expect(row(page, "half of it")).to_contain_text("completed, 1 failed")
    state.select_option("Waiting")
    expect(page.get_by_role("heading", name="No job is called “half”")).to_be_visible()
    expect(page.get_by_role("link", name="Show all jobs")).to_be_visible()


def test_older_jobs_are_on_further_pages(console: Console) -> None:
    names = ["the oldest", *(f"number {number}" for number in range(50))]
    made = [console.stack.submit(name, "two", "texts") for name in names]
    page = console.open("#/jobs?kind=task")
    expect(row(page, "number 49")).to_be_visible()
    expect(row(page, "the oldest")).to_have_count(0)
    page.get_by_role("link", name="Older").press("Enter")
    expect(row(page, "the oldest")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.get_by_role("link", name="Newer").click()
    row(page, "number 5").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("number 5")
    page.go_back()
    expect(row(page, "number 5")).to_be_in_viewport()
    page.close()
    for task in made:  # or the lists of other tests would be long
        console.stack.call("DELETE", f"/v1/tasks/{task}")


def test_markup_in_names_is_text_and_a_narrow_dark_screen_shows_all_of_it(console: Console) -> None:
    console.stack.submit(MARKUP, "a text", "another")
    console.stack.submit("a job with " + "a very long name " * 5 + "without_any_space" * 10, "a text", "another")
    page = console.open("#/jobs", size=NARROW, color_scheme="dark")
    expect(page.get_by_role("link", name=re.compile("a job with"))).to_be_visible()
    assert_fine(page)
    row(page, MARKUP).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    expect(page.locator("main img, h1 b")).to_have_count(0)


def test_a_failed_text_has_its_reason_and_a_task_may_be_deleted_meanwhile(console: Console) -> None:
    task_id = console.stack.submit("two of three", "good", "bad !!fail!!", "worse !!nan!!")
    page = console.open(f"#/jobs/{task_id}")
    expect(group(page, "encoding_failed")).to_contain_text("Submit it once more, then leave it out.")
    expect(group(page, "encoding_failed")).to_contain_text("input[1]")
    expect(group(page, "non_finite_vector")).to_contain_text("a retry would fail again")
    expect(page.get_by_role("region", name="Progress")).to_contain_text("1 of 3 texts")
    assert_fine(page)
    assert len(json.loads(downloaded(page, "Download the vectors"))["data"]) == 3
    console.calls_may_fail = True
    with console.stack.standing_still():
        task_id = console.stack.submit("deleted while open", *(f"text {number}" for number in range(50)))
        page = console.open(f"#/jobs/{task_id}")
        expect(page.get_by_role("heading", level=1)).to_have_text("deleted while open")
        console.stack.call("DELETE", f"/v1/tasks/{task_id}")
        expect(page.get_by_role("heading", name="This job is not there")).to_be_visible()


def test_failed_lines_of_a_batch_and_its_files(console: Console) -> None:
    texts = {"fine": "a text", f"empty {MARKUP}": "", "again": "!!fail!!"}
    batch_id = console.stack.batch("questions of April", texts)
    page = console.open(f"#/jobs/{batch_id}")
    expect(group(page, "empty_input")).to_contain_text(MARKUP)
    expect(group(page, "empty_input")).to_contain_text("a retry would fail again")
    expect(page.get_by_role("listitem").filter(has_text="Embed")).to_contain_text("2 failed")
    assert_fine(page, "job")
    page.emulate_media(forced_colors="active")
    assert_fine(page)
    assert json.loads(downloaded(page, f"Download {batch_id}-output.jsonl"))["custom_id"] == "fine"
    press(page, "Retry 1 line", "Retry this batch")
    expect(page.get_by_role("link", name=batch_id)).to_be_visible()  # the new one names that of which it is a retry
    expect(group(page, "encoding_failed")).to_be_visible()
    press(page, "Delete")
    expect(page.get_by_role("dialog")).to_contain_text("Its files stay until they are deleted or expire.")
    press(page, "Delete this batch")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_a_file_that_cannot_be_used_names_its_lines_and_is_not_retried(console: Console) -> None:
    page = console.open(f"#/jobs/{console.stack.batch('unusable', {'a': 'x'}, 'no json', 'nor this')}")
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
    texts = {"good": "words", f"bad {MARKUP}": "!!fail!!", "empty": " ", "blank": " "}
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    page = console.open(f"#/jobs/{console.stack.ingest('three failures', documents, 'failures')}", size=NARROW)
    expect(group(page, "empty_document")).to_contain_text("The document has no text. Leave it out.")
    expect(group(page, "encoding_failed")).to_contain_text(f"bad {MARKUP}")
    heading = page.get_by_role("heading", name="Failed documents")
    expect(heading).to_contain_text("3, of which 1 can be retried as it is")
    assert_fine(page, "job-narrow")
    press(page, "Retry 1 document", "Retry this ingestion")
    expect(page.locator("[aria-live]")).to_have_text("The ingestion is completed, 3 failed.")
    expect(page.get_by_role("link", name="failures")).to_have_attribute("href", "#/datasets/failures")
    assert downloaded(page, re.compile("^Download part-"))[:4] == b"PAR1"
    page.get_by_role("link", name="Show all 4 documents").click()
    expect(page.get_by_role("table", name="Documents").get_by_role("row")).to_have_count(5)
