"""The parts of one web tier process, and their start and stop."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Self, cast

from starlette.requests import Request

from api.answer.rate_limit_headers import RateLimits
from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from api.auth import Keys, caller_of
from api.browser_rules import BrowserRules
from api.metrics import Metrics, process_rows, queue_rows
from api.queue.bell import Bell
from api.queue.served_models import ServedModels
from api.queue.submission import EmbeddingRequests
from api.queue.watchdog import Watchdog
from api.request.body import Bodies
from api.request.key_limits import RequestRates
from api.request.memory_budget import Budget
from api.server.overload import Door, Places, StallProbe
from api.waiting.hub import Hub, WaitingTimes
from tasks.ledger import AsyncLedger
from tasks.records.api_keys import Key
from worker_config.settings import Settings
from worker_config.traces import Traces, open_traces

_log = logging.getLogger(__name__)

_TEXT_PER_VECTOR = 3
"""Bytes of JSON for each byte of a vector."""
_CANCELLATIONS = 10
_FIRST_SUBSCRIPTION_S = 1.0


class PublicRoute(Exception):
    """A route whose description names no scopes asks who calls. A defect, so a 500."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a route may need."""

    settings: Settings
    ledger: AsyncLedger
    hub: Hub
    bell: Bell
    registry: ServedModels
    watchdog: Watchdog
    metrics: Metrics
    stall: StallProbe
    door: Door
    places: Places
    rates: RequestRates
    keys: Keys
    rules: BrowserRules
    requests: EmbeddingRequests
    rate_limits: RateLimits
    storage: AsyncStorage
    datasets: AsyncDatasets
    bodies: Bodies
    answers: Budget
    traces: Traces | None

    @classmethod
    def build(
        cls,
        settings: Settings,
        process: int | None = None,
        times: WaitingTimes = WaitingTimes(),
    ) -> Self:
        """The parts, connected to each other and to nothing else yet. `process`: which of several behind one port."""
        metrics = Metrics(process)
        stall = StallProbe(metrics.stalled)
        ledger = AsyncLedger.connect(settings.redis_url, settings.redis_ack, lag_s=lambda: stall.recent_s)
        datasets = AsyncDatasets(storage := AsyncStorage(settings.storage_url, ledger.run), settings.search_bytes)
        keys = Keys(settings, ledger, datasets.forget)
        registry = ServedModels(settings, several=lambda: keys.several)
        bell = Bell(settings, metrics.count_bell)
        hub = Hub(ledger, times)
        door = Door(lambda: stall.recent_s, shared=lambda: keys.several)
        requests, answers = (
            Budget(settings.max_held_bytes, what, shared=lambda: keys.several) for what in ("requests", "answers")
        )
        metrics.add(lambda: process_rows(registry, hub, stall, door, {"requests": requests, "answers": answers}))
        metrics.add(lambda: queue_rows(registry, settings), shared=True)
        return cls(
            settings=settings,
            ledger=ledger,
            hub=hub,
            bell=bell,
            registry=registry,
            watchdog=Watchdog(ledger, registry, bell, metrics.redis_read),
            metrics=metrics,
            stall=stall,
            door=door,
            places=Places(settings.max_connections, lambda: keys.several),
            keys=keys,
            rules=BrowserRules(settings, lambda: keys.may_be_open),
            rates=RequestRates(ledger),
            requests=EmbeddingRequests(settings, registry, hub.name),
            rate_limits=RateLimits(registry),
            storage=storage,
            datasets=datasets,
            bodies=Bodies(settings.max_body_bytes, settings.max_body_lists, requests),
            answers=answers,
            traces=open_traces(settings.traces_endpoint, settings.traces_sample, role="api"),
        )

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """The parts behind the app that serves `request`."""
        return cast("Self", request.app.state.services)

    def caller(self, request: Request) -> Key:
        """Who sent a request that was let in."""
        key = caller_of(request.scope)
        if key is None:
            raise PublicRoute("a public route asks for its caller")
        return key

    def owner(self, request: Request) -> str:
        """The id of the owner of what the caller makes."""
        return self.caller(request).owner

    def take_answer(self, request: Request, vectors_bytes: int, *, as_text: bool = True) -> None:
        """Counts the answer to `request`, before it is made; raises `Overloaded`."""
        self.answers.take_large(request.scope, vectors_bytes * (_TEXT_PER_VECTOR if as_text else 1))

    async def start(self) -> list["asyncio.Task[None]"]:
        """Starts the background tasks and returns them when the subscription stands, or a second later without it."""
        listening = asyncio.create_task(self.hub.run(), name="hub")
        try:
            async with asyncio.timeout(_FIRST_SUBSCRIPTION_S):
                await self.hub.subscribed.wait()
        except TimeoutError:
            pass  # Redis is down: the web tier starts all the same, and both tasks keep trying
        self.bell.call_through(self.ledger)
        await asyncio.gather(self.watchdog.tick(), self.keys.refresh())
        self.stall.start()  # last: nobody is served yet, so a stall up to here hurts nobody
        return [
            listening,
            asyncio.create_task(self.watchdog.run(), name="watchdog"),
            asyncio.create_task(self.keys.run(), name="keys"),
        ]

    def send_home(self) -> None:
        """Ends all requests that only wait: the server stops."""
        self.hub.close()
        self.datasets.stop()

    async def stop(self, background: list["asyncio.Task[None]"], *, cancel_again_s: float = 0.5) -> None:
        """Stops what `start` started and closes all connections. What does not stop is cancelled again, ten times."""
        pending = set(background)
        for _ in range(_CANCELLATIONS):
            if not pending:
                break
            # More than once: a cancellation that meets a time limit inside redis-py in the same moment can get lost.
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=cancel_again_s)
        for task in pending:
            _log.error("%s does not stop; going without it", task.get_name())
        await asyncio.gather(*set(background) - pending, return_exceptions=True)
        self.stall.stop()
        await asyncio.to_thread(self.bell.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        await self.ledger.close()
