"""How a worker joins: it says what it loads, waits for Redis and the storage, refuses a Redis that cannot serve."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from redis.exceptions import RedisError

from tasks.errors import EmbedqError, RedisUnavailable, SchemaMismatch, WrongRedis
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import LoadingWorker, loading
from tasks.ledger.read import check_schema
from tasks.worker.process.child import WorkerChild
from tasks.worker.process.stop import Stopping
from worker_config.celery_app import bell_queue

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
SAY_AGAIN_S = 30.0
TELL_EVERY_S = 5.0
LOADING_TTL_S = 3 * TELL_EVERY_S


@contextmanager
def saying_what_loads(child: WorkerChild, ledger: Ledger, queue: str, what: LoadingWorker) -> Iterator[None]:
    """A model is being loaded while the block lasts: said in the log at once and again, and in the ledger.

    Whoever joins or stops takes it off the ledger. Ends the worker where Redis can never serve it.
    """
    done = threading.Event()

    def log() -> None:
        began = time.monotonic()
        _log.info("loading %s (from %s)", what.model, what.source)
        while not done.wait(SAY_AGAIN_S):
            _log.info("still loading %s (from %s), for %.0f s", what.model, what.source, time.monotonic() - began)

    def tell() -> None:
        while not done.is_set():
            try:
                ledger.run(check_schema())
                if ledger.run(loading(queue, what, int(LOADING_TTL_S * 1000))).bell_due:
                    child.send_bell(queue)
            except (SchemaMismatch, WrongRedis) as error:
                child.shared.refuse_in_child(str(error))
            except (EmbedqError, RedisError):
                pass  # it is waited for once the model is loaded
            done.wait(TELL_EVERY_S)

    threading.Thread(target=log, name="loading", daemon=True).start()
    telling = threading.Thread(target=tell, name="telling", daemon=True)
    telling.start()
    try:
        yield
    finally:
        done.set()
        telling.join()  # behind a join it would take away what the worker has claimed


def wait_for_redis(child: WorkerChild, register: Callable[[], Sequence[str]]) -> None:
    """Calls `register`, again every second while Redis is away, and logs what it warns of. Each reason is logged once.

    Raises:
        Stopping: a stop was asked for first.
        WrongRedis: there is nothing to wait for.
    """
    logged = ""
    while not child.shared.stopping():
        try:
            warnings = register()
        except WrongRedis:
            raise
        except RedisUnavailable as error:
            if error.detail != logged:
                address = child.settings.redis_address
                _log.warning("waiting for Redis at %s (EMBEDQ_REDIS_URL): %s", address, error.detail)
            logged = error.detail
            time.sleep(_RETRY_S)
        else:
            for warning in warnings:
                _log.warning("%s", warning)
            return
    raise Stopping


def require_usable(ledger: Ledger, queue: str) -> Sequence[str]:
    """Returns when Redis can do all that a worker of this queue needs, and has data of this version.

    One warning for each setting of the server with which accepted work can be lost.

    Raises:
        RedisUnavailable: no answer, or a right is missing.
        WrongRedis: it can never serve.
        SchemaMismatch: another version's data is there.
    """
    warnings = ledger.try_out(bell_queue(queue)).require_usable()
    ledger.run(check_schema())
    return warnings
