"""`embedq doctor`: asks a server how it is, judges the answers, and says what to do.

Where no server answers on this machine, the Redis of its settings is asked instead: a Redis that can never serve is why
servers end.
"""

import argparse
import asyncio
import dataclasses
import json
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from embedq import environment
from embedq.cli.asking import client_from_args
from embedq.cli.exit_codes import OK, SOME_FAILED, UsageError
from embedq.cli.options import server_options
from embedq.cli.output import Output
from embedq.cli.serve import CHECKOUT, command_for
from embedq.errors import EmbedqClientError, RefusedError, UnreachableError
from embedq.transport import Transport, is_loopback, read_object, reading

_RECENT_S = 600
"""A worker that has died since then is dying; before that it is history."""
_LOG_HAS_MORE = "look at the API's log"
_NO_KEY, _FORBIDDEN = 401, 403


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        advice: what to do; "" when there is nothing to do.
    """

    name: str
    fine: bool
    detail: str
    advice: str = ""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    server_options(parser, timeout_s=30)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    return asyncio.run(_doctor(args, output))


async def _doctor(args: argparse.Namespace, output: Output) -> int:
    fine = True

    def show(finding: Finding) -> None:
        mark = "ok     " if finding.fine else "WRONG  "
        advice = f"\n         -> {finding.advice}" if finding.advice else ""
        output.result(f"{mark}{finding.name}: {finding.detail}{advice}", dataclasses.asdict(finding))

    async with client_from_args(Transport, args, output) as server:
        async for finding in examine(server):
            show(finding)
            fine = fine and finding.fine
            if finding.name == "server" and not finding.fine and is_loopback(server.url):
                for of_redis in redis_of_settings(server.timeout_s):
                    show(of_redis)
    return OK if fine else SOME_FAILED


async def examine(server: Transport) -> AsyncIterator[Finding]:
    """Checks a server from its process to its documents worker.

    What cannot be known is not guessed: without the server or its Redis nothing that depends on it is told.
    """

    async def ask(path: str) -> httpx.Response | RefusedError:
        try:
            return await server.call("GET", path, once=True)
        except RefusedError as error:
            return error

    try:
        live = await ask("/health/live")
        if isinstance(live, RefusedError):
            advice = "is it an embedq server?" if live.code == "unexpected_answer" else ""
            yield Finding("server", False, f"/health/live: {live.code}: {live.message}", advice)
            return
        yield Finding("server", True, f"answers in {live.elapsed.total_seconds() * 1000:.0f} ms")
        ready = await ask("/health/ready")
        if isinstance(ready, RefusedError) and ready.param == "redis":
            advice = "docs/operations.md, “Redis does not answer”; callers get 503 meanwhile"
            yield Finding("redis", False, ready.message, advice)
            return
        for finding in (*_redis(await ask("/v1/service/redis")), *_service(await ask("/v1/service"))):
            yield finding
        if isinstance(ready, httpx.Response):
            yield _storage(ready.json().get("storage"))
    except UnreachableError as error:
        yield Finding("server", False, error.message, "start it with `embedq up`, or set EMBEDQ_URL")
    except EmbedqClientError as error:
        yield Finding("server", False, error.message, "is EMBEDQ_URL the address of an embedq server?")


def _redis(answer: httpx.Response | RefusedError) -> Iterator[Finding]:
    if isinstance(answer, httpx.Response):
        yield from _checks(read_object(answer))
    elif answer.code == "scope_missing":
        yield Finding("redis", True, f"not checked: {answer.message}", "use a key with the scope operate")
    elif answer.status not in {_NO_KEY, _FORBIDDEN}:
        yield Finding("redis", False, answer.message, _LOG_HAS_MORE)


def _service(answer: httpx.Response | RefusedError) -> Iterator[Finding]:
    """How full Redis is, and who works, as `GET /v1/service` tells it."""
    if isinstance(answer, httpx.Response):
        state = read_object(answer)
        with reading(answer, "the state of a service"):
            yield _memory(state["redis"])
            for model in state["models"]:
                yield _workers(f"model {model['id']}", model, state["time"], _model_facts(model), "worker")
            documents = "files, batches and ingestions go on"
            yield _workers("documents worker", state["documents"], state["time"], documents, "documents-worker")
    elif answer.status == _NO_KEY:
        yield Finding("key", False, answer.message, "set EMBEDQ_API_KEY to a key of this server")
    else:
        advice = "" if answer.status == _FORBIDDEN else _LOG_HAS_MORE  # such a refusal says what to do
        yield Finding("service", False, f"{answer.code}: {answer.message}", advice)


def _checks(answer: Mapping[str, Any]) -> Iterator[Finding]:
    for check in answer["checks"]:
        yield Finding(f"redis {check['name']}", check["fine"], check["detail"], check["advice"])


def _memory(redis: Mapping[str, Any]) -> Finding:
    name = "redis memory"
    used, queries, tasks = (redis[what] for what in ("memory_percent", "queries_percent", "tasks_percent"))
    if not redis["limit_bytes"]:
        return Finding(name, True, "no limit is set (maxmemory): it may take all of its machine")
    limits = f"tasks are refused above {tasks} %, queries above {queries} %"
    if used < tasks:
        return Finding(name, True, f"{used} % used; {limits}")
    refused = "queries and tasks are refused" if used >= queries else "tasks are refused"
    return Finding(name, False, f"{used} % used: {refused} now; {limits}", "docs/operations.md, “Redis is full”")


def _model_facts(model: Mapping[str, Any]) -> str:
    facts = [model[name] for name in ("device", "compute", "precision") if model.get(name)]
    return ", ".join([f"{model['dimension']} dimensions" if model.get("dimension") else "never loaded", *facts])


def _workers(name: str, queue: Mapping[str, Any], now: float, facts: str, command: str) -> Finding:
    """Whether somebody works for a queue, and lives."""
    workers = queue["workers"]
    died = [worker for worker in workers if worker["died_at"] and now - worker["died_at"] < _RECENT_S]
    if died:
        last = max(died, key=lambda worker: worker["died_at"])
        deaths = sum(worker["deaths"] for worker in died)
        often = "once" if deaths == 1 else f"{deaths} times"
        detail = f"its process died {often}, last {_ago(now - last['died_at'])} ago ({last['died_of']})"
        return Finding(name, False, detail, "docs/operations.md, “Workers die”; its work is tried again meanwhile")
    if workers:
        return Finding(name, True, f"{len(workers)} at work; {facts}")
    for loading in queue.get("loading", ()):
        since = _ago(now - loading["since"])
        detail = f"no worker yet: one loads {loading['model']} from {loading['source']}, for {since} now"
        return Finding(name, False, detail, "wait; what is submitted meanwhile waits too")
    gone = f", for {_ago(now - queue['absent_since'])} now" if queue.get("absent_since") else ""
    advice = f"start one (`embedq {command}`), or look at its log; what is submitted meanwhile waits"
    return Finding(name, False, f"no worker{gone}", advice)


def _ago(seconds: float) -> str:
    minutes = max(0, seconds) / 60
    if minutes < 2:  # noqa: PLR2004 - of this few the seconds matter
        return f"{max(0, seconds):.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"  # noqa: PLR2004


def _storage(trouble: str | None) -> Finding:
    if not trouble:
        return Finding("storage", True, "all roles have the one that Redis knows")
    return Finding("storage", False, trouble, "docs/operations.md, “A storage that is not the right one”")


def redis_of_settings(timeout_s: float) -> Iterator[Finding]:
    """What is wrong with the Redis that a server of this environment would use; nothing where none is named."""
    try:
        command = command_for("api.redis_command")
    except UsageError:  # the client alone is installed
        return
    environ = environment.with_python_path(CHECKOUT)
    try:
        ran = subprocess.run(  # noqa: S603 - our own
            command, env=environ, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        advice = "docs/operations.md, “Redis does not answer”"
        yield Finding("redis", False, f"that of these settings has not answered in {timeout_s:g} s", advice)
        return
    answer = json.loads(ran.stdout or "{}")
    if "message" in answer:
        yield Finding("redis", False, answer["message"], "no server starts before that is mended")
    for finding in _checks(answer) if "checks" in answer else ():
        if not finding.fine:
            yield finding
