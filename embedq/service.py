"""`EmbeddingService`: the drop-in for an in-process service around `SentenceTransformer`, over HTTP."""

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import quote

import httpx

from embedq import environment
from embedq.concurrency import in_order
from embedq.errors import EmbedqClientError, UnavailableError, WaitTimeoutError
from embedq.model_info import Done, ModelInfo
from embedq.responses import Vectors, read_array, read_embeddings, read_item_errors, read_model, read_task
from embedq.split import MAX_WAITED_BYTES, halve_refused, json_bytes, split
from embedq.task import Task, TextError
from embedq.transport import Call, RetryListener, Transport

LONGEST_WAIT_S = 55.0
"""How long one request may be held back by the server: its own limit, and below the idle limit of usual proxies."""
REQUESTS_IN_FLIGHT = 4
PLAIN_CALL_S = 10.0
"""How long a call without `await` may hold its thread."""
_PAUSE_BETWEEN_POLLS_S = 0.1
_CHANGE_S = 1.0
"""How often a caller who wants changes is told of them."""


class EncodingOptions(TypedDict, total=False):
    """What changes the vector of a text. Absent means the server's default."""

    dimensions: int
    """Cut the vector to this length (Matryoshka models) and normalise again."""
    normalize: bool
    """Length 1; default true."""
    truncate: bool
    """Cut texts that are too long for the model; default true. False: such a text fails."""
    prompt_name: str
    """One of the model's prompts, put before each text."""


class CallOptions(EncodingOptions, total=False):
    """The same of a call that returns vectors at once."""

    input_type: str
    """What the texts are for, `query` or `document`: chooses the model's prompt for that. `prompt_name` comes first."""


class EmbeddingService:
    """Asynchronous client of one embedq server. Close it, or use it in `async with`; used in one event loop at a time.

    Args:
        url: address of the server; None: `EMBEDQ_URL`, else http://127.0.0.1:8000.
        api_key: None: `EMBEDQ_API_KEY`, else calls go without one.
        model: name under which the server serves it; None: the server's own.
        model_name: the same, as in-process services call it.
        device: taken for in-process services; the property `device` is the server's as soon as that is known.
        timeout_s: longest time one call may take, repetitions included. `get_embeddings` of many texts makes several
            calls.
        on_retry: called before each repetition with the reason and the delay in seconds.

    Every method raises `EmbedqClientError`: `UnreachableError`, `WaitTimeoutError`, or a kind of `RefusedError`.

    Raises:
        ValueError: the address is not a URL, the key cannot be sent, or there are two names for the model.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        timeout_s: float = 600.0,
        *,
        model_name: str | None = None,
        device: str | None = None,
        on_retry: RetryListener | None = None,
    ) -> None:
        if model and model_name and model != model_name:
            raise ValueError("model and model_name mean the same; give one of them")
        if url and ":" not in url:
            raise ValueError(
                "The server's address must look like http://host:port (EMBEDQ_URL or --url). In Python it is the first "
                "argument; the model's name and the device go by keyword: model_name=…, device=…"
            )
        self.url = url or environment.server_url()
        self.timeout_s = timeout_s
        self._chosen = model or model_name
        self._device = device
        self._transport = Transport(self.url, api_key=api_key or environment.api_key(), on_retry=on_retry)
        self._model: dict[str, Any] | None = None  # tests of in-process services check whether this name is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. Submitted tasks go on."""
        await self._transport.aclose()

    # ---- the drop-in -------------------------------------------------------------------------------------------------

    async def get_embedding(self, text: str, **options: Unpack[CallOptions]) -> list[float]:
        """The vector of one text.

        Raises:
            TypeError: it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"get_embedding takes one text, not a {type(text).__name__}; get_embeddings takes several")
        return (await self._embed([text], options))[0]

    async def get_embeddings(self, texts: Sequence[str], **options: Unpack[CallOptions]) -> list[list[float]]:
        """The vectors of the texts, in order; `[]` for `[]`.

        Any number of texts: they travel in requests of bounded size, a few at a time; smaller ones where the server
        takes less.

        Raises:
            RefusedError: a text cannot be encoded; `input_index` says which. No partial results here: `submit`
                gives each text its own outcome.
        """
        if isinstance(texts, str):
            raise TypeError("get_embeddings takes a list of texts; get_embedding takes one")
        vectors: list[list[float]] = []
        pieces = split(enumerate(texts), lambda item: json_bytes(item[1]), max_bytes=MAX_WAITED_BYTES)

        async def embed(piece: list[tuple[int, str]]) -> list[list[float]]:
            try:
                return await self._embed([text for _, text in piece], options)
            except EmbedqClientError as error:
                raise error.shifted(piece[0][0]) from error

        async def embed_parts(piece: list[tuple[int, str]]) -> list[list[float]]:
            return [vector async for _, part in halve_refused(embed, piece) for vector in part]

        async with aclosing(in_order(embed_parts, pieces, limit=REQUESTS_IN_FLIGHT)) as results:
            async for result in results:
                vectors += result
        return vectors

    def get_model_info(self) -> ModelInfo:
        """Name, device and vector size of the model: a dict, with or without `await`. Asked once and remembered.

        It is an awaitable and no coroutine: `asyncio.ensure_future` and `gather` take it, `asyncio.run` does not.

        In a running event loop use `await`: without it the loop stands still until the server has answered,
        `PLAIN_CALL_S` seconds at most.

        Raises:
            NotFoundError: the server does not know the model.
            UnavailableError: no worker has loaded a model yet.
        """
        info = ModelInfo(self._model, self._ask_model, self._ask_model_blocking)
        return info if _in_event_loop() else info.filled()

    def clear_cache(self) -> Done:
        """Forgets the facts of the model. Vectors are never cached here. Needs no `await`, and can be awaited."""
        self._model = None
        return Done()

    @property
    def model(self) -> ModelInfo:
        """The facts of the model, where an in-process service has the model itself.

        Reading it, even by `hasattr`, asks the server if need be, while the thread waits.
        """
        return self.get_model_info().filled()

    @property
    def model_name(self) -> str | None:
        """The name that was given, else the server's; None as long as that is unknown."""
        return self._chosen or (self._model["model_name"] if self._model else None)

    @property
    def device(self) -> str | None:
        """The device of the server; as long as that is unknown, the one that was given."""
        return self._model["device"] if self._model else self._device

    # ---- tasks -------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        texts: str | Sequence[str],
        *,
        lane: str = "online",
        metadata: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[EncodingOptions],
    ) -> Task:
        """Hands texts over as one task and returns at once; at most 2,048 texts and 16 MiB by default.

        A repetition after a lost answer never doubles the work, because each call carries an idempotency key.

        Args:
            texts: one or several, none of them empty.
            metadata: pairs that come back with the task; names and values have 4 KiB at most.
            lane: `online` for interactive use, `bulk` otherwise.
            deadline_s: the task ends as `expired` when it has not finished by then.
            idempotency_key: of the caller's own, when it may call again after a crash with the same texts.
        """
        optional = {"model": self._chosen, "metadata": metadata, "deadline_s": deadline_s}
        body = {"input": texts if isinstance(texts, str) else list(texts), "lane": lane, **options}
        body |= {name: value for name, value in optional.items() if value is not None}
        key = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return read_task(await self._call(Call("POST", "/v1/tasks", body=body, headers=key)))

    async def status(self, task_id: str) -> Task:
        """The task as it is now."""
        return read_task(await self._call(Call("GET", _path(task_id))))

    async def wait(
        self, task_id: str, timeout_s: float | None = None, *, on_change: Callable[[Task], None] | None = None
    ) -> Task:
        """The task at its end, whatever end that is.

        Args:
            task_id: from `submit`.
            timeout_s: None: for ever.
            on_change: called with the task now and after changes, about once a second at most.

        Raises:
            WaitTimeoutError: it has not ended in time.
        """
        deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        # A caller who wants changes needs a first state. For others the server holds the first request until the end.
        task = await (self.status(task_id) if on_change else self._long_poll(task_id, timeout_s))
        last: Task | None = None
        while True:
            if on_change and task != last:
                on_change(task)
                last = task
            if task.ended:
                return task
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise WaitTimeoutError(
                    f"{task_id} has not ended after {timeout_s:g} s; it goes on.", code="wait_timeout"
                )
            await asyncio.sleep(min(_PAUSE_BETWEEN_POLLS_S, left_s))
            task = await self._long_poll(task_id, min(left_s, _CHANGE_S) if on_change else left_s)

    async def result(self, task_id: str) -> Vectors:
        """The vectors of a task that has ended: float32 [n, dimension], a row of NaN for a text that failed.

        Raises:
            WaitTimeoutError, RefusedError: it has not ended within `timeout_s`.
        """
        call = Call("GET", _path(task_id, "/result"), headers={"Accept": "application/x-npy"})
        return read_array(await self._call(call))

    async def item_errors(self, task_id: str) -> dict[int, TextError]:
        """Why texts of an ended task have no vector: index -> error. Empty when all have one."""
        call = Call("GET", _path(task_id, "/result"), params={"encoding_format": "base64"})
        return read_item_errors(await self._call(call))

    async def cancel(self, task_id: str) -> Task:
        """Ends a task; texts that were finished keep their vectors.

        Raises:
            RefusedError: it had ended otherwise before.
        """
        return read_task(await self._call(Call("POST", _path(task_id, "/cancel"))))

    # ---- inside ------------------------------------------------------------------------------------------------------

    async def _call(self, call: Call) -> httpx.Response:
        return await self._transport.call(call, timeout_s=self.timeout_s)

    async def _embed(self, texts: list[str], options: CallOptions) -> list[list[float]]:
        body: dict[str, Any] = {"input": texts, "encoding_format": "base64", **options}
        if self._chosen is not None:
            body["model"] = self._chosen
        # The server joins an equal request to the one under way, so a repetition does not double the work.
        response = await self._call(Call("POST", "/v1/embeddings", body=body, wait_s=LONGEST_WAIT_S))
        return read_embeddings(response, len(texts))

    async def _ask_model(self, transport: Transport | None = None, timeout_s: float | None = None) -> dict[str, Any]:
        name = f"/{quote(self._chosen)}" if self._chosen is not None else ""
        call = Call("GET", f"/v1/models{name}")
        entry = read_model(await (transport or self._transport).call(call, timeout_s=timeout_s or self.timeout_s)) or {}
        if entry.get("dimension") is None:
            message = "No worker has loaded a model yet; `embedq doctor` says what is missing."
            raise UnavailableError(message, code="not_ready")
        self._model = {
            "model_name": self._chosen or entry["id"],
            "device": str(entry.get("device")),
            "embedding_size": entry["dimension"],
        }
        return self._model

    def _ask_model_blocking(self) -> dict[str, Any]:
        """The same while this thread waits: in a loop of its own, because one may be running here."""

        async def ask() -> dict[str, Any]:
            async with self._transport.twin() as transport:
                return await self._ask_model(transport, min(PLAIN_CALL_S, self.timeout_s))

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, ask()).result()

    async def _long_poll(self, task_id: str, left_s: float | None) -> Task:
        """The task after the server held the request back until its end."""
        wait_s = LONGEST_WAIT_S if left_s is None else min(LONGEST_WAIT_S, left_s)
        call = Call("GET", _path(task_id), wait_s=wait_s)
        return read_task(await self._transport.call(call, timeout_s=wait_s + self.timeout_s))


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _path(task_id: str, below: str = "") -> str:
    # Quoted, so that whatever is passed as an id cannot reach another route.
    return f"/v1/tasks/{quote(task_id, safe='')}{below}"
