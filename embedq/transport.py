"""HTTP: one call with its repetitions, answers as dicts, and errors in the client's own words."""

import asyncio
import functools
import itertools
import json
import math
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx

from embedq import environment
from embedq.errors import EmbedqClientError, RefusedError, UnreachableError, WaitTimeoutError, error_from_response

PATIENCE_S = 30.0
"""How long a server that has answered before is tried, for example while it restarts."""
FIRST_CONTACT_S = 2.0
"""How long one that has never answered is tried."""
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
"""An open connection counts as broken after so much silence, besides the time that the server was asked to wait."""
BLOCKING_CALL_S = 5.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.25, 8.0
_MAY_PASS = frozenset({408, 429, 502, 503, 504})
_SERVER_ERROR = 500

RetryListener = Callable[[EmbedqClientError, float], None]
"""Called before each repetition with the reason and the delay in seconds."""


class Job(dict[str, Any]):
    """A task, batch or ingestion as the server describes it: its JSON, and what is asked of it most."""

    @property
    def id(self) -> str:
        """What `status`, `wait` and `cancel` take."""
        return str(self["id"])

    @property
    def status(self) -> str:
        """One word, such as `queued`, `in_progress` or `completed`."""
        return str(self["status"])

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in {"completed", "failed", "cancelled", "expired"}

    @property
    def succeeded(self) -> bool:
        """Whether every text or document came through."""
        return self.status == "completed" and not self["counts"]["failed"]


class Transport:
    """Connections to one server, made at the first call, in one event loop at a time. Use it in `async with`.

    Args:
        url: address of the server, with or without the `/v1` of OpenAI's clients. None: `EMBEDQ_URL`, else the local
            server.
        api_key: white space around it is stripped. None: `EMBEDQ_API_KEY`, else calls go without one.
        timeout_s: longest time of one call, repetitions included.
        patience_s: how long a server that has answered before is tried.
        on_retry: called before each repetition.

    Raises:
        ValueError: the address is not an http or https URL, or the key cannot be sent. Neither is repeated.

    Attributes:
        url: as it was given.
        address: what is shown and kept of it: without its password.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        patience_s: float = PATIENCE_S,
        on_retry: RetryListener | None = None,
    ) -> None:
        self.url = url or environment.server_url()
        self.timeout_s = timeout_s
        base, key = _base_url(self.url), _sendable(api_key or environment.api_key())
        self.address = f"{base.scheme}://{base.netloc.decode()}"
        self._options: dict[str, Any] = {
            "base_url": base,
            "headers": {"Authorization": f"Bearer {key}"} if key else None,
            "trust_env": not is_loopback(self.url),  # a proxy cannot reach this machine's own loopback
            "verify": base.scheme == "https" and _certificates(),
        }
        self._patience_s = patience_s
        self._on_retry = on_retry
        self._answered = False
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. Submitted work goes on."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = self._loop = None

    async def json(self, method: str, path: str, body: Mapping[str, Any] | None = None, **how: Any) -> dict[str, Any]:
        """The JSON object of the answer of a `call`; raises `RefusedError` where something else has answered, too."""
        return read_object(await self.call(method, path, body, **how))

    async def listed(self, path: str, **params: str) -> AsyncGenerator[dict[str, Any], None]:
        """The items of a list, page by page."""
        more = True
        while more:  # an empty page may have others behind it
            page = await self.json("GET", path, params=params)
            for item in page["data"]:
                yield item
            more, params["after"] = bool(page["has_more"]), str(page.get("last_id"))

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        wait_s: float = 0,
        once: bool = False,
        into: BinaryIO | None = None,
        **request: Any,
    ) -> httpx.Response:
        """The answer, after as many repetitions as fit into the time. 2xx.

        404 and 410 too, of a `DELETE` that an earlier attempt may have done: its answer was lost.

        Args:
            method: of the request.
            path: below the address.
            body: sent as JSON.
            timeout_s: with all repetitions; None: that of the transport.
            wait_s: how long the server may hold the request back until it has an answer.
            once: never repeated: its answer tells a secret, or whoever asks wants to know now.
            into: takes the body of a successful answer, emptied before every attempt; the answer then has no body.
            request: what httpx takes: `headers`, `params`, `data`, `files`, which are read anew at every attempt.

        Raises:
            UnreachableError: no answer for as long as it is tried.
            WaitTimeoutError: no final answer in time.
            RefusedError: an error answer; one of its kinds.
        """
        if body is not None:
            # Lone surrogates are sent escaped; the server then names the text that has them.
            request["content"] = json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")
            request["headers"] = {"Content-Type": "application/json", **request.get("headers", {})}
        heard = time.monotonic()
        end, lost = heard + (self.timeout_s if timeout_s is None else timeout_s), False
        for attempt in itertools.count():
            answer = None
            try:
                answer = await self._send(method, path, request, wait_s, end - time.monotonic(), into=into)
            except httpx.TransportError as error:
                failure = self._silence(error)
            else:
                heard, self._answered = time.monotonic(), True
                if answer.is_success:
                    return answer
                failure = error_from_response(answer)
                if lost and method == "DELETE" and _says_gone(failure.code):
                    return answer
            lost |= answer is None or answer.status_code >= _SERVER_ERROR
            patience_s = self._patience_s if self._answered else min(FIRST_CONTACT_S, self._patience_s)
            delay_s = retry_delay_s(attempt, answer, patience_s - (time.monotonic() - heard))
            if delay_s is None or once or delay_s >= end - time.monotonic():
                raise failure
            if self._on_retry:
                self._on_retry(failure, delay_s)
            await asyncio.sleep(delay_s)
        raise AssertionError  # pragma: no cover - the loop has no end

    def blocking(self, path: str) -> httpx.Response:
        """The answer, while the thread waits: one attempt of `BLOCKING_CALL_S` seconds at most."""
        timeout_s = min(BLOCKING_CALL_S, self.timeout_s)
        try:
            with httpx.Client(**self._options, timeout=timeout_s) as client:
                response = client.get(path)
        except httpx.TransportError as error:
            raise self._silence(error) from error
        if not response.is_success:
            raise error_from_response(response)
        return response

    async def _send(
        self, method: str, path: str, request: Mapping[str, Any], wait_s: float, left_s: float, *, into: BinaryIO | None
    ) -> httpx.Response:
        # A second less than there is, so that the server's "not yet" arrives before this side gives up.
        wait_s = max(1, math.floor(min(wait_s, left_s - 1))) if wait_s else 0
        read_s = min(ANSWER_TIMEOUT_S + wait_s, max(1.0, left_s))
        headers, params = dict(request.get("headers", {})), dict(request.get("params", {}))
        if wait_s and method == "GET":
            params["wait"] = f"{wait_s}"
        elif wait_s:
            headers["x-stainless-read-timeout"] = f"{read_s:g}"  # as OpenAI's clients say it
        timeout = httpx.Timeout(read_s, connect=min(CONNECT_TIMEOUT_S, read_s), pool=None)
        request = {**request, "headers": headers, "params": params, "timeout": timeout}
        async with self._connection().stream(method, path, **request) as response:
            if into is None or not response.is_success:
                await response.aread()
                return response
            into.seek(0)
            into.truncate()
            async for piece in response.aiter_bytes():
                into.write(piece)
        return response

    def _connection(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop that opened them
            self._client, self._loop = httpx.AsyncClient(**self._options), loop
        return self._client

    def _silence(self, error: httpx.TransportError) -> EmbedqClientError:
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return WaitTimeoutError(f"{self.address} did not answer in time.", code="timeout")
        return UnreachableError(
            f"No answer from {self.address} ({str(error) or type(error).__name__}). Is the server running there? "
            "`embedq up` starts one; EMBEDQ_URL names another.",
            code="unreachable",
        )


def retry_delay_s(attempt: int, answer: httpx.Response | None, patience_s: float) -> float | None:
    """Seconds to wait before a call is repeated; None: a repetition makes no sense.

    The server joins or recognises a repetition, so none does the work twice.

    Args:
        attempt: counted from 0.
        answer: an error. `x-should-retry` overrides its status, as in OpenAI's clients. None: there was no answer.
        patience_s: how much longer a server that does not answer is tried.
    """
    delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(attempt, 8))
    if answer is None:
        return delay_s if delay_s <= patience_s else None
    should = answer.headers.get("x-should-retry")
    if should == "false" or (should != "true" and answer.status_code not in _MAY_PASS):
        return None
    # The other form of Retry-After, a date, is not what this server sends.
    told = answer.headers.get("retry-after", "")
    delay_s = float(told) if told.isascii() and told.isdigit() else delay_s
    # Jitter of up to a quarter keeps clients that failed together from coming back together.
    return delay_s * random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets


@contextmanager
def reading(response: httpx.Response, what: str) -> Iterator[None]:
    """Reads a successful response in its block.

    Raises:
        RefusedError: it is not `what`, so something else than embedq probably answered.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, EOFError) as error:  # of JSON, base64, numpy
        raise RefusedError(
            f"The answer of {response.url.path} is not {what}. Is the address that of an embedq server?",
            code="unexpected_answer",
            status=response.status_code,
            request_id=response.headers.get("x-request-id"),
        ) from error


def read_object(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer. Those of the server say in `object` what they are; raises as `reading`."""
    with reading(response, "an object of embedq"):
        answer: dict[str, Any] = response.json()
        answer["object"]
    return answer


def route(*parts: str) -> str:
    """A path below `/v1`. Whatever is passed as an id cannot reach another route.

    Raises:
        RefusedError: it is empty, a step of a path, or not UTF-8. No server has it.
    """
    for part in parts:
        if part in {"", ".", ".."} or not part.isprintable():  # httpx follows dots, as a browser does
            raise RefusedError(f"{part!r} is no id and no name.", code="invalid_id")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _says_gone(code: str) -> bool:
    """Whether an error says that what a deletion named is not there. The 404 of a proxy does not say so."""
    return code == "task_expired" or (code.endswith("_not_found") and code != "route_not_found")


def _base_url(url: str) -> httpx.URL:
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"The server's address cannot be read: {error}") from None
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError("The server's address must look like http://host:port (EMBEDQ_URL or --url)")
    return base.copy_with(path=base.path.rstrip("/").removesuffix("/v1") + "/")


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once, because that takes 0.2 to 0.4 s. httpx would do it for each client, for http:// too."""
    return httpx.create_ssl_context()


def _sendable(api_key: str | None) -> str | None:
    key = (api_key or "").strip()  # a file with a secret, or a line of Windows, ends with a line break
    if not key.isascii() or not key.isprintable():
        raise ValueError(
            "The API key has characters that no key of a server has: letters beyond ASCII, or a line break within. "
            "Look at EMBEDQ_API_KEY, or at api_key"
        )
    return key or None


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine itself."""
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
