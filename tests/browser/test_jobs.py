"""The list of jobs: live, searched, filtered, paged."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.console import (
    NARROW,
    Console,
    assert_accessible,
    assert_no_sideways_scroll,
    line,
    take_picture,
)

MARKUP = "<img src=x onerror=alert(1)><b>bold</b> \"'&amp;"


def row(page: Page, name: str) -> Locator:
    """The row of a job."""
    return page.get_by_role("listitem").filter(has=page.get_by_role("link", name=name, exact=True))


def test_an_ingestion_is_followed_from_its_beginning_to_its_end(console: Console) -> None:
    page = console.open("#/jobs?kind=ingestion")
    stack = console.stack
    with stack.standing_still():
        ingestion_id = stack.ingest("followed", {f"doc {number}": f"words of {number}" for number in range(3)})

        expect(row(page, "followed")).to_contain_text("in progress")
        page.get_by_role("link", name="followed").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("followed")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.get_by_role("dialog", name="Cancel “followed”?")).to_contain_text(
            "are done and stay. The others will be left out."
        )
        expect(page.get_by_role("button", name="Keep it running")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    expect(page.get_by_role("region", name="Progress")).to_contain_text("3 of 3 documents loaded")
    expect(page.locator("[aria-live]")).to_have_text("The ingestion is completed.")
    expect(page.get_by_role("listitem").filter(has_text="Parse")).to_contain_text("3 chunks")
    expect(page).to_have_title("followed · embedq")
    page.go_back()
    expect(row(page, "followed")).to_contain_text("3 of 3 documents loaded")
    assert stack.call("GET", f"/v1/ingestions/{ingestion_id}")["status"] == "completed"


def test_all_kinds_are_in_one_list_and_say_why_they_wait(console: Console) -> None:
    stack = console.stack
    lines = line("good", input="a text") + line("bad", input="")
    stack.wait_for_end(f"/v1/batches/{stack.batch('questions of May', lines)}")
    chapters = {f"chapter-{number:02}.md": f"text {number}" for number in range(20)}
    stack.wait_for_end(f"/v1/ingestions/{stack.ingest('handbook, nightly', chapters)}")
    stack.wait_for_end(f"/v1/tasks/{stack.submit_all(['first single', 'second single'])[1]}")
    stack.wait_for_end(f"/v1/batches/{stack.batch('export of the wiki', '{}' + chr(10) + 'no json')}")
    page = console.open("#/jobs")
    with stack.standing_still():
        stack.submit("reviews of 2026", *(f"review {number}" for number in range(300)), lane="bulk")
        waits = stack.submit("product texts", *(f"product {number}" for number in range(300)), lane="bulk")

        expect(row(page, "product texts")).to_contain_text("0 of 300 texts · other work goes first")
        expect(row(page, "export of the wiki")).to_contain_text("Line 1: ")
        expect(row(page, "questions of May")).to_contain_text("completed, 1 failed")
        expect(row(page, "handbook, nightly")).to_contain_text("20 of 20 documents loaded")
        expect(page.get_by_role("group")).to_contain_text("2 single texts")
        expect(page.get_by_role("link", name="first single")).to_be_hidden()
        assert_accessible(page)
        take_picture(page, "jobs")
        page.get_by_role("link", name="product texts").click()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Cancel this task").click()
        expect(page.locator("main")).to_contain_text("cancelled")
        assert stack.call("GET", f"/v1/tasks/{waits}")["status"] == "cancelled"


def test_jobs_are_found_by_name_kind_and_state(console: Console) -> None:
    stack = console.stack
    found = stack.submit("filtered, once", "a text")
    stack.wait_for_end(f"/v1/tasks/{found}")
    stack.wait_for_end(f"/v1/tasks/{stack.submit('half of it', 'good', '!!fail!!')}")
    page = console.open("#/jobs")
    page.get_by_label("Find by name or id").fill("FILTERED")
    expect(row(page, "filtered, once")).to_be_visible()
    expect(page.locator("ol.rows > li")).to_have_count(1)
    expect(page.get_by_label("Find by name or id")).to_be_focused()
    expect(page.locator("[aria-live]")).to_have_text("1 job")
    page.get_by_label("Kind", exact=True).select_option("Tasks")
    page.reload()
    expect(page.get_by_label("Find by name or id")).to_have_value("FILTERED")
    expect(row(page, "filtered, once")).to_be_visible()
    page.get_by_label("Kind", exact=True).select_option("Batches")
    expect(page.get_by_role("heading", name="No job is called “FILTERED”")).to_be_visible()
    page.get_by_label("Kind", exact=True).select_option("All kinds")
    page.get_by_label("Find by name or id").fill(found[-8:])
    expect(row(page, "filtered, once")).to_be_visible()
    page.get_by_label("Find by name or id").fill("half")
    page.get_by_label("State", exact=True).select_option("Failed, or with failures")
    expect(row(page, "half of it")).to_contain_text("completed, 1 failed")
    page.get_by_label("State", exact=True).select_option("Waiting")
    expect(page.get_by_role("heading", name="No job is called “half”")).to_be_visible()
    page.get_by_label("State", exact=True).select_option("Cancelled")
    expect(page.get_by_role("link", name="Show all jobs")).to_be_visible()


def test_a_search_that_is_being_typed_takes_nothing_back(console: Console) -> None:
    console.stack.submit("typed and left", "a text", "another")
    page = console.open("#/jobs")
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)
    field = page.get_by_label("Find by name or id")
    field.fill("typed")
    page.get_by_label("Kind", exact=True).select_option("Tasks")
    expect(page).to_have_url(re.compile(r"#/jobs\?kind=task$"))
    page.clock.run_for(1000)
    expect(page).to_have_url(re.compile(r"#/jobs\?kind=task&name=typed$"))

    field.fill("typed and")
    row(page, "typed and left").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("typed and left")
    page.clock.run_for(1000)
    expect(page).to_have_url(re.compile("#/jobs/task_"))


def test_older_jobs_are_on_further_pages(console: Console) -> None:
    task_ids = console.stack.submit_all(["the oldest", *(f"number {number}" for number in range(50))], "two", "texts")
    page = console.open("#/jobs?kind=task")
    expect(row(page, "number 49")).to_be_visible()
    expect(row(page, "the oldest")).to_have_count(0)

    page.get_by_role("link", name="Older").press("Enter")
    expect(row(page, "the oldest")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.get_by_role("link", name="Newer").click()
    expect(row(page, "number 49")).to_be_visible()
    row(page, "number 5").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("number 5")
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    expect(row(page, "number 5")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(row(page, "number 5")).to_be_in_viewport()
    page.close()
    console.stack.delete_all(task_ids)


def test_markup_in_names_is_text_and_a_narrow_dark_screen_shows_all_of_it(console: Console) -> None:
    console.stack.submit(MARKUP, "a text", "another")
    console.stack.submit("a job with " + "a very long name " * 5 + "without_any_space" * 10, "a text", "another")
    page = console.open("#/jobs", size=NARROW, dark=True)
    expect(page.get_by_role("link", name=re.compile("a job with"))).to_be_visible()
    assert_no_sideways_scroll(page)
    assert_accessible(page)
    row(page, MARKUP).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    expect(page.locator("main img, h1 b")).to_have_count(0)
