"""One process of a model worker once its model is loaded: its streams, its heartbeat, what it says of itself."""

import dataclasses
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self

import psutil

from tasks.encoder.encode import PassLock
from tasks.encoder.interface import Encoder, EncoderBroken, ModelLoadError
from tasks.encoder.load import load
from tasks.encoder.locate import source_of
from tasks.errors import ModelChanged, RedisUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import Worker, join
from tasks.ledger.overview import overview
from tasks.model import Model
from tasks.worker.claim_loop import Streams
from tasks.worker.claim_size import Speed, lease_for, measure_rate, pass_budget
from tasks.worker.commit_claim import Claims
from tasks.worker.encode_claim import EncodeClaims, Shared
from tasks.worker.process.child import Start
from tasks.worker.process.hangs import Progress
from tasks.worker.process.heartbeat import Heartbeat, live_ms
from tasks.worker.process.register import LoadingNotice, require_usable, wait_for
from tasks.worker.reference import check_reference
from tasks.worker.rows import LateStorage, RowStore
from tasks.worker.tokenizer_store import keep_tokenizer_stored

_log = logging.getLogger(__name__)


class ModelWorker:
    """A loaded model, its heartbeat and its streams. Lives in the Celery child."""

    def __init__(self, start: Start, ledger: Ledger, encoder: Encoder) -> None:
        self._start = start
        self._settings = settings = start.settings
        self._queue = settings.served_model_name
        self._ledger = ledger
        self._encoder = encoder
        self._model = dataclasses.replace(
            encoder.info, id=self._queue, aliases=settings.served_names[1:], created_at=int(time.time())
        )
        self._started_at = time.time()
        self._process = psutil.Process()
        self._stopped = threading.Event()
        budget = pass_budget(encoder.info.device)
        self._lease_s = lease_for(encoder, max_padded_tokens=budget, least_s=settings.lease_s)
        self._storage = LateStorage(settings.storage_url, ledger.run)
        self._rows = RowStore(self._storage, encoder.info, encoder.info.revision)
        self._claims = Claims(
            ledger,
            self._queue,
            worker=start.worker_id,
            lease_s=self._lease_s,
            stopping=start.shared.stopping,
            send_bell=start.send_bell,
            stamp=self._model.stamp,
            breaks=(EncoderBroken, ModelChanged),
            traces=start.traces,
        )
        lock = PassLock() if encoder.streams > 1 else None
        shared = Shared(encoder, self._claims, self._rows, lock)
        self._works = [EncodeClaims(shared, Speed(rate, budget)) for rate in _rates(encoder, budget)]
        self._progress = [Progress(partial(start.shared.work_on, number)) for number in range(encoder.streams)]
        self.streams = Streams(self._claims, list(zip(self._works, self._progress, strict=True)))
        self._heartbeat: Heartbeat | None = None

    @classmethod
    def start(cls, start: Start) -> Self:
        """Loads and tests the model, then joins the ledger: only now do its heartbeat and its ready file exist.

        Waits for Redis as long as it takes.

        Raises:
            ModelLoadError: the model cannot be served.
            SchemaMismatch: the data in Redis is another version's.
            WrongRedis: Redis cannot serve.
            Stopping: a stop was asked for while it waited.
        """
        settings = start.settings
        ledger = Ledger.connect(settings.redis_url)
        queue, source = settings.served_model_name, source_of(settings)
        with LoadingNotice(ledger, queue, start.worker_id, settings.model_name, source):
            worker = cls(start, ledger, load(settings))
        worker.join()
        return worker

    def join(self) -> None:
        """Registers the model, takes over what a previous incarnation held, and says that the worker is ready."""
        redis = f"Redis at {self._settings.redis_address} (EMBEDQ_REDIS_URL)"
        wait_for(redis, self._register, while_raises=RedisUnavailable, stop=self._start.shared.stopping)
        self._heartbeat = Heartbeat(
            self._start,
            self._claims,
            describe=self._describe,
            progress=self._progress,
            wake=partial(self.streams.wake, rang=False),
            model=self._model,
        )
        self._heartbeat.start()
        keep = partial(keep_tokenizer_stored, self._storage, self._encoder, self._stopped)
        threading.Thread(target=keep, name="tokenizer-store", daemon=True).start()
        info = self._encoder.info
        self._start.folder.set_ready({"model": info.model, "revision": info.revision, "dimension": info.dimension})
        self.streams.wake(rang=False)
        _log.info(
            "ready: %s revision %s, %s %s on %s, %d dimensions, about %.0f tokens/s",
            self._queue,
            info.revision,
            info.compute,
            info.precision,
            info.device,
            info.dimension,
            self._tokens_per_s,
        )

    def leave(self, patience_s: float) -> None:
        """A clean stop: no longer live."""
        self._stopped.set()
        self.streams.finish(patience_s)
        if self._heartbeat is not None:
            self._heartbeat.finish()
        self._ledger.close()

    @property
    def _tokens_per_s(self) -> float:
        """Of all streams together."""
        return sum(work.speed.tokens_per_s for work in self._works)

    def _register(self) -> None:
        """Joins the workers of this model.

        Raises:
            ModelLoadError: live workers serve another model under this name, or other vectors are known by its
                revision: vectors of both would be mixed.
        """
        require_usable(self._ledger, self._queue)
        check_reference(self._ledger, self._encoder)
        before = self._ledger.run(overview(self._queue))[self._queue].model
        if before and dataclasses.replace(self._model, created_at=before.created_at) == before:
            self._model = before  # so that `created_at` stays
        pulse = self._ledger.run(join(self._queue, self._describe(), self._model, live_ms(self._lease_s)))
        if not pulse.served:
            raise ModelLoadError(_in_use(before, self._model))
        self._claims.ring_if(pulse.bell_due)

    def _describe(self) -> Worker:
        done = self._claims.counted()
        storage_error, since = self._rows.storage_error
        return Worker(
            id=self._start.worker_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self._started_at,
            rate=self._tokens_per_s,
            rss_bytes=self._process.memory_info().rss,
            forward_passes=done.get("forward_passes", 0),
            items=done.get("encoded_items", 0),
            tokens=done.get("tokens", 0),
            padded_tokens=done.get("padded_tokens", 0),
            streams=len(self._works),
            dropped_bells=self._start.shared.dropped,
            storage_error=storage_error,
            storage_error_since=since,
            storage_detail=self._storage.detail,
            refused=self._claims.refused,
        )


def _rates(encoder: Encoder, max_padded_tokens: int) -> Sequence[float]:
    """Of each stream, while all of them work."""
    measure = partial(measure_rate, encoder, max_padded_tokens=max_padded_tokens)
    with ThreadPoolExecutor(encoder.streams) as threads:
        return [rate.result() for rate in [threads.submit(measure) for _ in range(encoder.streams)]]


def _in_use(before: Model | None, own: Model) -> str:
    there = f"{before.model} revision {before.revision}" if before else "another model"
    return (
        f"Live workers serve {there} as {own.id}, and this one has {own.model} revision {own.revision}. Stop them "
        "first, or set another EMBEDQ_SERVED_NAME."
    )
