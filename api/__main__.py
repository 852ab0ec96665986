"""`python -m api`: starts uvicorn. Exits 78 when the configuration cannot be used."""

import asyncio
import errno
import gc
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading
from multiprocessing import resource_tracker
from types import FrameType
from typing import NoReturn

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from api.app import create_app
from api.head_and_body_limits import DeadlineProtocol
from tasks.errors import RedisUnavailable, SchemaMismatch, WrongRedis
from tasks.ledger.client import AsyncLedger
from tasks.ledger.heartbeat import watch
from tasks.ledger.read import check_schema
from tasks.ledger.redis_keys import DOCUMENTS
from worker_config.logs import write_refusal
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE
from worker_config.settings import PREFIX, Settings, SettingsError, bare_environment, load_settings

_log = logging.getLogger("api")
_BACKLOG = 2048
_LAST_S = 3.0


def main() -> int:
    """Serves until SIGTERM or SIGINT; the exit code."""
    try:
        settings = load_settings("api")
        listeners = _listen(settings.host, settings.port)
        asyncio.run(_check_redis(settings))
        connections = affordable_connections(settings.max_connections)
        if connections < settings.max_connections:
            _log.warning(
                "%d connections at a time instead of %sMAX_CONNECTIONS=%d: this process may not open more files "
                "(LimitNOFILE, ulimit -n)",
                connections, PREFIX, settings.max_connections,
            )  # fmt: skip
        _log.info("serving on %s", ", ".join("{}:{}".format(*one.getsockname()) for one in listeners))
        if settings.api_processes == 1:
            return _serve(settings, listeners)
        return _supervise(settings, listeners)
    except (SettingsError, SchemaMismatch, WrongRedis) as error:
        write_refusal("", str(error))
        return CONFIGURATION_EXIT_CODE
    except OSError as error:
        _log.error("cannot serve: %s", error.strerror)
        return 1


def make_supervised_app() -> FastAPI:
    """The app of a process that uvicorn supervises. Also ends the process when its parent was killed."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    return _make_app(load_settings("api"), int(multiprocessing.current_process().name.rpartition("-")[2]))


def _make_app(settings: Settings, process: int | None = None) -> FastAPI:
    app = create_app(settings, process)
    app.state.bells.warm_up()
    # A full round of the garbage collector over everything imported stops the event loop for 60 to 80 ms. What exists
    # now lives as long as the process, so it is taken out of the rounds.
    gc.collect()
    gc.freeze()
    return app


def affordable_connections(wanted: int) -> int:
    """`wanted`, or less where this process may not open so many files; raises the limit as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * 4 // 3 + 1  # a quarter is for Redis, files and libraries
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY or soft >= needed else max(1, soft * 3 // 4)


def _listen(host: str, port: int) -> list[socket.socket]:
    found: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, (name, _, *scope) in dict.fromkeys(addresses):  # a hosts file may name one twice
            where = (name, found[0].getsockname()[1] if found else port, *scope)
            dual = host == "::" and socket.has_dualstack_ipv6()
            found.append(socket.create_server(where, family=family, backlog=_BACKLOG, dualstack_ipv6=dual))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise  # it may become free
        raise SettingsError(f"{PREFIX}HOST={host}, {PREFIX}PORT={port}: cannot be bound: {error.strerror}") from None
    return found


async def _check_redis(settings: Settings) -> None:
    ledger = AsyncLedger.connect(settings.redis_url, sentinels=settings.sentinels)
    try:
        await ledger.require_usable()
        await ledger.run(check_schema())
        await ledger.run(watch(DOCUMENTS))  # as each second from now on
    except WrongRedis:
        raise
    except RedisUnavailable as error:
        _log.warning("serving anyway, submissions are refused meanwhile: %s", error.detail)
    finally:
        await ledger.close()


def _serve(settings: Settings, listeners: list[socket.socket]) -> int:
    app = _make_app(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)  # uvicorn raises what stopped it once more; unhandled, it would look like a crash
    try:
        uvicorn.Server(_config(app, settings)).run(listeners)
    except SystemExit as stop:
        code = stop.code
    if app.state.ledger_watch.mismatch is not None:
        raise app.state.ledger_watch.mismatch
    return code if isinstance(code, int) else 1


def _supervise(settings: Settings, listeners: list[socket.socket]) -> int:
    with bare_environment():  # it is a process too, and others could read its environment
        resource_tracker.ensure_running()
    supervisor = Multiprocess(_config("api.__main__:make_supervised_app", settings), listeners)
    supervisor.run()
    if all(process.exitcode != STARTUP_FAILURE for process in supervisor.processes):
        return 0
    asyncio.run(_check_redis(settings))  # has a sentence for the usual reason
    return 1


def _config(app: FastAPI | str, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.api_processes,
        loop="uvloop",
        http=DeadlineProtocol,
        ws="none",
        lifespan="on",
        log_config=None,  # the root logger is set up already
        access_log=False,
        server_header=False,
        limit_concurrency=affordable_connections(settings.max_connections) + 1,
        backlog=_BACKLOG,
        timeout_keep_alive=75,  # above the 60 s of common proxies, so that they never reuse a closed connection
        timeout_graceful_shutdown=5,  # for requests that run; those that only wait are sent home at once
        timeout_worker_healthcheck=30,  # a process on a busy machine is not dead
    )


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    code = main()
    # Python joins the threads of pools at its end. One that waits for a storage which hangs would hold the process.
    last = threading.Timer(_LAST_S, os._exit, (code,))
    last.daemon = True
    last.start()
    sys.exit(code)
