"""HTTP: one call with its repetitions, and errors in the client's own words."""

import asyncio
import functools
import itertools
import json
import math
import random
import ssl
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO, Self

import httpx

from embedq.errors import (
    EmbedqClientError,
    UncertainError,
    UnreachableError,
    WaitTimeoutError,
    error_from_response,
)
from embedq.retry import RetryPolicy, done_perhaps, says_gone

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
"""An open connection counts as broken after so much silence, besides the time that the server was asked to wait."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Nothing of the request has left."""

RetryListener = Callable[[EmbedqClientError, float], None]
"""Called before each repetition with the reason and the delay in seconds."""

_Clients = dict[asyncio.AbstractEventLoop, httpx.AsyncClient]
"""Connections belong to the loop that opened them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, repeatable as it is, unless it is for `once`.

    Attributes:
        wait_s: how long the server may hold the request back until it has an answer.
        form: fields of a form, instead of a JSON body; `file` goes with it, read anew at every attempt.
        into: takes the body of a successful answer, emptied before every attempt; the answer then has no body.
        once: its answer cannot be had again. It is repeated only where it was certainly not done.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0
    form: Mapping[str, str] | None = None
    file: tuple[str, Path] | None = None
    into: BinaryIO | None = None
    once: bool = False

    def content(self) -> bytes | None:
        """The body as JSON."""
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            # Lone surrogates can be sent escaped; the server then names the text that has them.
            return json.dumps(self.body).encode()


class Transport:
    """Connections to one server, made at the first call. Used in one event loop at a time.

    Making one opens nothing, and the garbage collector closes one that was not closed: an application that makes its
    in-process service anew for every request must not pay more when this takes its place.

    Args:
        url: address of the server, with or without the `/v1` of OpenAI's clients.
        api_key: white space around it is stripped.
        on_retry: called before each repetition.

    Raises:
        ValueError: the address is not an http or https URL, or the key cannot be sent. Neither is repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        policy: RetryPolicy | None = None,
        on_retry: RetryListener | None = None,
    ) -> None:
        self._url = url
        self._base = _base_url(url)
        self._address = f"{self._base.scheme}://{self._base.netloc.decode()}"  # never with a URL's password
        self._api_key = _sendable(api_key)
        self._policy = policy or RetryPolicy()
        self._on_retry = on_retry
        self._answered = False
        self._closed = False
        self._clients: _Clients = {}
        weakref.finalize(self, _close_all, self._clients).atexit = False

    def twin(self) -> "Transport":
        """Another one to the same server, for another event loop."""
        return Transport(self._url, api_key=self._api_key, policy=self._policy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections, for good."""
        self._closed = True
        client = self._clients.pop(asyncio.get_running_loop(), None)
        _close_all(self._clients)
        if client is not None:
            await client.aclose()

    async def call(self, call: Call, *, timeout_s: float) -> httpx.Response:
        """The answer, after as many repetitions as fit into `timeout_s` seconds. 2xx.

        404 and 410 too, of a `DELETE` that an earlier attempt may have done: its answer was lost.

        Raises:
            UnreachableError: no answer for as long as the policy tries.
            WaitTimeoutError: no final answer in time.
            UncertainError: a call for `once` may have been done.
            RefusedError: an error answer; one of its kinds.
            EmbedqClientError: it was closed, or a header cannot be sent.
        """
        started = answered_at = time.monotonic()
        uncertain = False
        for attempt in itertools.count():
            left_s = timeout_s - (time.monotonic() - started)
            try:
                response = await self._send(call, left_s)
            except httpx.TransportError as error:
                failure = self._silence(error)
                uncertain |= not isinstance(error, _NOT_SENT)
                silent_s = time.monotonic() - answered_at
                delay_s = self._policy.after_silence(silent_s, answered_before=self._answered, attempt=attempt)
            else:
                answered_at = time.monotonic()
                self._answered = True
                if response.is_success:
                    return response
                failure = error_from_response(response)
                if uncertain and call.method == "DELETE" and says_gone(failure.code):
                    return response
                uncertain |= done_perhaps(response.status_code, failure.code)
                delay_s = self._policy.after_answer(response.status_code, response.headers, attempt)
            if call.once and uncertain:
                raise UncertainError(
                    failure.message, code=failure.code, status=failure.status, request_id=failure.request_id
                )
            await self._pause(failure, delay_s, timeout_s - (time.monotonic() - started))
        raise AssertionError  # pragma: no cover - the loop has no end

    async def probe(self, path: str) -> httpx.Response:
        """One attempt, with whatever status it is answered.

        Raises:
            UnreachableError: no answer.
        """
        try:
            return await self._send(Call("GET", path), CONNECT_TIMEOUT_S)
        except httpx.TransportError as error:
            raise self._silence(error) from error

    async def _send(self, call: Call, left_s: float) -> httpx.Response:
        # A second less than there is, so that the server's "not yet" arrives before this side gives up.
        wait_s = max(1, math.floor(min(call.wait_s, left_s - 1))) if call.wait_s else 0
        read_s = min(ANSWER_TIMEOUT_S + wait_s, max(1.0, left_s))
        headers, params = dict(call.headers), dict(call.params)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if wait_s and call.method == "GET":
            params["wait"] = f"{wait_s}"
        elif wait_s:
            headers["x-stainless-read-timeout"] = f"{read_s:g}"  # as OpenAI's clients say it
        timeout = httpx.Timeout(read_s, connect=min(CONNECT_TIMEOUT_S, read_s), pool=None)
        client = await self._connections()
        with ExitStack() as stack:
            files = None
            if call.file is not None:
                name, path = call.file
                files = {"file": (name, stack.enter_context(path.open("rb")))}
            request = client.build_request(
                call.method,
                call.path,
                content=call.content(),
                data=call.form,
                files=files,
                headers=_checked(headers),
                params=params,
                timeout=timeout,
            )
            return await self._exchange(client, request, call.into)

    async def _connections(self) -> httpx.AsyncClient:
        if self._closed:
            raise EmbedqClientError("This client was closed. Make another one.", code="closed")
        loop = asyncio.get_running_loop()
        if loop in self._clients:
            return self._clients[loop]
        client = await self._opened()
        _close_all(self._clients, running=False)  # or every asyncio.run would leave a descriptor
        return self._clients.setdefault(loop, client)  # another call may have been faster

    async def _opened(self) -> httpx.AsyncClient:
        # A proxy for the outside world cannot reach this machine's own loopback.
        trust_env = not _is_loopback(self._base.host)
        # Reading the certificates takes 0.2 to 0.4 s, too long for the event loop. httpx reads them for http:// too.
        tls = await asyncio.to_thread(_tls, trust_env=trust_env) if self._base.scheme == "https" else False
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else None
        return httpx.AsyncClient(base_url=self._base, headers=headers, trust_env=trust_env, verify=tls)

    async def _exchange(
        self, client: httpx.AsyncClient, request: httpx.Request, into: BinaryIO | None
    ) -> httpx.Response:
        response = await client.send(request, stream=into is not None)
        if into is None:
            return response
        try:
            if not response.is_success:
                await response.aread()
                return response
            into.seek(0)
            into.truncate()
            async for piece in response.aiter_bytes():
                into.write(piece)
        finally:
            await response.aclose()
        return response

    async def _pause(self, failure: EmbedqClientError, delay_s: float | None, left_s: float) -> None:
        if delay_s is None:
            raise failure
        # Jitter of up to a quarter keeps clients that failed together from coming back together.
        delay_s *= random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets
        if delay_s >= left_s:
            raise failure
        if self._on_retry:
            self._on_retry(failure, delay_s)
        await asyncio.sleep(delay_s)

    def _silence(self, error: httpx.TransportError) -> EmbedqClientError:
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return WaitTimeoutError(f"{self._address} did not answer in time.", code="timeout")
        if "WRONG_VERSION_NUMBER" in str(error):
            message = f"{self._address} does not speak TLS. Does its address begin with http:// ?"
            return UnreachableError(message, code="unreachable")
        return UnreachableError(
            f"No answer from {self._address} ({str(error) or type(error).__name__}). Is the server running there? "
            "`embedq up` starts one; EMBEDQ_URL names another.",
            code="unreachable",
        )


def _base_url(url: str) -> httpx.URL:
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"The server's address cannot be read: {error}") from None
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError("The server's address must look like http://host:port (EMBEDQ_URL or --url)")
    return base.copy_with(path=base.path.rstrip("/").removesuffix("/v1") + "/")


@functools.cache
def _tls(*, trust_env: bool) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)


def _close_all(clients: _Clients, *, running: bool = True) -> None:
    """Forgets the clients, or those of loops that stand still. Each is closed in its own loop, once that runs."""
    for loop in tuple(clients):
        if loop.is_running() and not running:
            continue
        client = clients.pop(loop, None)
        if client is None:  # another thread was faster
            continue
        with suppress(RuntimeError):  # the loop is closed; its connections end with the last reference
            loop.call_soon_threadsafe(_close_soon, loop, client)


def _close_soon(loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), loop)


def _sendable(api_key: str | None) -> str | None:
    key = (api_key or "").strip()  # a file with a secret, or a line of Windows, ends with a line break
    if not key.isascii() or not key.isprintable():
        raise ValueError(
            "The API key has characters that no key of a server has: letters beyond ASCII, or a line break within. "
            "Look at EMBEDQ_API_KEY, or at api_key"
        )
    return key or None


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, printable ones. httpx would repeat the value of a bad one in what looks like a lost answer."""
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            message = f"The header {name} must be printable ASCII."
            raise EmbedqClientError(message, code="invalid_header", param=name)
    return headers


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
