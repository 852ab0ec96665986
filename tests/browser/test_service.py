"""The screen of the service: what runs, what waits, and what died."""

import os
import signal

from playwright.sync_api import expect

from tests.browser.console import NARROW, Console, assert_accessible, assert_no_sideways_scroll, strip, take_picture


def test_workers_lanes_redis_and_deaths_are_shown(console: Console) -> None:
    worker = console.stack.worker
    page = console.open("#/service")
    expect(strip(page)).to_contain_text("1 worker")
    os.kill(worker.child_pid, signal.SIGKILL)
    workers = page.get_by_role("table", name="Workers")
    expect(workers).to_contain_text("1, last")
    expect(workers).to_contain_text("signal 9, SIGKILL")
    expect(workers.get_by_role("row")).to_have_count(3)
    with console.stack.api.client() as client:
        client.post("/v1/embeddings", json={"input": ["one text", "another text"]}).raise_for_status()

    expect(page.get_by_role("table", name="Queue")).to_contain_text("bulk")
    expect(page.locator("main")).to_contain_text("1 serves all-MiniLM-L6-v2cpu, fake, float32, 384 dimensions")
    expect(page.locator("main")).to_contain_text("Tasks are refused above 63 %, queries above 70 %.")
    expect(page.get_by_role("img")).to_have_count(2)
    take_picture(page, "service")

    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    page.emulate_media(color_scheme="dark", forced_colors="active")
    assert_no_sideways_scroll(page)
    assert_accessible(page)
