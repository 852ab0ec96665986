"""What can be wrong with a server, found out from outside, and what to do about it."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from embedq.answers import read_models
from embedq.errors import EmbedqClientError, UnreachableError, from_response
from embedq.transport import Transport

_SERVER_ERROR = 500
_DOCUMENTS_WORKERS = re.compile(r'^embedq_workers\{model="@documents"\} ([0-9.]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check.

    Attributes:
        advice: what to do; empty when it is fine.
    """

    name: str
    fine: bool
    detail: str
    advice: str = ""


async def examine(transport: Transport) -> AsyncIterator[Finding]:
    """One finding after the other, in the order in which one would look. A server that does not answer is the last."""
    try:
        yield _live(await transport.probe("/health/live"))
        yield _ready(await transport.probe("/health/ready"))
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
    return Finding(
        "queue and worker",
        False,
        from_response(response).message,
        "look at the log of the part that is named; what is submitted meanwhile waits",
    )


def _models(response: httpx.Response) -> list[Finding]:
    if response.status_code in {401, 403}:
        return [Finding("key", False, from_response(response).message, "set EMBEDQ_API_KEY to a key of this server")]
    if not response.is_success:
        advice = "look at the API's log" if response.status_code >= _SERVER_ERROR else "is this an embedq server?"
        return [Finding("models", False, from_response(response).message, advice)]
    entries = read_models(response)
    if not entries:
        return [Finding("models", False, "no model is known", "start a worker: `embedq worker`")]
    return [_model(entry) for entry in entries]


def _model(entry: Mapping[str, Any]) -> Finding:
    name = f"model {entry['id']}"
    known = [f"{entry[field]}" for field in ("device", "compute", "precision") if entry.get(field)]
    size = f"{entry['dimension']} dimensions" if entry.get("dimension") else "never loaded"
    detail = ", ".join([size, *known])
    if entry.get("ready"):
        return Finding(name, True, detail)
    return Finding(name, False, f"{detail}; no worker serves it now", "start a worker with this EMBEDQ_MODEL")


def _metrics(response: httpx.Response) -> Finding:
    if response.is_success and "embedq_" in response.text:
        return Finding("metrics", True, "/metrics can be scraped")
    return Finding("metrics", False, f"/metrics answered {response.status_code}", "look at the API's log")


def _documents(metrics: str) -> Finding:
    found = _DOCUMENTS_WORKERS.search(metrics)
    if found and float(found[1]) > 0:
        return Finding("documents worker", True, "one beats: batches are checked and their outputs assembled")
    return Finding(
        "documents worker",
        False,
        "none beats; embeddings and tasks work, batches wait",
        "start one: `embedq documents-worker`, with the EMBEDQ_STORAGE_URL of the API",
    )
