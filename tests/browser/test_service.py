"""The screen of the service: what runs, and the last hour as plots."""

import re
import time

from playwright.sync_api import expect

from tasks.records.history import STEP_S
from tests.browser.console import NARROW, Console, Past, assert_accessible, assert_no_sideways_scroll, take_picture

FIGURES = ("Queries", "Passages", "Latency", "Work waiting", "Errors")


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


def step_at(clock: str) -> int:
    """The step of the last hour with this time of day."""
    newest = int(time.time()) // STEP_S
    steps = range(newest, newest - 400, -1)
    return next(step for step in steps if time.strftime("%H:%M:%S", time.localtime(step * STEP_S)) == clock)


def test_the_last_hour_is_plotted_and_told_in_words(console: Console) -> None:
    page = console.open("#/service")
    for name in FIGURES:
        expect(page.get_by_role("figure", name=name).locator("canvas")).to_be_visible()
    expect(page.get_by_role("figure", name="Passages")).to_contain_text("max 1,000 /s")
    take_picture(page, "service")
    over = page.get_by_role("figure", name="Queries").locator(".u-over")
    width = over.evaluate("(place) => place.clientWidth")
    over.hover(position={"x": width * 0.75, "y": 60})  # a quarter of an hour ago, before any other test

    # All of them show the moment under the pointer.
    moments = page.locator(".chart figcaption").get_by_text(re.compile(r"at \d\d:\d\d:\d\d"))
    expect(moments).to_have_count(len(FIGURES) + 1)
    # Read at once: each new step moves them.
    told = dict(zip(FIGURES, page.locator(".chart figcaption").all_inner_texts(), strict=True))
    (clock,) = re.findall(r"at (\d\d:\d\d:\d\d)", told["Queries"])
    past = Past.of(step_at(clock))
    shared, queries = past.shared, sum(past.counts.queries.values())
    assert told["Queries"].startswith(f"{queries / STEP_S:.3g} /s at {clock}")
    assert told["Passages"].startswith(f"{shared.passages:,.0f} /s at {clock}")
    assert told["Errors"].startswith(f"{past.counts.errors / STEP_S:g} /s at {clock}")

    page.mouse.move(0, 0)
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    page.emulate_media(color_scheme="dark")
    assert_no_sideways_scroll(page)
    assert_accessible(page)
