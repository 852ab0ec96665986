"""`EmbeddingService`: the drop-in for an in-process service around `SentenceTransformer`, over HTTP."""

import asyncio
import base64
import io
import math
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from embedq.errors import EmbedqClientError, UnavailableError, WaitTimeoutError
from embedq.many import MAX_WAITED_BYTES, halve_refused, json_bytes, run_all, split
from embedq.transport import Job, RetryListener, Transport, read_object, reading, route

LONGEST_WAIT_S = 55.0
"""How long one request may be held back by the server: its own limit, and below the idle limit of usual proxies."""
REQUESTS_IN_FLIGHT = 4
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
    input_type: str
    """Of calls that return vectors at once: `query` or `document`, which chooses the model's prompt for that."""


class AwaitableDict(dict[str, Any]):
    """A dict that may be awaited: in-process services answer at once, and code for this one may say `await`."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # asyncio.gather hashes what it awaits

    def __await__(self) -> Generator[None, None, Self]:
        yield from ()
        return self


class EmbeddingService(Transport):
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
        super().__init__(url, api_key=api_key, timeout_s=timeout_s, on_retry=on_retry)
        self._chosen = model or model_name
        self._device = device
        self._model: dict[str, Any] | None = None  # tests of in-process services check whether this name is None

    # ---- the drop-in -------------------------------------------------------------------------------------------------

    async def get_embedding(self, text: str, **options: Unpack[EncodingOptions]) -> list[float]:
        """The vector of one text.

        Raises:
            TypeError: it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"get_embedding takes one text, not a {type(text).__name__}; get_embeddings takes several")
        return (await self._embed([text], options))[0]

    async def get_embeddings(self, texts: Sequence[str], **options: Unpack[EncodingOptions]) -> list[list[float]]:
        """The vectors of the texts, in order; `[]` for `[]`.

        Any number of texts: they travel in requests of bounded size, a few at a time; smaller ones where the server
        takes less.

        Raises:
            TypeError: it is no list of texts.
            RefusedError: a text cannot be encoded; `input_index` says which. No partial results here: `submit`
                gives each text its own outcome.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("get_embeddings takes a list of texts; get_embedding takes one")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"get_embeddings takes texts; number {index} of the list is a {type(text).__name__}")
        pieces = split(enumerate(texts), lambda item: json_bytes(item[1]), max_bytes=MAX_WAITED_BYTES)

        async def embed(piece: list[tuple[int, str]]) -> list[list[float]]:
            try:
                return await self._embed([text for _, text in piece], options)
            except EmbedqClientError as error:
                error.shift(piece[0][0])
                raise

        async def embed_parts(piece: list[tuple[int, str]]) -> list[list[float]]:
            return [vector async for _, part in halve_refused(embed, piece) for vector in part]

        return [row for rows in await run_all(embed_parts, pieces, limit=REQUESTS_IN_FLIGHT) for row in rows]

    def get_model_info(self) -> AwaitableDict:
        """`model_name`, `device` and `embedding_size` of the model: a dict, with or without `await`.

        The server is asked once, while the thread waits: `transport.BLOCKING_CALL_S` seconds at most.

        Raises:
            NotFoundError: the server does not know the model.
            UnavailableError: no worker has loaded a model yet.
        """
        if self._model is None:
            self._model = self._ask_model()
        return AwaitableDict(self._model)

    def clear_cache(self) -> AwaitableDict:
        """Forgets the facts of the model. Vectors are never cached here. Needs no `await`, and can be awaited."""
        self._model = None
        return AwaitableDict()

    @property
    def model(self) -> AwaitableDict:
        """The facts of the model, where an in-process service has the model itself. Reading it may ask the server."""
        return self.get_model_info()

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
    ) -> Job:
        """Hands texts over as one task and returns at once; at most 2,048 texts and 16 MiB by default.

        A repetition after a lost answer never doubles the work, because each call carries an idempotency key.

        Args:
            texts: one or several, none of them empty.
            metadata: pairs that come back with the task; names and values have 4 KiB at most.
            lane: `online` for interactive use, `bulk` otherwise.
            deadline_s: the task ends as `expired` when it has not finished by then.
            idempotency_key: of the caller's own, when it may call again after a crash with the same texts.

        Raises:
            EmbedqClientError: also where the key cannot be sent.
        """
        key = idempotency_key or uuid.uuid4().hex
        if not key.isascii() or not key.isprintable():  # httpx would repeat it in what looks like a lost answer
            raise EmbedqClientError("idempotency_key must be printable ASCII.", code="invalid_header")
        optional = {"model": self._chosen, "metadata": metadata, "deadline_s": deadline_s}
        body = {"input": texts if isinstance(texts, str) else list(texts), "lane": lane, **options}
        body |= {name: value for name, value in optional.items() if value is not None}
        return Job(await self.json("POST", "/v1/tasks", body, headers={"Idempotency-Key": key}))

    async def status(self, task_id: str) -> Job:
        """The task as it is now."""
        return Job(await self.json("GET", route("tasks", task_id)))

    async def wait(
        self, task_id: str, timeout_s: float | None = None, *, on_change: Callable[[Job], None] | None = None
    ) -> Job:
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
        last: tuple[str, Any] | None = None
        while True:
            if on_change and (now := (task.status, task["counts"])) != last:
                on_change(task)
                last = now
            if task.ended:
                return task
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise WaitTimeoutError(
                    f"{task_id} has not ended after {timeout_s:g} s; it goes on.", code="wait_timeout"
                )
            await asyncio.sleep(min(_PAUSE_BETWEEN_POLLS_S, left_s))
            task = await self._long_poll(task_id, min(left_s, _CHANGE_S) if on_change else left_s)

    async def result(self, task_id: str) -> npt.NDArray[np.float32]:
        """The vectors of a task that has ended: float32 [n, dimension], a row of NaN for a text that failed.

        Raises:
            WaitTimeoutError, RefusedError: it has not ended within `timeout_s`.
        """
        accept = {"Accept": "application/x-npy"}
        response = await self.call("GET", route("tasks", task_id, "result"), headers=accept)
        with reading(response, "a .npy array"):
            return np.asarray(np.load(io.BytesIO(response.content), allow_pickle=False), dtype=np.float32)

    async def item_errors(self, task_id: str) -> dict[int, dict[str, str]]:
        """Why texts of an ended task have no vector: index -> `code` and `message`. Empty when all have one."""
        form = {"encoding_format": "base64"}
        answer = await self.json("GET", route("tasks", task_id, "result"), params=form)
        return {item["index"]: item["error"] for item in answer["data"] if item["object"] == "error"}

    async def cancel(self, task_id: str) -> Job:
        """Ends a task; texts that were finished keep their vectors.

        Raises:
            RefusedError: it had ended otherwise before.
        """
        return Job(await self.json("POST", route("tasks", task_id, "cancel")))

    # ---- inside ------------------------------------------------------------------------------------------------------

    async def _embed(self, texts: list[str], options: EncodingOptions) -> list[list[float]]:
        body: dict[str, Any] = {"input": texts, "encoding_format": "base64", **options}
        if self._chosen is not None:
            body["model"] = self._chosen
        # The server joins an equal request to the one under way, so a repetition does not double the work.
        response = await self.call("POST", "/v1/embeddings", body, wait_s=LONGEST_WAIT_S)
        with reading(response, f"a list of {len(texts)} vectors"):
            rows = [base64.b64decode(item["embedding"], validate=True) for item in read_object(response)["data"]]
            return [np.frombuffer(row, dtype="<f4").tolist() for _, row in zip(texts, rows, strict=True)]

    def _ask_model(self) -> dict[str, Any]:
        below = f"/{quote(self._chosen)}" if self._chosen else ""
        answer = read_object(self.blocking(f"/v1/models{below}"))
        entries = answer["data"] if answer["object"] == "list" else [answer]
        # Of several the one that is ready.
        entry: dict[str, Any] = max(entries, key=lambda entry: bool(entry.get("ready")), default={})
        if entry.get("dimension") is None:
            message = "No worker has loaded a model yet; `embedq doctor` says what is missing."
            raise UnavailableError(message, code="not_ready")
        return {
            "model_name": self._chosen or entry["id"],
            "device": str(entry.get("device")),
            "embedding_size": entry["dimension"],
        }

    async def _long_poll(self, task_id: str, left_s: float | None) -> Job:
        """The task after the server held the request back until its end."""
        wait_s = LONGEST_WAIT_S if left_s is None else min(LONGEST_WAIT_S, left_s)
        timeout_s = wait_s + self.timeout_s
        return Job(await self.json("GET", route("tasks", task_id), wait_s=wait_s, timeout_s=timeout_s))
