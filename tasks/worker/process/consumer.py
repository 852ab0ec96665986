"""How the parent hears bells. Of a message nothing is read but its name, and whatever ends the hearing is an outage.

Work needs no bells: the child looks for it with each heartbeat.
"""

import logging
import math
import time
import warnings
from collections.abc import Callable
from queue import Empty
from typing import Any, NoReturn
from uuid import uuid4

from celery.exceptions import CPendingDeprecationWarning, WorkerLostError
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown
from kombu.exceptions import ContentDisallowed

from tasks.ledger.client import reason
from tasks.worker.process.stop import SharedPage
from worker_config.celery_app import BELL_TASK

_log = logging.getLogger(__name__)

ALIVE_EVERY_S = 0.2
"""The loop looks for a stop only when it turns, so this is also how long a stop may go unnoticed."""
SAY_AGAIN_S = 60.0
RECONNECT_EVERY_S = 1.0
"""Celery's own waits grow to 30 s: nobody would hear a bell for so long after an outage."""
_LACKING = (("properties",), ("delivery_tag",))
"""`KeyError`s of a message. All others are errors of the connection for kombu."""


class BellConsumer(Consumer):
    """Waiting for Redis is not hanging; one that refuses (a replica, a full one) is waited for as well.

    `turned` is called with each turn of the loop, and while it waits.
    """

    hub: Any

    def __init__(self, *args: Any, turned: Callable[[], None], shared: SharedPage, address: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Celery ends for what is not listed here.
        self.connection_errors = (Exception,)
        self._turned, self._shared, self._address = turned, shared, address
        self._said_s = {"outage": -math.inf, "dropped": -math.inf}

    def start(self) -> None:
        """Called by Celery once signals are handled: from the first turn on, a SIGTERM is a stop and no death."""
        self._turned()
        self.timer.call_repeatedly(ALIVE_EVERY_S, self._turned)
        super().start()

    def connect(self) -> Any:
        """The connection, whose messages are read one by one."""
        connection = self.connection_for_read()
        transport: Any = connection.transport
        # It has taken the whole message, broken or not, from the list.
        transport.on_readable = self._dropping(transport.on_readable, connection)
        transport.register_with_event_loop(connection.connection, self.hub)
        return connection

    def _dropping(self, read: Callable[[int], None], connection: Any) -> Callable[[int], None]:
        of_the_connection = (*connection.connection_errors, *connection.channel_errors, Empty)

        def read_or_drop(fileno: int) -> None:
            try:
                read(fileno)
            except Exception as error:
                if isinstance(error, of_the_connection) and error.args not in _LACKING:
                    raise
                self._shared.dropped += 1
                why, number = type(error).__name__, self._shared.dropped
                self._say("dropped", "dropped a message that is no bell (%s); %d since the start", why, number)

        return read_or_drop

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """What Celery calls with each message."""
        ring = super().create_task_handler(*args, **kwargs)

        def hear(message: Any) -> None:
            found = (message.headers.get("task"), message.content_type, message.content_encoding)
            if found != (BELL_TASK, "application/json", "utf-8"):
                self.on_decode_error(message, ContentDisallowed())
            # Neither Celery nor the child is to read anything else of it.
            message.body, message.properties = b"[[], {}, {}]", {}
            message.headers = {"task": BELL_TASK, "id": str(uuid4())}
            ring(message)

        return hear

    def on_decode_error(self, message: Any, exc: Exception) -> NoReturn:
        """Called by kombu for a body that cannot be unpacked. Celery's own method logs it."""
        message.reject()
        raise exc

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Called by Celery before it connects anew."""
        if isinstance(exc, WorkerLostError):  # the child cannot start, which is no matter of Redis
            raise exc
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CPendingDeprecationWarning)  # of an option that is set here on purpose
            # Celery logs what it is given, and an error may quote the message.
            super().on_connection_error_after_connected(ConnectionError(type(exc).__name__))
        self.on_connection_error_before_connected(exc)  # connecting may work, and the first command fail again

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Called by Celery where Redis answers and lets nobody in. Where it is away, `ensure_connected` waits."""
        self._say_outage(exc)
        until = time.monotonic() + RECONNECT_EVERY_S
        while time.monotonic() < until:
            self._waited()
            time.sleep(ALIVE_EVERY_S)

    def ensure_connected(self, conn: Any) -> Any:
        """The connection, once there is one; a stop ends the wait."""
        return conn.ensure_connection(
            lambda exc, _interval_s: self._say_outage(exc),
            interval_start=RECONNECT_EVERY_S,
            interval_step=0,
            interval_max=RECONNECT_EVERY_S,
            callback=self._waited,
        )

    def _waited(self) -> None:
        self._turned()
        self.pool.maintain_pool()
        maybe_shutdown()

    def _say_outage(self, exc: Exception) -> None:
        self._say("outage", "no bells from Redis at %s, connecting anew: %s", self._address, reason(exc))

    def _say(self, what: str, text: str, *args: object) -> None:
        if time.monotonic() - self._said_s[what] > SAY_AGAIN_S:
            _log.warning(text, *args)
            self._said_s[what] = time.monotonic()
