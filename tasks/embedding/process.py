"""Everything one worker process owns once its model is loaded. No Celery: the entry file hands in what it needs."""

import dataclasses
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Self

import psutil

from tasks.drain.loop import DrainLimits
from tasks.embedding.rows import LateStorage, RowStore
from tasks.embedding.streams import Streams
from tasks.embedding.tokenizer_store import TokenizerStore
from tasks.ledger import Ledger, ModelEntry, WorkerEntry, operations
from tasks.model.batching import PassBudget
from tasks.model.cache import VectorCache
from tasks.model.encoder import Encoder, ModelInfo, ModelLoadError, TextItem
from tasks.model.encoding import encode
from tasks.model.load import load
from tasks.process.heartbeat import Heartbeat
from tasks.process.joining import join_ledger, warn_about_durability
from tasks.process.run_files import RunFiles
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

LEASE_PER_PASS = 4
"""Leases are renewed when a pass has ended, so one must last for several, on a machine that may slow down."""
HUNG_AFTER_LEASES = 4
"""Without a step of its stream, a process is replaced, which costs a load of the model."""


class ModelWorker:
    """A loaded model, its heartbeat and its streams. Lives in the Celery child."""

    def __init__(
        self,
        settings: Settings,
        worker_id: str,
        encoder: Encoder,
        *,
        stop: Callable[[], bool],
        send_bell: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._id = worker_id
        self._queue = settings.served_model_name
        self._encoder = encoder
        self._entry = _entry_of(encoder.info, settings)
        self._files = RunFiles(settings.run_dir)
        self._started_at = time.time()
        self._process = psutil.Process()
        self._ledger = Ledger.connect(settings.redis_url)
        self._budget = PassBudget.of(encoder.info.device, settings.max_padded_tokens)
        self._lease_s = self._long_enough(settings.lease_s)
        self._stop = stop
        self._cache = VectorCache(settings.cache_bytes)
        storage = LateStorage(settings.storage_url)
        self._tokenizer_store = TokenizerStore(storage, encoder)
        self._streams = Streams(
            self._ledger,
            self._queue,
            worker_id,
            encoder,
            DrainLimits(settings.slice_s, self._lease_s, settings.unit_s),
            stamp=self._entry.stamp,
            store=RowStore(storage, encoder.info.prompts, encoder.info.revision),
            budget=self._budget,
            cache=self._cache,
            send_bell=send_bell,
            stop=stop,
        )
        self._heartbeat = self._make_heartbeat(send_bell, wake)

    @classmethod
    def start(
        cls,
        settings: Settings,
        worker_id: str,
        *,
        stop: Callable[[], bool],
        send_bell: Callable[[], None],
        wake: Callable[[], None],
    ) -> Self:
        """Loads and tests the model, then joins the ledger: only now do its heartbeat and its ready file exist.

        Waits for Redis as long as it takes.

        Raises:
            ModelLoadError: the model cannot be served.
            SchemaMismatch: the data in Redis is another version's.
        """
        RunFiles(settings.run_dir).clear_ready()
        worker = cls(settings, worker_id, load(settings), stop=stop, send_bell=send_bell, wake=wake)
        worker.join()
        return worker

    def join(self) -> None:
        """Registers the model, takes over what a previous incarnation held, and says that the worker is ready."""
        join_ledger(self._settings, self._register, self._stop)
        warn_about_durability(self._ledger.client)
        self._heartbeat.start()
        self._tokenizer_store.start()
        info = self._encoder.info
        self._files.set_ready({"model": info.model, "revision": info.revision, "dimension": info.dimension})
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
        """
        self._streams.run_slice()

    def leave(self) -> None:
        """A clean stop: no longer ready, no longer live."""
        self._files.clear_ready()
        self._tokenizer_store.stop()
        self._heartbeat.finish()
        self._streams.close()
        self._ledger.close()

    @property
    def _ttl_ms(self) -> int:
        """How long it counts as live after it was heard of."""
        return int(self._settings.heartbeat_ttl_s * 1000)

    def _make_heartbeat(self, send_bell: Callable[[], None], wake: Callable[[], None]) -> Heartbeat:
        return Heartbeat(
            self._ledger,
            self._queue,
            self._id,
            self._say,
            [stream.progress for stream in self._streams.all],
            every_s=self._settings.heartbeat_s,
            lease_s=self._lease_s,
            send_bell=send_bell,
            wake=wake,
            turned=self._files.touch_beat,
            parent_hangs=self._files.hang_watch(),
            work_hangs=self._hang_watch(),
        )

    def _hang_watch(self) -> Callable[[], bool]:
        """Whether a stream hangs. Its lease ran out long before; without this the process would hang for ever."""
        watches = [stream.progress.hang_watch(HUNG_AFTER_LEASES * self._lease_s) for stream in self._streams.all]
        return lambda: True in [hangs() for hangs in watches]  # all look each time

    def _register(self) -> None:
        """Joins the workers of this model.

        Raises:
            ModelLoadError: live workers serve another model under this name; vectors of both would be mixed.
        """
        self._ledger.run(operations.check_schema())
        before = self._ledger.run(operations.overview(self._queue))[self._queue].entry
        if before and dataclasses.replace(self._entry, created_at=before.created_at) == before:
            self._entry = before  # so that `created_at` stays
        register = operations.register(self._queue, self._entry, worker=self._id, ttl_ms=self._ttl_ms)
        if not self._ledger.run(register):
            there = f"{before.model} revision {before.revision}" if before else "another model"
            raise ModelLoadError(
                f"Live workers serve {there} as {self._queue}, and this one has {self._entry.model} revision "
                f"{self._entry.revision}. Stop them first, or set another EMBEDQ_SERVED_NAME."
            )
        self._ledger.run(operations.abandon(self._queue, self._id))

    def _long_enough(self, lease_s: float) -> float:
        """A lease that outlasts a full pass several times: otherwise long texts on a slow machine would look dead."""
        longest = "word " * self._encoder.info.max_tokens
        full = [TextItem(f"{n} {longest}") for n in range(max(1, self._budget.most // self._encoder.info.max_tokens))]
        started = time.monotonic()
        encode(self._encoder, full, max_padded_tokens=self._budget.most)
        needed_s = LEASE_PER_PASS * (time.monotonic() - started)
        if needed_s > lease_s:
            _log.warning("one full pass takes %.1f s: the lease is %.0f s", needed_s / LEASE_PER_PASS, needed_s)
        return max(lease_s, needed_s)

    def _say(self) -> operations.Operation[None]:
        return operations.beat(self._queue, self._describe(), self._ttl_ms, self._entry)

    def _describe(self) -> WorkerEntry:
        totals = [stream.work.totals for stream in self._streams.all]
        cache = self._cache.state
        return WorkerEntry(
            id=self._id,
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
            cache_hits=cache.hits,
            cache_misses=cache.misses,
            cache_bytes=cache.size_bytes,
        )


def _entry_of(info: ModelInfo, settings: Settings) -> ModelEntry:
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
    )
