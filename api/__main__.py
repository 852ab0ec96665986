"""`python -m api`: the web tier, one process or several. Exits 78 when the configuration cannot be used."""

import gc

gc.disable()  # what is imported stays: the collector's rounds over it took a quarter of a start's processor time

import asyncio
import logging
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn

import uvicorn

from api.app import create_app
from api.parts import Services
from api.server.connections import Connections, affordable_connections
from api.server.http_protocol import Limits
from api.server.listening import bind, require_bindable, run_processes
from tasks.errors import RedisUnavailable, SchemaMismatch
from tasks.ledger import AsyncLedger, operations
from worker_config.logs import write_refusal
from worker_config.settings import CONFIGURATION_EXIT_CODE, Settings, SettingsError, load_settings

gc.enable()

_log = logging.getLogger("api")
_GRACE_S = 5
"""Time that running requests get at a stop; those that only wait are sent home at once."""


class Server(uvicorn.Server):
    """uvicorn's server, which at a stop first sends those home who wait: they would hold it for up to a minute."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops serving."""
        self._services.send_home()
        await super().shutdown(sockets)


def main() -> int:
    """Serves until SIGTERM or SIGINT; the exit code."""
    gc.freeze()  # what was imported, for the collector's rounds from here to the end of the process
    try:
        settings = load_settings("api")
        settings.require_safe_bind()
        settings.require_traces()
        require_bindable(settings.host, settings.port)
        asyncio.run(_check_schema(settings.redis_url))
    except (SettingsError, SchemaMismatch) as error:
        write_refusal("", str(error))
        return CONFIGURATION_EXIT_CODE
    if settings.api_processes == 1:
        return _serve(settings)
    try:
        sockets = bind(settings.host, settings.port)
    except OSError as error:
        _log.error("cannot serve on %s:%d: %s", settings.host, settings.port, error.strerror)
        return 1
    return run_processes(settings.api_processes, sockets, lambda index: _serve(settings, sockets, index))


def _serve(settings: Settings, sockets: list[socket.socket] | None = None, process: int | None = None) -> int:
    affordable = affordable_connections(settings.max_connections)
    app = create_app(settings.model_copy(update={"max_connections": affordable}), process)
    services: Services = app.state.services
    services.bell.warm_up()
    # A full round of the garbage collector over everything imported stops the event loop for 60 to 80 ms. What exists
    # now lives as long as the process, so it is taken out of the rounds.
    gc.collect()
    gc.freeze()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=Connections(Limits(connections=affordable)),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,  # the root logger is set up already
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks for the client's address
        timeout_keep_alive=75,  # above the 60 s of common proxies, so that they never reuse a closed connection
        timeout_graceful_shutdown=_GRACE_S,
    )
    # uvicorn raises the signals that stopped it once more at its end; unhandled, SIGTERM would look like a crash.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        Server(config, services).run(sockets)
    except SystemExit as stop:
        if stop.code:
            raise  # the address is in use, says the log
    if services.watchdog.mismatch is not None:
        write_refusal("", str(services.watchdog.mismatch))
        return CONFIGURATION_EXIT_CODE
    return 0


async def _check_schema(redis_url: str) -> None:
    ledger = AsyncLedger.connect(redis_url)
    try:
        await ledger.run(operations.check_schema())
    except RedisUnavailable as error:
        _log.warning("serving anyway, submissions are refused meanwhile: %s", error.detail)
    finally:
        await ledger.close()


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
