"""The list of jobs: live, filtered, paged, and what can be done there."""

import json
import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.console import NARROW, Console, assert_accessible, assert_no_sideways_scroll, take_picture

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MARKUP = "<img src=x onerror=alert(1)><b>bold</b> \"'&amp;"


def row(page: Page, name: str) -> Locator:
    """The row of a job."""
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def confirm(page: Page, answer: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=answer).click()


def test_an_ingestion_is_followed_from_its_beginning_to_its_end(console: Console) -> None:
    page = console.open("#/jobs?kind=ingestion")
    stack = console.stack
    with stack.standing_still():
        ingestion_id = stack.ingest("followed", {f"doc {number}": f"words of {number}" for number in range(3)})

        expect(row(page, "followed")).to_contain_text("in progress")
        expect(row(page, "followed")).to_contain_text("0 of 3")
        page.get_by_role("link", name="followed").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("followed")
        expect(page.get_by_role("listitem").filter(has_text="Parsing")).to_contain_text("3 chunks")
        expect(page.get_by_text("Why it is not done")).to_be_visible()
    expect(page.get_by_text("3 of 3 · 100 %")).to_be_visible()
    expect(page.get_by_text("completed", exact=True).first).to_be_visible()
    expect(page.locator("[aria-live]")).to_have_text("The ingestion is completed.")
    page.go_back()
    expect(row(page, "followed")).to_contain_text("3 of 3 · 100 %")
    assert stack.call("GET", f"/v1/ingestions/{ingestion_id}")["status"] == "completed"


def test_all_kinds_are_in_one_list_and_say_why_they_wait(console: Console) -> None:
    stack = console.stack
    texts = {"good": "a text", "bad": ""}
    request = {"method": "POST", "url": "/v1/embeddings"}
    lines = (
        json.dumps({"custom_id": name, **request, "body": {"model": MODEL, "input": texts[name]}}) for name in texts
    )
    stack.wait_for_end(f"/v1/batches/{stack.batch('questions of May', chr(10).join(lines))}")
    chapters = {f"chapter-{number:02}.md": f"text {number}" for number in range(20)}
    stack.wait_for_end(f"/v1/ingestions/{stack.ingest('handbook, nightly', chapters)}")
    stack.batch("export of the wiki", "{}\nno json")
    page = console.open("#/jobs")
    with stack.standing_still():
        stack.submit("reviews of 2026", *(f"review {number}" for number in range(300)), lane="bulk")
        stack.submit("product texts", *(f"product {number}" for number in range(300)), lane="bulk")

        expect(row(page, "product texts")).to_contain_text("in the bulk lane")
        expect(row(page, "export of the wiki")).to_contain_text("failed")
        expect(row(page, "questions of May")).to_contain_text("1 failed")
        expect(row(page, "handbook, nightly")).to_contain_text("20 of 20")
        assert_accessible(page)
        take_picture(page, "jobs")
        page.emulate_media(color_scheme="dark")
        take_picture(page, "jobs-dark")


def test_a_task_is_cancelled_and_deleted_after_a_question(console: Console) -> None:
    page = console.open("#/jobs?kind=task")
    with console.stack.standing_still():
        console.stack.submit("unwanted", *(f"text {number}" for number in range(50)), lane="bulk")
        cancel = row(page, "unwanted").get_by_role("button", name="Cancel")
        cancel.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name="Cancel this task?")).to_be_visible()
        expect(page.get_by_role("button", name="No, keep it")).to_be_focused()
        assert_accessible(page)
        page.keyboard.press("Escape")
        expect(cancel).to_be_focused()
        cancel.click()
        confirm(page, "Yes, cancel")
        expect(row(page, "unwanted")).to_contain_text("cancelled")
    row(page, "unwanted").get_by_role("button", name="Delete").click()
    confirm(page, "Yes, delete")
    expect(row(page, "unwanted")).to_have_count(0)
    expect(page.get_by_label("Kind")).to_have_value("task")


def test_jobs_are_filtered_by_kind_and_state(console: Console) -> None:
    console.stack.wait_for_end(f"/v1/tasks/{console.stack.submit('filtered', 'a text')}")
    page = console.open("#/jobs")
    expect(row(page, "filtered")).to_be_visible()

    page.get_by_label("State").select_option("Expired")
    expect(page.get_by_role("heading", name="No job fits")).to_be_visible()
    page.get_by_label("State").select_option("Completed")
    page.get_by_label("Kind").select_option("Tasks")
    expect(row(page, "filtered")).to_be_visible()
    expect(page.locator("[aria-live]")).to_have_text(re.compile("job"))
    page.reload()
    expect(page.get_by_label("Kind")).to_have_value("task")
    expect(row(page, "filtered")).to_be_visible()
    page.get_by_label("Kind").select_option("Batches")
    expect(row(page, "filtered")).to_have_count(0)


def test_older_jobs_are_on_further_pages(console: Console) -> None:
    names = ["the oldest", *(f"number {number}" for number in range(100))]
    task_ids = console.stack.submit_all(names)
    page = console.open("#/jobs?kind=task")
    expect(row(page, "number 99")).to_be_visible()
    expect(row(page, "the oldest")).to_have_count(0)

    page.get_by_role("link", name="Older jobs").click()
    expect(row(page, "the oldest")).to_be_visible()
    expect(row(page, "number 99")).to_have_count(0)
    page.get_by_role("link", name="Back to the newest").click()
    expect(row(page, "number 99")).to_be_visible()
    page.close()
    console.stack.delete_all(task_ids)


def test_markup_in_names_is_text(console: Console) -> None:
    console.stack.submit(MARKUP, "a text")
    page = console.open("#/jobs")
    row(page, MARKUP).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    expect(page.locator("main img, main b")).to_have_count(0)
    page.go_back()
    expect(row(page, MARKUP)).to_be_visible()
    expect(page.locator("main img, main b")).to_have_count(0)


def test_a_narrow_dark_screen_shows_all_of_it(console: Console) -> None:
    console.stack.submit("a job with " + "a very long name " * 5 + "without_any_space" * 10, "a text")
    page = console.open("#/jobs", size=NARROW, dark=True)
    expect(page.get_by_role("link", name=re.compile("a job with"))).to_be_visible()
    assert_no_sideways_scroll(page)
    assert_accessible(page)
