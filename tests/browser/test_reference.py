"""The page at /docs in a browser, under its own content security policy and without another host."""

from playwright.sync_api import expect

from tests.browser.console import Console


def test_the_page_shows_the_routes_and_what_they_take(console: Console) -> None:
    page = console.open(path="/docs")
    expect(page.get_by_role("heading", name="embedq")).to_be_visible()
    route = page.locator("#operations-tasks-list_tasks")
    route.get_by_role("button").first.click()
    expect(route.get_by_text("Objects per page.")).to_be_visible()
    expect(route.get_by_text("4XX")).to_be_visible()
