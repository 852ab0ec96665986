"""The parts of one web tier process: what the services of the resources are made of, and their start and stop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import State

from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from api.auth import Keys
from api.load_limits import InFlight, ListTurns, RequestRates, Shared
from api.loop_stall import StallProbe
from api.metrics import Metrics, process_rows, queue_rows
from api.served_models import ServedModels
from api.services.batches import BatchService
from api.services.datasets import DatasetService
from api.services.embeddings import EmbeddingService
from api.services.files import FileService
from api.services.ingestions import IngestionService
from api.services.jobs import JobService
from api.services.keys import KeyService
from api.services.service import ServiceInfo
from api.services.tasks import TaskService
from api.submit import NewTasks, Submitter
from api.waiting.ledger_watch import LedgerWatch
from api.waiting.subscription import Subscription, WaitingTimes
from api.waiting.wait_for_vectors import SynchronousCalls
from tasks.ledger.client import AsyncLedger
from worker_config.celery_app import make_celery
from worker_config.settings import Settings
from worker_config.telemetry import close_traces, open_traces
from worker_config.wake_up import BellThread

_HELD_BODIES = 8
"""As many of the largest size that bodies may have are held at a time, and answers of as many bytes."""
_FIRST_SUBSCRIPTION_S = 1.0
_STOP_S = 1.0


def add_parts(of: State, settings: Settings, process: int | None, times: WaitingTimes) -> None:
    """Puts the parts into the state of the app, connected to each other and to nothing else yet.

    `process`: which of several behind one port this is.
    """
    of.settings = settings
    of.metrics = metrics = Metrics(process)
    of.stall = stall = StallProbe(metrics.stalled)
    of.ledger = ledger = AsyncLedger.connect(
        settings.redis_url, settings.redis_ack, settings.sentinels, lag_s=lambda: stall.recent_s
    )
    of.storage = storage = AsyncStorage(settings.storage_url, ledger.run)
    of.dataset_files = dataset_files = AsyncDatasets(storage, settings)
    of.keys = keys = Keys(settings, ledger, dataset_files.forget)
    of.models = models = ServedModels(settings, several=lambda: keys.several)
    of.bells = bells = BellThread(make_celery(settings), metrics.count_bell)
    of.subscription = subscription = Subscription(ledger, times)
    of.ledger_watch = LedgerWatch(ledger, models, bells, metrics.redis_read)
    of.in_flight = in_flight = InFlight(lambda: stall.recent_s, lambda: keys.several)
    of.rates = rates = RequestRates(ledger)
    of.list_turns = ListTurns()
    most = _HELD_BODIES * settings.max_body_bytes
    held = {what: Shared(most, lambda: keys.several) for what in ("requests", "answers")}
    of.bodies, of.answers = held["requests"], held["answers"]
    of.traces = open_traces(role="api")
    metrics.add(lambda: process_rows(models, subscription, stall, in_flight, held))
    metrics.add(lambda: queue_rows(models, settings), shared=True)

    new_tasks = NewTasks(settings, models, subscription.name)
    submitter = Submitter(ledger, bells, in_flight, metrics, settings)
    calls = SynchronousCalls(ledger, subscription, submitter, models, new_tasks)
    of.embeddings = EmbeddingService(new_tasks, calls, models, rates, settings)
    of.tasks = TaskService(
        ledger,
        new_tasks=new_tasks,
        submitter=submitter,
        subscription=subscription,
        models=models,
        settings=settings,
    )
    of.datasets = DatasetService(dataset_files, models, calls, settings)
    of.files = FileService(ledger, storage, settings)
    of.batches = BatchService(ledger, models, settings)
    of.ingestions = IngestionService(ledger, models, storage, dataset_files, settings)
    of.jobs = JobService(ledger, models)
    of.key_service = KeyService(keys, ledger)
    of.service = ServiceInfo(ledger, models, storage, settings)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
    """The lifespan of the app: its background tasks run. It starts without Redis too.

    Raises:
        SchemaMismatch: Redis holds the data of another version.
    """
    app.openapi()  # now: nobody shall wait for it in a request
    parts = app.state
    listening = asyncio.create_task(parts.subscription.run(), name="subscription")
    with suppress(TimeoutError):  # Redis is down: the web tier starts all the same, and both tasks keep trying
        await asyncio.wait_for(parts.subscription.subscribed.wait(), _FIRST_SUBSCRIPTION_S)
    await asyncio.gather(parts.ledger_watch.look(), parts.keys.refresh())
    if parts.ledger_watch.mismatch is not None:
        raise parts.ledger_watch.mismatch  # a process that served would be replaced for ever
    parts.stall.start()  # last: nobody is served yet, so a stall up to here hurts nobody
    background = [
        listening,
        asyncio.create_task(parts.ledger_watch.run(), name="ledger_watch"),
        asyncio.create_task(parts.keys.run(), name="keys"),
    ]

    def send_home() -> None:
        # Ends all requests that only wait: the server stops.
        parts.subscription.close()
        parts.dataset_files.stop()

    yield {"send_home": send_home}

    for task in background:
        task.cancel()
    await asyncio.wait(background, timeout=_STOP_S)  # one that lost its cancellation gets another one with the loop
    parts.stall.stop()
    await asyncio.to_thread(parts.bells.close)
    await asyncio.to_thread(close_traces, parts.traces)
    await parts.ledger.close()
