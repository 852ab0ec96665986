"""HTTP: one call with its repetitions, and errors in the client's own words."""

import asyncio
import itertools
import json
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO, Self

import httpx

from embedq.errors import EmbedqClientError, UnreachableError, WaitTimeoutError, from_response
from embedq.retry import RetryPolicy

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
"""Silence on an open connection after which it counts as broken; on top of the time the server was asked to wait."""

RetryListener = Callable[[EmbedqClientError, float], None]
"""Called before each repetition with the reason and the delay in seconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, repeatable as it is.

    Attributes:
        wait_s: how long the server may hold the request back until there is something to say.
        form: fields of a form, instead of a JSON body; `file` goes with it, read anew for each attempt.
        into: takes the body of a successful answer, emptied before each attempt; the answer itself has none then.
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

    def content(self) -> bytes | None:
        """The body as JSON."""
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            # Lone surrogates: escaped they travel, and the server says which text has them.
            return json.dumps(self.body).encode()


class Transport:
    """Connections to one server. Belongs to one event loop.

    Args:
        url: address of the server, with or without the `/v1` of OpenAI's clients.
        on_retry: told of each repetition.

    Raises:
        ValueError: the address is not an http or https URL.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        policy: RetryPolicy | None = None,
        on_retry: RetryListener | None = None,
    ) -> None:
        base = _base_url(url)
        self._address = f"{base.scheme}://{base.netloc.decode()}"  # never with the password a URL may hold
        self._policy = policy or RetryPolicy()
        self._on_retry = on_retry
        self._answered = False
        self._client = httpx.AsyncClient(
            base_url=base,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            # A proxy for the outside world cannot reach this machine's own loopback.
            trust_env=not _is_loopback(base.host),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def call(self, call: Call, *, timeout_s: float) -> httpx.Response:
        """The answer, after as many repetitions as fit into `timeout_s` seconds. 2xx or 304.

        Raises:
            UnreachableError: no answer for as long as the policy tries.
            WaitTimeoutError: no final answer in time.
            RefusedError: an error answer; one of its kinds.
        """
        started = heard = time.monotonic()
        for attempt in itertools.count():
            left_s = timeout_s - (time.monotonic() - started)
            try:
                response = await self._send(call, left_s)
            except httpx.TransportError as error:
                failure = self._silence(error)
                silent_s = time.monotonic() - heard
                delay_s = self._policy.after_silence(silent_s, answered_before=self._answered, attempt=attempt)
            else:
                heard = time.monotonic()
                self._answered = True
                if response.is_success or response.status_code == httpx.codes.NOT_MODIFIED:
                    return response
                failure = from_response(response)
                delay_s = self._policy.after_answer(response.status_code, response.headers, attempt)
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
        headers = dict(call.headers)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if wait_s:
            headers["Prefer"] = f"wait={wait_s}"
        read_s = min(ANSWER_TIMEOUT_S + wait_s, max(1.0, left_s))
        timeout = httpx.Timeout(read_s, connect=min(CONNECT_TIMEOUT_S, read_s), pool=None)
        with ExitStack() as stack:
            files = None
            if call.file is not None:
                name, path = call.file
                files = {"file": (name, stack.enter_context(path.open("rb")))}
            request = self._client.build_request(
                call.method,
                call.path,
                content=call.content(),
                data=call.form,
                files=files,
                headers=headers,
                params=call.params,
                timeout=timeout,
            )
            return await self._exchange(request, call.into)

    async def _exchange(self, request: httpx.Request, into: BinaryIO | None) -> httpx.Response:
        response = await self._client.send(request, stream=into is not None)
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
        # Up to a quarter more keeps clients that failed together from coming back together.
        delay_s *= random.uniform(1.0, 1.25)  # noqa: S311 - not for secrets
        if delay_s >= left_s:
            raise failure
        if self._on_retry:
            self._on_retry(failure, delay_s)
        await asyncio.sleep(delay_s)

    def _silence(self, error: httpx.TransportError) -> EmbedqClientError:
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return WaitTimeoutError(f"{self._address} did not answer in time.", code="timeout")
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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
