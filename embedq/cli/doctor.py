"""`embedq doctor`: checks a running server from outside, and says what to do."""

import argparse
import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from embedq import environment
from embedq.cli.exit_codes import OK, SOME_FAILED
from embedq.cli.options import checked_address, server_options
from embedq.cli.output import Output
from embedq.errors import EmbedqClientError, UnreachableError, error_from_response
from embedq.responses import read_models, reading
from embedq.transport import Transport

_SERVER_ERROR = 500
_DOCUMENTS_WORKERS = re.compile(r'^embedq_workers\{model="@documents"\} ([0-9.]+)$', re.MULTILINE)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    server_options(parser, timeout_s=30)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_doctor(args, Output(args.json)))


async def _doctor(args: argparse.Namespace, output: Output) -> int:
    with checked_address():
        transport = Transport(args.url or environment.server_url(), api_key=environment.api_key())
    fine = True
    async with transport:
        async for finding in examine(transport):
            output.result(_line(finding), dataclasses.asdict(finding))
            fine = fine and finding.fine
    return OK if fine else SOME_FAILED


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


async def examine(transport: Transport) -> AsyncIterator[Finding]:
    """Checks a server from its process to its documents worker. A server that does not answer ends the checks."""
    try:
        yield _live(await transport.probe("/health/live"))
        ready = await transport.probe("/health/ready")
        yield _ready(ready)
        if ready.is_success:
            yield _storage(ready.json().get("storage"))
        for finding in _redis(await transport.probe("/v1/service/redis")):
            yield finding
        for finding in _models(await transport.probe("/v1/models")):
            yield finding
        metrics = await transport.probe("/metrics")
        yield _metrics(metrics)
        if metrics.is_success:
            yield _documents(metrics.text)
    except UnreachableError as error:
        yield Finding("server", False, error.message, "start it with `embedq up`, or set EMBEDQ_URL")
    except EmbedqClientError as error:
        yield Finding("server", False, error.message, "is EMBEDQ_URL the address of an embedq server?")


def _live(response: httpx.Response) -> Finding:
    if response.is_success:
        return Finding("server", True, f"answers in {response.elapsed.total_seconds() * 1000:.0f} ms")
    return Finding(
        "server", False, f"/health/live answered {response.status_code}", "is EMBEDQ_URL the address of embedq?"
    )


def _ready(response: httpx.Response) -> Finding:
    if response.is_success:
        return Finding("queue and worker", True, "Redis answers and a worker with a loaded model beats")
    error = error_from_response(response)
    advice = "look at the worker's log; what is submitted meanwhile waits"
    if error.param == "redis":
        advice = "docs/operations.md, “Redis does not answer”; callers get 503 meanwhile"
    return Finding("queue and worker", False, error.message, advice)


def _storage(trouble: str | None) -> Finding:
    if not trouble:
        return Finding("storage", True, "all roles have the one that Redis knows")
    return Finding("storage", False, trouble, "docs/operations.md, “A storage that is not the right one”")


def _redis(response: httpx.Response) -> list[Finding]:
    if response.is_success:
        with reading(response, "what a Redis says"):
            return [
                Finding(f"redis {check['name']}", check["fine"], check["detail"], check["advice"])
                for check in response.json()["checks"]
            ]
    error = error_from_response(response)
    if error.code == "scope_missing":
        return [Finding("redis", True, f"not checked: {error.message}", "use a key with the scope operate")]
    # Without Redis the check before this one tells, without a valid key the one behind it.
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE or response.status_code < _SERVER_ERROR:
        return []
    return [Finding("redis", False, error.message, "look at the API's log")]


def _models(response: httpx.Response) -> list[Finding]:
    if response.status_code in {401, 403}:
        return [
            Finding("key", False, error_from_response(response).message, "set EMBEDQ_API_KEY to a key of this server")
        ]
    if not response.is_success:
        advice = "look at the API's log" if response.status_code >= _SERVER_ERROR else "is this an embedq server?"
        return [Finding("models", False, error_from_response(response).message, advice)]
    entries = read_models(response)
    if not entries:
        return [Finding("models", False, "no model is known", "start a worker: `embedq worker`")]
    return [_model(entry) for entry in entries]


def _model(entry: Mapping[str, Any]) -> Finding:
    name = f"model {entry['id']}"
    facts = [f"{entry[field]}" for field in ("device", "compute", "precision") if entry.get(field)]
    size = f"{entry['dimension']} dimensions" if entry.get("dimension") else "never loaded"
    detail = ", ".join([size, *facts])
    if entry.get("ready"):
        return Finding(name, True, detail)
    return Finding(
        name,
        False,
        f"{detail}; no worker serves it now",
        "start a worker with this EMBEDQ_MODEL, or wait for one that loads",
    )


def _metrics(response: httpx.Response) -> Finding:
    if response.is_success and "embedq_" in response.text:
        return Finding("metrics", True, "/metrics can be scraped")
    return Finding("metrics", False, f"/metrics answered {response.status_code}", "look at the API's log")


def _documents(metrics: str) -> Finding:
    workers = _DOCUMENTS_WORKERS.search(metrics)
    if workers and float(workers[1]) > 0:
        return Finding("documents worker", True, "one beats: batches are checked and their outputs assembled")
    return Finding(
        "documents worker",
        False,
        "none beats; embeddings and tasks work, batches wait",
        "start one: `embedq documents-worker`, with the EMBEDQ_STORAGE_URL of the API",
    )


def _line(finding: Finding) -> str:
    mark = "ok     " if finding.fine else "WRONG  "
    advice = f"\n         -> {finding.advice}" if finding.advice else ""
    return f"{mark}{finding.name}: {finding.detail}{advice}"
