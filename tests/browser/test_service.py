"""The screen of the service: what runs."""

from playwright.sync_api import expect

from tests.browser.console import NARROW, Console, assert_accessible, assert_no_sideways_scroll, take_picture


def test_workers_lanes_and_redis_are_shown(console: Console) -> None:
    with console.stack.api.client() as client:
        client.post("/v1/embeddings", json={"input": ["one text", "another text"]}).raise_for_status()
    page = console.open("#/service")
    model = page.get_by_role("region", name="Model sentence-transformers/all-MiniLM-L6-v2")

    expect(model.get_by_role("table", name="Lanes")).to_contain_text("bulk")
    expect(model.get_by_role("table", name="Workers").get_by_role("row")).to_have_count(2)
    expect(model).to_contain_text("float32")
    expect(page.get_by_role("region", name="Documents workers").get_by_role("row")).to_have_count(2)
    expect(page.locator("main")).to_contain_text("Redisanswers")
    take_picture(page, "service")

    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    page.emulate_media(color_scheme="dark")
    assert_no_sideways_scroll(page)
    assert_accessible(page)
