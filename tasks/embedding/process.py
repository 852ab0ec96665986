"""One process of a model worker once its model is loaded: the streams, the heartbeat, the register. No Celery."""

import dataclasses
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Self

import psutil

from tasks.embedding.reference import check_reference
from tasks.embedding.rows import LateStorage, RowStore
from tasks.embedding.speed import budget_for, lease_for
from tasks.embedding.streams import Streams
from tasks.embedding.tokenizer_store import TokenizerStore
from tasks.encoder.interface import Encoder, ModelInfo, ModelLoadError
from tasks.encoder.load import load
from tasks.errors import RedisUnavailable
from tasks.ledger import Ledger, ModelEntry, WorkerEntry, operations
from tasks.process.heartbeat import Heartbeat
from tasks.process.joining import require_usable, take_over, wait_for
from tasks.process.liveness import any_hangs
from tasks.process.role import Start
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

HUNG_AFTER_LEASES = 4
"""Without a step of its stream, a process is replaced, which costs a load of the model. Its lease ran out long before;
without this the process would hang for ever."""


class ModelWorker:
    """A loaded model, its heartbeat and its streams. Lives in the Celery child."""

    def __init__(self, start: Start, encoder: Encoder) -> None:
        self._start = start
        self._settings = settings = start.settings
        self._queue = settings.served_model_name
        self._encoder = encoder
        self._entry = _entry_from(encoder.info, settings)
        self._started_at = time.time()
        self._process = psutil.Process()
        self._ledger = Ledger.connect(settings.redis_url)
        budget = budget_for(encoder.info.device)
        self._lease_s = lease_for(encoder, max_padded_tokens=budget.most, least_s=settings.lease_s)
        self._storage = storage = LateStorage(settings.storage_url, self._ledger.run)
        self._rows = RowStore(storage, encoder.info, encoder.info.revision)
        self._tokenizer_store = TokenizerStore(storage, encoder)
        self._streams = Streams(
            start,
            self._ledger,
            self._queue,
            encoder,
            lease_s=self._lease_s,
            stamp=self._entry.stamp,
            store=self._rows,
            budget=budget,
        )
        self._heartbeat = Heartbeat(
            start,
            self._ledger,
            self._queue,
            self._beat,
            [stream.work.progress for stream in self._streams.all],
            lease_s=self._lease_s,
            work_hangs=self._hang_watch(),
        )

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
        start.files.clear_ready()
        worker = cls(start, load(start.settings))
        worker.join()
        return worker

    def join(self) -> None:
        """Registers the model, takes over what a previous incarnation held, and says that the worker is ready."""
        redis = f"Redis at {self._settings.redis_address} (EMBEDQ_REDIS_URL)"
        wait_for(redis, self._register, while_raises=RedisUnavailable, stop=self._start.stop)
        self._heartbeat.start()
        self._tokenizer_store.start()
        info = self._encoder.info
        self._start.files.set_ready({"model": info.model, "revision": info.revision, "dimension": info.dimension})
        _log.info(
            "ready: %s revision %s, %s %s on %s, %d dimensions, about %.0f tokens/s",
            self._queue,
            info.revision,
            info.compute,
            info.precision,
            info.device,
            info.dimension,
            self._streams.tokens_per_s,
        )

    def run_slice(self) -> None:
        """One slice of work.

        Raises:
            EncoderBroken: this process must be replaced.
            ModelChanged: likewise.
        """
        self._streams.run_slice()

    def leave(self) -> None:
        """A clean stop: no longer ready, no longer live."""
        self._start.files.clear_ready()
        self._tokenizer_store.stop()
        self._heartbeat.finish()
        self._streams.close()
        self._ledger.close()

    def _hang_watch(self) -> Callable[[], bool]:
        patience_s, outside_s = HUNG_AFTER_LEASES * self._lease_s, self._start.patience.outside_s
        streams = self._streams.all
        return any_hangs([stream.work.progress.hang_watch(patience_s, outside_s=outside_s) for stream in streams])

    @property
    def _ttl_ms(self) -> int:
        """How long it counts as live after a beat."""
        return int(self._settings.heartbeat_ttl_s * 1000)

    def _register(self) -> None:
        """Joins the workers of this model.

        Raises:
            ModelLoadError: live workers serve another model under this name, or other vectors are known by its
                revision: vectors of both would be mixed.
        """
        require_usable(self._ledger, self._queue)
        check_reference(self._ledger, self._encoder)
        before = self._ledger.run(operations.overview(self._queue))[self._queue].entry
        if before and dataclasses.replace(self._entry, created_at=before.created_at) == before:
            self._entry = before  # so that `created_at` stays
        register = operations.register(self._queue, self._entry, worker=self._start.worker_id, ttl_ms=self._ttl_ms)
        if not self._ledger.run(register):
            there = f"{before.model} revision {before.revision}" if before else "another model"
            raise ModelLoadError(
                f"Live workers serve {there} as {self._queue}, and this one has {self._entry.model} revision "
                f"{self._entry.revision}. Stop them first, or set another EMBEDQ_SERVED_NAME."
            )
        take_over(self._ledger, self._queue, self._start)

    def _beat(self) -> operations.Operation[None]:
        return operations.beat(self._queue, self._describe(), self._ttl_ms, self._entry)

    def _describe(self) -> WorkerEntry:
        totals = [stream.work.totals for stream in self._streams.all]
        storage_error, since = self._rows.storage_error
        return WorkerEntry(
            id=self._start.worker_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self._started_at,
            rate=self._streams.tokens_per_s,
            rss_bytes=self._process.memory_info().rss,
            forward_passes=sum(t.forward_passes for t in totals),
            items=sum(t.items for t in totals),
            tokens=sum(t.tokens for t in totals),
            padded_tokens=sum(t.padded_tokens for t in totals),
            streams=len(totals),
            dropped_bells=self._start.files.dropped_bells(),
            storage_error=storage_error,
            storage_error_since=since,
            storage_detail=self._storage.detail,
        )


def _entry_from(info: ModelInfo, settings: Settings) -> ModelEntry:
    return ModelEntry(
        id=settings.served_model_name,
        model=info.model,
        revision=info.revision,
        dimension=info.dimension,
        max_tokens=info.max_tokens,
        prompts=info.prompts,
        device=info.device,
        compute=info.compute,
        precision=info.precision,
        created_at=int(time.time()),
        aliases=settings.served_names[1:],
        query_prompt=info.query_prompt,
        document_prompt=info.document_prompt,
        similarity=info.similarity,
    )
