"""The web tier under a real uvicorn on a real port, in a thread of the test's process."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any, ClassVar, Self
from uuid import uuid4

import httpx
import uvicorn
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.head_and_body_limits import DeadlineProtocol
from api.waiting.subscription import WaitingTimes
from tests.integration.api.conformance import Conformance
from tests.processes import PATIENCE_S, wait_until
from worker_config.settings import load_settings

MODEL = "test/model"
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Of a client that speaks plain HTTP: httpx would read the system's own for each client, 25 ms."""
KEYS = ",".join(f"{name}:{sha256(f'key of {name}'.encode()).hexdigest()}" for name in ("ann", "bob"))
"""The setting `api_keys` with two owners; the headers below are theirs."""
MANAGED_KEYS = KEYS.replace(",", ":admin,")
"""The same where ann manages keys."""


def bearer(key: str) -> dict[str, str]:
    """The header that sends a key."""
    return {"authorization": f"Bearer {key}"}


ANN, BOB = (bearer(f"key of {name}") for name in ("ann", "bob"))


def make_key(client: httpx.Client, admin: dict[str, str], name: str, **fields: Any) -> dict[str, str]:
    """The header of a new key, made over HTTP."""
    answer = client.post("/v1/keys", json={"name": name, **fields}, headers=admin)
    assert answer.status_code == 201, answer.text
    return bearer(answer.json()["key"])


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """Its status, and the code of its error."""
    return answer.status_code, answer.json()["error"]["code"]


class _Server(uvicorn.Server):
    """uvicorn's, stopped at once: its own looks every 0.1 s whether it shall stop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """To be called in its loop."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Returns when the server shall stop."""
        await self.on_tick(0)  # writes the fields that every answer has
        await self._stopped.wait()


class ServedApp:
    """One app; a context manager. `limits_s`: of its connections. `times`: of requests that wait.

    `client` talks to it over a socket and fails on an answer that is not as its route is described.
    """

    _conformance: ClassVar[Conformance | None] = None
    """With the document, the same for all settings: made for each app, it was two thirds of the time of these tests."""

    def __init__(self, redis_url: str, **settings: Any) -> None:
        limits_s = settings.pop("limits_s", DeadlineProtocol.limits_s)
        times = settings.pop("times", WaitingTimes())
        merged = {
            "redis_url": redis_url,
            "compute": "fake",
            "served_name": MODEL,
            "max_wait_s": 20,
            "storage_url": f"memory://{uuid4().hex}",
        } | settings
        self.app = create_app(load_settings(**merged), times=times)
        if ServedApp._conformance is None:
            ServedApp._conformance = Conformance(self.app.openapi())
        self.conformance = ServedApp._conformance
        self.conformance.seen.clear()
        self.app.openapi_schema = {**self.conformance.document}
        self.process = self.app.state
        self.process.metrics.fresh_s = 0  # a test reads them right after what it counts
        config = uvicorn.Config(
            self.app,
            port=0,
            log_config=None,
            lifespan="on",
            loop="uvloop",
            http=type("Protocol", (DeadlineProtocol,), {"limits_s": limits_s}),
            limit_concurrency=self.process.settings.max_connections + 1,
            ws="none",
        )
        self._server = _Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run)
        self.client = httpx.Client(
            timeout=PATIENCE_S, verify=_NO_CERTIFICATES, event_hooks={"response": [self.conformance.check]}
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    def series(self, name: str, **labels: str) -> float:
        """The sum over the samples of this name that have these labels."""
        families = text_string_to_metric_families(self.client.get("/metrics").text)
        samples = (sample for family in families for sample in family.samples if sample.name == name)
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def call_in_loop(self, function: Callable[[], object]) -> None:
        """Runs `function` in the server's event loop, and returns when it has run."""
        done = threading.Event()
        assert self._loop is not None

        def call() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started, message="the web tier did not start")
        self.client.base_url = httpx.URL(f"http://127.0.0.1:{self.port}")
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.call_in_loop(self._server.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            runner.run(self._server.serve())


Serve = Callable[..., ServedApp]
"""Serves an app with the given settings until the end of a test."""
