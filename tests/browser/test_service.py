"""The screen of the service: what runs, and the last hour as plots."""

import math
import re
import time

import pytest
from playwright.sync_api import expect

from stack.testing import ApiProcess
from tasks.ledger import Ledger
from tasks.records.history import STEP_S, ProcessCounts, SharedFigures, write_step
from tests.browser.console import NARROW, Console, Stack, assert_accessible, assert_no_sideways_scroll, take_picture

FULL_STEPS = 150
"""Of the 360 of an hour. The oldest have no data."""
FIGURES = ("Queries", "Passages", "Latency", "Work waiting", "Cache hits", "Errors")


@pytest.fixture(scope="module")
def busy(stack: Stack) -> ApiProcess:
    """An API that finds the figures of an hour in Redis. Processes that ran before keep the empty steps they read."""
    ledger = Ledger.connect(stack.redis.url)
    newest = int(time.time()) // STEP_S - 1
    for age in range(FULL_STEPS):
        wave = round(30 + 30 * math.sin(age / 19))
        counts = ProcessCounts(STEP_S, {-56 + wave // 10: 150 + 2 * wave, -30 + wave // 8: 3}, errors=age == 100)
        shared = SharedFigures(400 + 10 * wave, 2.0 * wave, cache_hits=40 + wave, cache_misses=60)
        ledger.run(write_step(newest - age, "seed", counts, shared))
    ledger.close()
    return stack.roles.api()


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


def test_the_last_hour_is_plotted_and_told_in_words(console: Console, busy: ApiProcess) -> None:
    page = console.open("#/service", base_url=busy.base_url)
    for name in FIGURES:
        expect(page.get_by_role("figure", name=name).locator("canvas")).to_be_visible()
    # The newest steps are those of other tests, so only what they do not reach is certain.
    expect(page.get_by_role("figure", name="Passages")).to_contain_text("max 1,000 /s")
    expect(page.get_by_role("figure", name="Cache hits")).to_contain_text(re.compile(r"min \d+ % · max \d+ %"))
    assert_accessible(page)
    take_picture(page, "service")
    page.get_by_role("figure", name="Queries").locator(".u-over").hover(position={"x": 280, "y": 60})

    # All of them show the moment under the pointer.
    expect(page.locator(".chart figcaption").get_by_text(" at ")).to_have_count(len(FIGURES) + 1)


def test_the_screen_fits_a_narrow_and_dark_window(console: Console) -> None:
    page = console.open("#/service", size=NARROW, dark=True)

    expect(page.get_by_role("figure", name="Errors")).to_be_visible()
    assert_no_sideways_scroll(page)
    assert_accessible(page)
