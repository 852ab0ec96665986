"""The frame around the screens: navigation, keyboard, colours, key, an API that goes and comes back."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import pytest
from playwright.sync_api import Page, expect

from tests.browser.console import NARROW, Console, Stack, assert_accessible, assert_no_sideways_scroll
from tests.made_keys import found
from tests.processes import RedisServer, Roles

SILENT_MS = 60_000
"""Longer than a reading may take."""


class Keyed:
    """An API that needs a key, on the same Redis, which a test may stop and start with another one."""

    def __init__(self, stack: Stack) -> None:
        self._number = 0
        self._api = stack.roles.api(api_keys=self._new_key(), storage_url=stack.api.settings["storage_url"])
        self.base_url = self._api.base_url

    @property
    def key(self) -> str:
        """The one that it knows; nobody has used it before."""
        return f"key {self._number}"

    @contextmanager
    def away(self) -> Iterator[None]:
        """The API is stopped for the block. Afterwards it knows another key alone."""
        self._api.stop()
        yield
        self._api.settings["api_keys"] = self._new_key()
        self._api.start()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """The API says nothing for the block, and closes no connection: as if its host had vanished."""
        self._api.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._api.send(signal.SIGCONT)

    def submit(self, name: str) -> None:
        """A task of the key's owner."""
        body = {"input": "a text", "metadata": {"name": name}}
        with self._api.client() as client:
            assert client.post("/v1/tasks", json=body, headers={"x-api-key": self.key}).is_success

    def _new_key(self) -> str:
        self._number += 1
        return f"owner{self._number}:{sha256(self.key.encode()).hexdigest()}"


@pytest.fixture(scope="module")
def keyed(stack: Stack) -> Keyed:
    return Keyed(stack)


def enter(page: Page, key: str) -> None:
    page.get_by_label("API key", exact=True).fill(key)
    page.keyboard.press("Enter")


def test_screens_are_reached_by_the_navigation(console: Console) -> None:
    page = console.open(path="/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    for label in ("Service", "Try it", "Datasets", "Jobs"):
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=label, exact=True).click()

        expect(page.get_by_role("heading", level=1)).to_have_text(label)
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        expect(page).to_have_title(f"{label} · embedq")
        expect(page.get_by_role("link", name=label, exact=True)).to_have_attribute("aria-current", "page")
    page.goto(f"{console.stack.api.base_url}/console#/nothing")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    page.goto(f"{console.stack.api.base_url}/console#/jobs/%E0%A4%A")
    expect(page.get_by_role("heading", name="This job is not there")).to_be_visible()


def test_all_of_it_is_reached_by_the_keyboard(console: Console) -> None:
    page = console.open("#/service")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", f"{reached[-1]} does not show that it has the focus"
    links = ["Skip to the content", "embedq", "Jobs", "Service", "Try it", "Datasets"]
    assert reached == [*links, "API key"]

    page.keyboard.press("Enter")
    expect(page.get_by_label("API key", exact=True)).to_be_focused()
    page.get_by_role("button", name="Close").press("Enter")
    page.get_by_role("link", name="Skip to the content").press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_colours_follow_the_system(console: Console) -> None:
    page = console.open("#/service", dark=True)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.emulate_media(color_scheme="light")

    assert page.evaluate(background) != dark


def test_a_browser_without_scripts_is_told_what_to_do(console: Console) -> None:
    page = console.open(scripts=False)

    expect(page.get_by_role("heading", level=1)).to_have_text("embedq")
    expect(page.locator("noscript pre")).to_contain_text("curl -s http")
    expect(page.get_by_role("link", name="The OpenAPI document")).to_have_attribute("href", "openapi.json")


def test_keys_that_are_missing_wrong_and_removed_and_an_api_that_restarts(console: Console, keyed: Keyed) -> None:
    console.calls_may_fail = True
    page = console.open("#/jobs?kind=task", base_url=keyed.base_url, size=NARROW)
    expect(page.get_by_role("alert")).to_contain_text("This server needs an API key.")
    assert_accessible(page)
    enter(page, "wrong \N{EN DASH} pasted")  # of which no header can be made
    expect(page.get_by_role("alert")).to_contain_text("signs of ASCII only.")
    expect(page.get_by_role("status").filter(has_text="The API does not answer")).to_have_count(0)
    with page.expect_response(lambda answer: answer.status == 401):
        enter(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("This API key is not known here.")
    enter(page, keyed.key)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("heading", name="No job fits")).to_be_visible()
    expect(page.get_by_label("Kind")).to_have_value("task")
    page.get_by_role("link", name="Show all jobs").click()
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    expect(page.get_by_role("region", name="curl command")).to_contain_text("Bearer $EMBEDQ_API_KEY")
    assert_no_sideways_scroll(page)
    keyed.submit("of the first key")
    expect(page.get_by_role("link", name="of the first key")).to_be_visible()

    banner = page.get_by_role("status").filter(has_text="The API does not answer")
    with keyed.away():
        expect(banner).to_be_visible()
        expect(page.get_by_role("link", name="of the first key")).to_be_visible()
    # It reads everything anew by itself, and learns that its key is not known any more.
    expect(page.get_by_role("alert")).to_contain_text("This API key is not known here.")
    expect(banner).to_have_count(0)
    expect(page.get_by_role("link", name="of the first key")).to_be_visible()
    enter(page, keyed.key)
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    keyed.submit("of the second key")
    expect(page.get_by_role("link", name="of the second key")).to_be_visible()
    page.clock.install()
    page.reload()
    expect(page.get_by_role("link", name="of the second key")).to_be_visible()
    with keyed.silent():
        page.clock.run_for(SILENT_MS)
        expect(banner).to_be_visible()
    expect(banner).to_have_count(0)
    keyed.submit("after the silence")
    expect(page.get_by_role("link", name="after the silence")).to_be_visible()
    page.get_by_role("button", name="API key set").click()
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_role("alert")).to_contain_text("This server needs an API key.")
    expect(page.get_by_role("link", name="of the second key")).to_have_count(0)


def test_the_page_says_why_a_key_is_refused(console: Console, private_roles: Roles, private_redis: RedisServer) -> None:
    console.calls_may_fail = True
    api = private_roles.api()
    with api.client() as client:
        ops = found(client, private_redis.url)
        key = client.post("/v1/keys", json={"name": "gone"}, headers=ops).json()["key"]
        client.post("/v1/keys/gone/revoke", headers=ops).raise_for_status()
    page = console.open("#/jobs", base_url=api.base_url)
    enter(page, key)
    expect(page.get_by_role("alert")).to_contain_text("This API key was revoked.")
