"""One process of a model worker once its model is loaded: its streams, its heartbeat, what it says of itself."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tasks.encoder.encode import PassLock
from tasks.encoder.interface import Encoder, EncoderBroken, ModelLoadError
from tasks.encoder.load import load
from tasks.encoder.locate import source_of
from tasks.errors import ModelChanged
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import LoadingWorker, Worker
from tasks.ledger.overview import overview
from tasks.records.storage_identity import open_proved
from tasks.worker.claim_loop import Streams
from tasks.worker.claim_size import Speed, measure_rate, pass_budget
from tasks.worker.encode_claim import EncodeClaims
from tasks.worker.process.child import WorkerChild
from tasks.worker.process.heartbeat import Heartbeat
from tasks.worker.process.register import require_usable, saying_what_loads, wait_for_redis
from tasks.worker.reference import check_reference
from tasks.worker.rows import RowStore
from tasks.worker.tokenizer_store import keep_tokenizer_stored

_log = logging.getLogger(__name__)


class ModelWorker:
    """A loaded model, its heartbeat and its streams. Lives in the Celery child."""

    def __init__(self, child: WorkerChild, ledger: Ledger, encoder: Encoder) -> None:
        self._child, self._ledger, self._encoder = child, ledger, encoder
        self._queue = child.settings.served_model_name
        self._model = dataclasses.replace(
            encoder.info, id=self._queue, aliases=child.settings.served_names[1:], created_at=int(time.time())
        )
        self._stopped = threading.Event()
        open_storage = partial(open_proved, child.settings.storage_url, ledger.run)
        self._rows = RowStore(open_storage, encoder.info, encoder.info.revision)
        budget = pass_budget(encoder.info.device)
        self._speed = Speed(_rate(encoder, budget), budget)
        lock = PassLock() if encoder.streams > 1 else None
        self._streams = Streams(
            child,
            ledger,
            self._queue,
            EncodeClaims(encoder, self._rows, self._speed, lock),
            number=encoder.streams,
            stamp=self._model.stamp,
            breaks=(EncoderBroken, ModelChanged),
        )
        self._check_reference = partial(check_reference, ledger, encoder)
        self._heartbeat = Heartbeat(self._streams, self._describe, also_check=self._check_reference)

    @classmethod
    def start(cls, child: WorkerChild) -> Callable[[float], None]:
        """Loads and tests the model, then joins the ledger: only now do its heartbeat and its ready file exist.

        Waits for Redis as long as it takes. Returns what leaves.

        Raises:
            ModelLoadError: the model cannot be served.
            SchemaMismatch: the data in Redis is another version's.
            WrongRedis: Redis cannot serve.
            Stopping: a stop was asked for while it waited.
        """
        settings = child.settings
        ledger = Ledger.connect(settings.redis_url, sentinels=settings.sentinels)
        what = LoadingWorker(child.worker_id, settings.model_name, source_of(settings), time.time())
        with saying_what_loads(child, ledger, settings.served_model_name, what):
            worker = cls(child, ledger, load(settings))
        worker.join()
        return worker.leave

    def join(self) -> None:
        """Registers the model, takes over what a previous incarnation held, and says that the worker is ready."""
        wait_for_redis(self._child, self._register)
        self._heartbeat.start()
        keep = partial(keep_tokenizer_stored, self._rows.storage, self._encoder, self._stopped)
        threading.Thread(target=keep, name="tokenizer-store", daemon=True).start()
        info = self._encoder.info
        self._child.folder.set_ready({"model": info.model, "revision": info.revision, "dimension": info.dimension})
        self._streams.wake(rang=False)
        _log.info(
            "ready: %s revision %s, %s %s on %s, %d dimensions, about %.0f tokens/s",
            self._queue,
            info.revision,
            info.compute,
            info.precision,
            info.device,
            info.dimension,
            self._speed.tokens_per_s * self._encoder.streams,
        )

    def leave(self, patience_s: float) -> None:
        """A clean stop: no longer live."""
        self._stopped.set()
        self._streams.finish(patience_s)
        self._heartbeat.finish()
        self._ledger.close()

    def _register(self) -> Sequence[str]:
        """Joins the workers of this model. Returns what `require_usable` warns of.

        Raises:
            ModelLoadError: live workers serve another model under this name, or other vectors are known by its
                revision: vectors of both would be mixed.
        """
        warnings = require_usable(self._ledger, self._queue)
        self._check_reference()
        own, before = self._model, self._ledger.run(overview(self._queue))[self._queue].model
        if before:
            own = dataclasses.replace(own, created_at=before.created_at)  # it stays while the model is the same
        if not self._heartbeat.enter(own if own == before else self._model):
            there = f"{before.model} revision {before.revision}" if before else "another model"
            raise ModelLoadError(
                f"Live workers serve {there} as {own.id}, and this one has {own.model} revision {own.revision}. Stop "
                "them first, or set another EMBEDQ_SERVED_NAME."
            )
        return warnings

    def _describe(self, worker: Worker) -> Worker:
        done = self._streams.counted()
        trouble = self._rows.trouble
        return dataclasses.replace(
            worker,
            rate=self._speed.tokens_per_s * self._encoder.streams,
            forward_passes=done.get("forward_passes", 0),
            items=done.get("encoded_items", 0),
            tokens=done.get("tokens", 0),
            padded_tokens=done.get("padded_tokens", 0),
            streams=self._encoder.streams,
            storage_error=trouble.code,
            storage_error_since=trouble.since,
            storage_detail=trouble.detail,
        )


def _rate(encoder: Encoder, max_padded_tokens: int) -> float:
    """Of one stream, while all of them work."""
    measure = partial(measure_rate, encoder, max_padded_tokens=max_padded_tokens)
    with ThreadPoolExecutor(encoder.streams) as threads:
        rates = [rate.result() for rate in [threads.submit(measure) for _ in range(encoder.streams)]]
    return sum(rates) / len(rates)
