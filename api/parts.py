"""The parts of one web tier process, and their start and stop."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self, cast

from starlette.requests import Request

from api.answer.rate_limit_headers import RateLimits
from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from api.browser_rules import BrowserRules
from api.metrics import Metrics, process_rows, queue_rows
from api.queue.bell import Bell
from api.queue.served_models import ServedModels
from api.queue.submission import EmbeddingRequests
from api.queue.watchdog import Watchdog
from api.request.api_keys import KeyRing, LedgerKeys, grant_of, let_in
from api.request.body import Bodies
from api.request.key_limits import RequestRates
from api.request.memory_budget import OWNER, Budget
from api.server.overload import LONGEST_CHEAP_DELAY_S, Door, Places, StallProbe
from api.waiting.hub import Hub, WaitingTimes
from tasks.errors import ScopeMissing
from tasks.ledger import ANONYMOUS, AsyncLedger
from tasks.records.api_keys import Key, Scope
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
    keys: KeyRing
    ledger_keys: LedgerKeys
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
        keys = KeyRing(settings)
        metrics = Metrics(process)
        stall = StallProbe(metrics.stalled)
        ledger = AsyncLedger.connect(settings.redis_url, settings.redis_ack, lag_s=lambda: stall.recent_s)
        registry = ServedModels(settings, several=lambda: keys.several)
        bell = Bell(settings, metrics.count_bell)
        hub = Hub(ledger, times)
        datasets = AsyncDatasets(storage := AsyncStorage(settings.storage_url, ledger.run), settings.search_bytes)
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
            ledger_keys=LedgerKeys(ledger, keys, datasets.forget),
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

    def admit(self, request: Request, scopes: Collection[Scope]) -> Key:
        """Lets a request in to a route that needs one of these scopes, and says who sent it.

        Raises:
            Unauthenticated: no key came, or only wrong ones.
            ScopeMissing: the key has none of them.
            RedisUnavailable: the keys of the ledger are not known yet.
            Overloaded: the caller's requests fill the connections.
        """
        grant = self.keys.grant(request.headers)
        let_in(request.scope, grant)
        request.scope[OWNER] = grant.caller.name
        self.places.enter(request.scope)
        self.require(request, scopes)
        return grant.caller

    async def known_key(self, request: Request) -> Key:
        """Lets a request in and counts it, and says by which key; raises like `admit`."""
        if self.keys.stamp is None:
            await self.ledger_keys.first_reading()
        grant = self.keys.grant(request.headers)
        let_in(request.scope, grant)
        key = grant.caller
        request.scope[OWNER] = key.owner
        self.places.enter(request.scope)
        per_s = key.limits.requests_per_second
        if per_s is not None and not await self.rates.take(request.scope, key.owner, per_s):
            await self.door.pace(key.owner, LONGEST_CHEAP_DELAY_S)
            raise self.rates.refusal(key.owner, per_s)
        return key

    def require(self, request: Request, scopes: Collection[Scope]) -> None:
        """Raises `ScopeMissing` if the caller has none of these scopes."""
        caller = self.caller(request)
        if not caller.scopes.isdisjoint(scopes):
            return
        needed = " or ".join(scope for scope in Scope if scope in scopes)
        if caller.name == ANONYMOUS:
            raise ScopeMissing(
                f"This call needs a key with the scope {needed}. The first key is made where the service runs, through "
                "its Redis: embedq keys create NAME"
            )
        having = ",".join(scope for scope in Scope if scope in caller.scopes) or "none"
        if caller.name in self.keys.environment:
            remedy = "It is one of EMBEDQ_API_KEYS; EMBEDQ_ADMIN_KEYS names those that have admin too"
        else:
            one = Scope.READ if Scope.READ in scopes else next(scope for scope in Scope if scope in scopes)
            all_then = ",".join(scope for scope in Scope if scope in caller.scopes | {one})
            remedy = f"A key with the scope admin adds it: embedq keys limits {caller.name} --scopes {all_then}"
        raise ScopeMissing(f"This call needs the scope {needed}; the key {caller.name} has {having}. {remedy}")

    def caller(self, request: Request) -> Key:
        """Who sent a request that was admitted."""
        grant = grant_of(request.scope)
        if grant is None:
            raise PublicRoute("a public route asks for its caller")
        return grant.caller

    def owner(self, request: Request) -> str:
        """The name of the caller's key."""
        return self.caller(request).name

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
        await asyncio.gather(self.watchdog.tick(), self.ledger_keys.refresh())
        self.stall.start()  # last: nobody is served yet, so a stall up to here hurts nobody
        return [
            listening,
            asyncio.create_task(self.watchdog.run(), name="watchdog"),
            asyncio.create_task(self.ledger_keys.run(), name="keys"),
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
