"""The console in a real browser over a real stack: one of each for all tests of this folder.

A test opens pages with `console`, which fails afterwards on what a user would not see: an error in the browser's log, a
violation of the content security policy, or a request to another origin.

All tests here are synchronous, and both fixtures end with the last of them: the browser's driver keeps an event loop
running in this thread, under which no asynchronous test could run.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.console import Console, Stack
from tests.conftest import missing
from tests.processes import RedisServer, Roles

# The first one has no window at all, and needs less than half of the processor time.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        missing(f"no browser: none of {', '.join(_PROGRAMS)} is on PATH")
    with sync_playwright() as playwright:
        # A container's root has no sandbox, and its /dev/shm may be small.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def stack(start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Redis, a model worker with the fake encoder, a documents worker and the API."""
    folder = tmp_path_factory.mktemp("console")
    redis = start_redis(folder / "redis")
    settings: dict[str, Any] = {"storage_url": folder / "storage"}
    try:
        with Roles(folder, redis.url) as roles:
            worker = roles.worker(fake_tokens_per_s=20_000, **settings)
            roles.documents(**settings)
            api = roles.api(**settings)
            api.wait_ready()
            yield Stack(roles, redis, worker, api)
    finally:
        redis.stop()


@pytest.fixture
def console(browser: Browser, stack: Stack) -> Iterator[Console]:
    """Opens pages of the console; the problems they had fail the test."""
    opened = Console(browser, stack)
    yield opened
    opened.close()
