"""What the browser's tests share: the stack under the console, and pages that remember what went wrong in them."""

import json
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Request, expect

from tests.processes import ApiProcess, RedisServer, Roles, WorkerProcess, wait_until
from tests.source_tree import CHECKOUT

TIMEOUT_MS = 60_000
WIDE, NARROW = (1200, 800), (360, 740)
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_PICTURE = (1000, 560)
_FAILED_CALL = re.compile(r"Failed to load resource|net::ERR_")
_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""How Chromium ends all requests when a network interface comes or goes, as those of containers on this machine do."""
_LOADS = 10
_REMEMBER_VIOLATIONS = """
window.violations = [];
const remember = (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`);
document.addEventListener("securitypolicyviolation", remember);
"""
SCREENSHOTS = os.environ.get("CONSOLE_SCREENSHOTS")
"""A folder that gets the pictures of docs/console.md."""

expect.set_options(timeout=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs under the console. `api` needs no key."""

    roles: Roles
    redis: RedisServer
    worker: WorkerProcess
    documents: WorkerProcess
    api: ApiProcess

    @classmethod
    def start(cls, roles: Roles, redis: RedisServer) -> Self:
        """Starts all of it; the storage is a folder of its own."""
        storage = roles.folder / "storage"
        settings: dict[str, Any] = {"storage_url": storage}
        worker = roles.worker(start=False, fake_load_s=0, fake_tokens_per_s=20_000, **settings)
        documents = roles.worker(start=False, module="tasks.ingestion", **settings)
        api = roles.api(start=False, **settings)
        for process in (worker, documents, api):
            process.launch()
        worker.wait_ready()
        documents.wait_ready()
        api.wait_ready()
        return cls(roles, redis, worker, documents, api)

    def submit_all(self, names: Iterable[str], *texts: str) -> list[str]:
        """The ids of tasks with these names and texts, or one text."""
        with self.api.client() as client:
            bodies = ({"input": texts or "a text", "metadata": {"name": name}} for name in names)
            return [client.post("/v1/tasks", json=body).raise_for_status().json()["id"] for body in bodies]

    def delete_all(self, task_ids: Iterable[str]) -> None:
        """Removes tasks, which would make the lists of other tests long."""
        with self.api.client() as client:
            for task_id in task_ids:
                client.delete(f"/v1/tasks/{task_id}").raise_for_status()

    def submit(self, name: str, *texts: str, **more: Any) -> str:
        """The id of a new task with this name."""
        return self._post("/v1/tasks", {"input": list(texts), "metadata": {"name": name}, **more})

    def ingest(self, name: str, documents: dict[str, str], dataset: str = "handbook") -> str:
        """The id of a new ingestion of these texts by their ids."""
        body = {
            "source": {"documents": [{"id": one, "text": text} for one, text in documents.items()]},
            "sink": {"type": "dataset", "dataset": dataset},
            "metadata": {"name": name},
        }
        return self._post("/v1/ingestions", body)

    def batch(self, name: str, lines: str) -> str:
        """The id of a new batch over a file with these lines."""
        with self.api.client() as client:
            files = {"file": ("lines.jsonl", lines.encode())}
            file_id = client.post("/v1/files", data={"purpose": "batch"}, files=files).json()["id"]
        body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        return self._post("/v1/batches", {**body, "metadata": {"name": name}})

    def call(self, method: str, path: str) -> dict[str, Any]:
        """The answer of the API."""
        with self.api.client() as client:
            answer = client.request(method, path)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait_for_end(self, path: str) -> dict[str, Any]:
        """The object at a path when it has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.call("GET", path)
            return found if found["status"] in {"completed", "failed", "cancelled", "expired"} else None

        return wait_until(ended, message=f"{path} did not end")

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """The model worker encodes nothing for the block, too short for anybody to take it for dead."""
        pid = self.worker.child_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _post(self, path: str, body: dict[str, Any]) -> str:
        with self.api.client() as client:
            answer = client.post(path, json=body)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])


class Console:
    """Opens pages in contexts of their own. `close` fails on what went wrong in one of them."""

    def __init__(self, browser: Browser, stack: Stack) -> None:
        self._browser = browser
        self.stack = stack
        self._pages: list[Page] = []
        self._problems: list[str] = []
        self._network_changed = False
        self.calls_may_fail = False
        """Set by a test that makes calls fail, which the browser's log tells as errors."""

    def open(
        self,
        fragment: str = "",
        *,
        base_url: str | None = None,
        path: str = "/console",
        size: tuple[int, int] = WIDE,
        dark: bool = False,
        forced_colors: bool = False,
        scripts: bool = True,
    ) -> Page:
        """A page at a screen."""
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            forced_colors="active" if forced_colors else "none",
            reduced_motion="reduce",
        )
        context.add_init_script(_REMEMBER_VIOLATIONS)
        page = context.new_page()
        base = base_url or self.stack.api.base_url
        page.on("console", self._log)
        page.on("pageerror", lambda error: self._problems.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._check_origin(request, base))
        self._pages.append(page)
        self._load(page, f"{base}{path}{fragment}")
        return page

    def close(self) -> None:
        """Ends all pages and fails if one had a problem."""
        for page in self._pages:
            if not page.is_closed():
                self._problems += [f"policy: {one}" for one in page.evaluate("window.violations ?? []")]
                page.context.close()
        assert not self._problems, "; ".join(self._problems)

    def _load(self, page: Page, address: str) -> None:
        """Loads a page whole: of calls the page repeats those that failed, but not its scripts."""
        for _ in range(_LOADS):
            self._network_changed = False
            page.goto("about:blank")  # an address that differs in its fragment alone loads nothing
            try:
                page.goto(address)
            except Error as error:
                if _NETWORK_CHANGED not in error.message:
                    raise
                continue
            if not self._network_changed:
                return

    def _log(self, message: ConsoleMessage) -> None:
        if _NETWORK_CHANGED in message.text:
            self._network_changed = True
        elif message.type in {"error", "warning"} and not (self.calls_may_fail and _FAILED_CALL.search(message.text)):
            self._problems.append(f"{message.type}: {message.text}")

    def _check_origin(self, request: Request, base: str) -> None:
        if not request.url.startswith((f"{base}/", "data:", "blob:")):
            self._problems.append(f"another origin: {urlsplit(request.url).netloc}")


def line(custom_id: str, **body: Any) -> str:
    """A line of a batch's file."""
    request = {"method": "POST", "url": "/v1/embeddings", "body": {"model": MODEL, **body}}
    return json.dumps({"custom_id": custom_id, **request}) + "\n"


def strip(page: Page) -> Locator:
    """Where the frame says how the service is."""
    return page.get_by_role("region", name="State of the service")


def assert_accessible(page: Page) -> None:
    """axe finds nothing in the page as it is."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def assert_no_sideways_scroll(page: Page) -> None:
    """The page is no wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def take_picture(page: Page, name: str) -> None:
    """Writes the page as a picture of the documentation, where that was asked for; a large window made smaller."""
    if not SCREENSHOTS:
        return
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": min(size["width"], _PICTURE[0]), "height": min(size["height"], _PICTURE[1])})
    page.mouse.move(0, 0)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(path=CHECKOUT / Path(SCREENSHOTS) / f"{name}.png")
    page.set_viewport_size(size)
