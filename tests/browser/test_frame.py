"""The frame around the screens."""

from playwright.sync_api import expect

from tests.browser.console import Console, assert_accessible


def test_screens_are_reached_by_the_navigation(console: Console) -> None:
    page = console.open("#/service")
    for label, heading in (("Try it", "Try it"), ("Datasets", "Datasets"), ("Service", "Service")):
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=label).click()

        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        expect(page).to_have_title(f"{heading} · embedq")
        expect(page.get_by_role("link", name=label)).to_have_attribute("aria-current", "page")
        assert_accessible(page)
