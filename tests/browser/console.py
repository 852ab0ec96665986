"""What the browser's tests share: the stack under the console, and pages that remember what went wrong in them."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Request, ViewportSize, expect

from tests.processes import ApiProcess, RedisServer, Roles, WorkerProcess, wait_until
from tests.source_tree import CHECKOUT
from worker_config.settings import DEFAULT_MODEL

WIDE, NARROW = ViewportSize(width=1200, height=800), ViewportSize(width=360, height=740)
MARKUP = "<img src=x onerror=alert(1)><b>bold</b> \"'&amp;"
_FAILED_CALL = re.compile(r"Failed to load resource|net::ERR_")
_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""How Chromium ends all requests when a network interface comes or goes, as those of containers on this machine do."""
_REMEMBER_VIOLATIONS = """
window.violations = [];
const remember = (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`);
document.addEventListener("securitypolicyviolation", remember);
"""
SCREENSHOTS = os.environ.get("CONSOLE_SCREENSHOTS")
"""A folder that gets the pictures of docs/console.md."""

expect.set_options(timeout=60_000)


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs under the console. `api` needs no key."""

    roles: Roles
    redis: RedisServer
    worker: WorkerProcess
    api: ApiProcess

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The answer of the API."""
        with self.api.client() as client:
            found: dict[str, Any] = client.request(method, path, **more).raise_for_status().json()
        return found

    def submit(self, name: str, *texts: str, **more: Any) -> str:
        """The id of a new task with this name."""
        body = {"input": texts or "a text", "metadata": {"name": name}, **more}
        return str(self.call("POST", "/v1/tasks", json=body)["id"])

    def ingest(self, name: str, documents: list[dict[str, Any]], dataset: str = "handbook") -> str:
        """The id of a new ingestion."""
        sink = {"type": "dataset", "dataset": dataset}
        body = {"source": {"documents": documents}, "sink": sink, "metadata": {"name": name}}
        return str(self.call("POST", "/v1/ingestions", json=body)["id"])

    def batch(self, name: str, texts: dict[str, str], *wrong: str) -> str:
        """The id of a new batch over a file with lines of these texts by `custom_id`, and these that are none."""
        request = {"method": "POST", "url": "/v1/embeddings"}
        bodies = {custom_id: {"model": DEFAULT_MODEL, "input": text} for custom_id, text in texts.items()}
        lines = [json.dumps({"custom_id": each, "body": body, **request}) for each, body in bodies.items()]
        text = "\n".join([*lines, *wrong])
        files = {"file": ("lines.jsonl", text.encode())}
        file_id = self.call("POST", "/v1/files", data={"purpose": "batch"}, files=files)["id"]
        body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        return str(self.call("POST", "/v1/batches", json={**body, "metadata": {"name": name}})["id"])

    def wait_for_end(self, path: str) -> None:
        """Returns when the job at a path has ended."""
        ended = {"completed", "failed", "cancelled", "expired"}
        wait_until(lambda: self.call("GET", path)["status"] in ended, message=f"{path} did not end")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """The model worker encodes nothing for the block, too short for anybody to take it for dead."""
        pid = self.worker.child_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


class Console:
    """Opens pages in contexts of their own. `close` fails on what went wrong in one of them.

    Attributes:
        calls_may_fail: set by a test that makes calls fail, which the browser's log tells as errors.
    """

    def __init__(self, browser: Browser, stack: Stack) -> None:
        self._browser = browser
        self.stack = stack
        self._pages: list[Page] = []
        self._problems: list[str] = []
        self._network_changed = False
        self.calls_may_fail = False

    def open(
        self, fragment: str = "", *, base: str = "", path: str = "/console", size: ViewportSize = WIDE, **more: Any
    ) -> Page:
        """A page at a screen. `more`: of its context."""
        context = self._browser.new_context(viewport=size, reduced_motion="reduce", **more)
        context.add_init_script(_REMEMBER_VIOLATIONS)
        page = context.new_page()
        base = base or self.stack.api.base_url
        page.on("console", self._log)
        page.on("pageerror", lambda error: self._problems.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._check_origin(request, base))
        self._pages.append(page)
        for _ in range(10):  # of calls the page repeats those that failed, but not its scripts
            self._network_changed = False
            page.goto("about:blank")  # an address that differs in its fragment alone loads nothing
            try:
                page.goto(f"{base}{path}{fragment}")
            except Error as error:
                self._network_changed = _NETWORK_CHANGED in error.message
            if not self._network_changed:
                break
        return page

    def close(self) -> None:
        """Ends all pages and fails if one had a problem."""
        for page in self._pages:
            if not page.is_closed():
                self._problems += [f"policy: {one}" for one in page.evaluate("window.violations ?? []")]
                page.context.close()
        assert not self._problems, "; ".join(self._problems)

    def _log(self, message: ConsoleMessage) -> None:
        if _NETWORK_CHANGED in message.text:
            self._network_changed = True
        elif message.type in {"error", "warning"} and not (self.calls_may_fail and _FAILED_CALL.search(message.text)):
            self._problems.append(f"{message.type}: {message.text}")

    def _check_origin(self, request: Request, base: str) -> None:
        if not request.url.startswith((f"{base}/", "data:", "blob:")):
            self._problems.append(f"another origin: {request.url}")


def strip(page: Page) -> Locator:
    """Where the frame says how the service is."""
    return page.get_by_role("region", name="State of the service")


def assert_fine(page: Page, picture: str = "") -> None:
    """axe finds nothing in the page as it is, and it is no wider than the window. `picture`: of docs/console.md."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    size = page.viewport_size
    if picture and SCREENSHOTS and size:
        page.set_viewport_size({"width": min(size["width"], 1000), "height": min(size["height"], 560)})
        page.mouse.move(0, 0)
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(path=CHECKOUT / Path(SCREENSHOTS) / f"{picture}.png")
        page.set_viewport_size(size)
