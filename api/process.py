"""The parts of one web tier process, and their start and stop."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Self

from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from api.auth import Keys
from api.browser_rules import BrowserRules
from api.loop_stall import StallProbe
from api.metrics import Metrics, process_rows, queue_rows
from api.request_limits import InFlight, RequestRates, Shared
from api.served_models import ServedModels
from api.submit import NewTasks, Submitter
from api.waiting.ledger_watch import LedgerWatch
from api.waiting.subscription import Subscription, WaitingTimes
from api.waiting.wait_for_vectors import SynchronousCalls
from tasks.ledger import AsyncLedger
from worker_config.bell import BellThread
from worker_config.celery_app import make_celery
from worker_config.settings import Settings
from worker_config.traces import Traces, open_traces

_log = logging.getLogger(__name__)

_CANCELLATIONS = 10
_HELD_BODIES = 8
"""As many of the largest size that bodies may have are held at a time, and answers of as many bytes."""
_FIRST_SUBSCRIPTION_S = 1.0


@dataclass(frozen=True, slots=True)
class Process:
    """What the services of the resources are made of. None of them gets this object: `api.app` hands each its parts."""

    settings: Settings
    ledger: AsyncLedger
    subscription: Subscription
    bells: BellThread
    models: ServedModels
    ledger_watch: LedgerWatch
    metrics: Metrics
    stall: StallProbe
    in_flight: InFlight
    rates: RequestRates
    keys: Keys
    rules: BrowserRules
    new_tasks: NewTasks
    submitter: Submitter
    calls: SynchronousCalls
    storage: AsyncStorage
    datasets: AsyncDatasets
    bodies: Shared
    answers: Shared
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
        models = ServedModels(settings, several=lambda: keys.several)
        bells = BellThread(make_celery(settings), metrics.count_bell)
        subscription = Subscription(ledger, times)
        in_flight = InFlight(lambda: stall.recent_s, lambda: keys.several)
        most = _HELD_BODIES * settings.max_body_bytes
        held = {what: Shared(most, lambda: keys.several) for what in ("requests", "answers")}
        metrics.add(lambda: process_rows(models, subscription, stall, in_flight, held))
        metrics.add(lambda: queue_rows(models, settings), shared=True)
        new_tasks = NewTasks(settings, models, subscription.name)
        submitter = Submitter(ledger, bells, in_flight, metrics, settings)
        return cls(
            settings=settings,
            ledger=ledger,
            subscription=subscription,
            bells=bells,
            models=models,
            ledger_watch=LedgerWatch(ledger, models, bells, metrics.redis_read),
            metrics=metrics,
            stall=stall,
            in_flight=in_flight,
            keys=keys,
            rules=BrowserRules(settings, lambda: keys.may_be_open),
            rates=RequestRates(ledger),
            new_tasks=new_tasks,
            submitter=submitter,
            calls=SynchronousCalls(ledger, subscription, submitter, models, new_tasks),
            storage=storage,
            datasets=datasets,
            bodies=held["requests"],
            answers=held["answers"],
            traces=open_traces(role="api"),
        )

    async def start(self) -> list["asyncio.Task[None]"]:
        """Starts the background tasks and returns them when the subscription stands, or a second later without it."""
        listening = asyncio.create_task(self.subscription.run(), name="subscription")
        try:
            async with asyncio.timeout(_FIRST_SUBSCRIPTION_S):
                await self.subscription.subscribed.wait()
        except TimeoutError:
            pass  # Redis is down: the web tier starts all the same, and both tasks keep trying
        await asyncio.gather(self.ledger_watch.look(), self.keys.refresh())
        self.stall.start()  # last: nobody is served yet, so a stall up to here hurts nobody
        return [
            listening,
            asyncio.create_task(self.ledger_watch.run(), name="ledger_watch"),
            asyncio.create_task(self.keys.run(), name="keys"),
        ]

    def send_home(self) -> None:
        """Ends all requests that only wait: the server stops."""
        self.subscription.close()
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
        await asyncio.to_thread(self.bells.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        await self.ledger.close()
