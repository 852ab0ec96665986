"""Callers who use the project's own client: it repeats what was refused or lost until it is answered.

A text counts as accepted when its call was answered with success. It counts as completed when its own vector came back.
"""

import asyncio
import base64
import io
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import pyarrow.parquet as pq

from bench.faults.rig import DIMENSION, SERVED_NAME, Rig
from embedq.errors import NotFoundError
from embedq.transport import Transport
from tasks.encoder.encode import encode
from tasks.encoder.fake import PROMPTS, FakeEncoder
from tasks.encoder.interface import Text

_GIVE_UP_S = 240.0
_QUERY_PATIENCE_S = 5.0
_TRIES = 3
"""How often work that the service has forgotten, and says so, is submitted."""
_PAUSE_S = 0.05

_Texts = Mapping[str, str]
_Found = Mapping[str, Sequence[Any]]


@dataclass(slots=True)
class Account:
    """Counts of texts.

    Attributes:
        accepted: the caller was told that the text is taken.
        completed: its own vector came back.
        lost: accepted, and no vector came back.
        doubled: a vector that belongs to another text, or that came twice.
        again: told to be unknown, and therefore submitted again; what was submitted again counts as accepted once.
        repeated: calls that had to be repeated.
        unanswered: queries that were accepted or not, nobody knows.
    """

    accepted: int = 0
    completed: int = 0
    lost: int = 0
    doubled: int = 0
    again: int = 0
    repeated: int = 0
    unanswered: int = 0

    def add(self, texts: _Texts, found: _Found) -> None:
        """Texts that were accepted, and all vectors that came back for each."""
        self.accepted += len(texts)
        for name, expected in zip(texts, expected_vectors(list(texts.values())), strict=True):
            vectors = [vector for vector in found.get(name, ()) if not np.isnan(vector).any()]
            right = [np.array_equal(vector, expected) for vector in vectors]
            self.completed += any(right)
            self.lost += not vectors
            self.doubled += len(vectors) - any(right)

    def __add__(self, other: "Account") -> "Account":
        return Account(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Account)))


def expected_vectors(texts: Sequence[str]) -> list[Any]:
    """The vector of each text: the fake encoder gives the same on every machine."""
    outcomes, _ = encode(FakeEncoder(dimension=DIMENSION), [Text(text) for text in texts], max_padded_tokens=2048)
    return [outcome.vector for outcome in outcomes]


class Load:
    """Five callers, from the start of the block to its end. Then `account` is theirs.

    Attributes:
        at_work: kinds of work that are under way.
    """

    def __init__(self, rig: Rig, name: str, lines: int, documents: int) -> None:
        self.account = Account()
        self.at_work: set[str] = set()
        self._name = name
        self._url = rig.api.base_url
        self._file = rig.folder / "rows.jsonl"
        self._ended = False
        self._answers: list[tuple[float, float]] = []
        self._lines = {f"line-{n}": f"{name} line {n} of a batch with some more words in it" for n in range(lines)}
        self._documents = {f"d{n}": f"{name} document {n} that is ingested" for n in range(documents)}

    def recovery_s(self, since: float) -> float | None:
        """From then (`time.monotonic`) to the first answer to a query that was asked after it; None: not yet."""
        return min((answered - since for asked, answered in self._answers if asked >= since), default=None)

    async def __aenter__(self) -> Self:
        self._transport = Transport(
            self._url, timeout_s=_GIVE_UP_S, patience_s=_GIVE_UP_S, on_retry=lambda *_: self._repeated()
        )
        work = [self._tasks(), self._queries(), self._queries(), self._batch(), self._ingestion()]
        self._work = [asyncio.ensure_future(each) for each in work]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        await asyncio.gather(*self._work)
        await self._transport.aclose()

    def _repeated(self) -> None:
        self.account.repeated += 1

    async def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        headers = {"Accept": "application/x-npy"} if path.endswith("/result") else {}
        headers |= {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        return await self._transport.call(method, path, body, headers=headers, **more)

    async def _begin(self, path: str, body: Any, **more: Any) -> str:
        """The address of what the call makes."""
        return f"{path}/{(await self._ask('POST', path, body, **more)).json()['id']}"

    async def _account_for(self, texts: _Texts, work: Callable[[], Awaitable[_Found]]) -> None:
        """Of what the work gives. What the service has forgotten is done again: a caller is told so."""
        for _ in range(_TRIES):
            try:
                self.account.add(texts, await work())
            except NotFoundError:
                self.account.again += len(texts)
            else:
                return
        self.account.add(texts, {})

    async def _tasks(self) -> None:
        """Submits tasks of two texts all the time; after the load it looks what became of each."""
        begun: dict[str, list[str]] = {}
        while not self._ended:
            await asyncio.sleep(_PAUSE_S)
            texts = [f"{self._name} task {len(begun)} text {each}" for each in range(2)]
            begun[await self._begin("/v1/tasks", {"input": texts})] = texts
            self.at_work.add("tasks")
        for path, texts in begun.items():
            paths = [path]

            async def work(texts: list[str] = texts, paths: list[str] = paths) -> _Found:
                path = paths.pop() if paths else await self._begin("/v1/tasks", {"input": texts})
                vectors = np.load(io.BytesIO((await self._ask("GET", f"{path}/result")).content))
                return {text: [vector] for text, vector in zip(texts, vectors, strict=True)}

            await self._account_for({text: text for text in texts}, work)

    async def _queries(self) -> None:
        """Asks for one vector after the other and waits for each. A try without an answer is not repeated."""
        async with httpx.AsyncClient(base_url=self._url, timeout=_QUERY_PATIENCE_S) as client:
            while not self._ended:
                await asyncio.sleep(_PAUSE_S)
                asked, text = time.monotonic(), f"{self._name} query {uuid.uuid4().hex}"
                try:
                    answer = await client.post("/v1/embeddings", json={"input": text, "encoding_format": "base64"})
                    vector = _decoded(answer.raise_for_status().json())
                except httpx.HTTPError:
                    self.account.unanswered += 1
                else:
                    self._answers.append((asked, time.monotonic()))
                    self.account.add({"": text}, {"": [vector]})

    async def _batch(self) -> None:
        """One batch: uploaded, created, followed to its end, read."""
        self._file.write_bytes(b"".join(_line(custom_id, text) for custom_id, text in self._lines.items()))

        async def work() -> _Found:
            file = await self._begin(
                "/v1/files", None, data={"purpose": "batch"}, files={"file": ("rows.jsonl", self._file.read_bytes())}
            )
            body = {"endpoint": "/v1/embeddings", "completion_window": "24h", "input_file_id": Path(file).name}
            batch = await self._followed(await self._begin("/v1/batches", body), "request_counts", "completed")
            content = await self._ask("GET", f"/v1/files/{batch['output_file_id']}/content")
            found: dict[str, list[Any]] = {}
            for line in map(json.loads, content.text.splitlines()):
                found.setdefault(line["custom_id"], []).append(_decoded(line["response"]["body"]))
            return found

        await self._account_for(self._lines, work)

    async def _ingestion(self) -> None:
        """One ingestion of documents in the request, into a dataset of its own, which is downloaded."""
        documents = [{"id": name, "text": text} for name, text in self._documents.items()]

        async def work() -> _Found:
            body = {"source": {"documents": documents}, "chunking": {"type": "none"}}
            path = await self._begin("/v1/ingestions", body)
            await self._followed(path, "chunks", "embedded")
            found: dict[str, list[Any]] = {}
            for part in (await self._ask("GET", f"{path}/output")).json()["data"]:
                content = (await self._ask("GET", f"{path}/output/{part['name']}")).content
                for row in pq.read_table(io.BytesIO(content), columns=["doc_id", "embedding"]).to_pylist():
                    found.setdefault(row["doc_id"], []).append(np.asarray(row["embedding"], np.float32))
            return found

        await self._account_for({name: PROMPTS["document"] + text for name, text in self._documents.items()}, work)

    async def _followed(self, path: str, counts: str, name: str) -> dict[str, Any]:
        """What is there once it has ended. One that failed has lost its files with the Redis that knew them."""
        until = time.monotonic() + _GIVE_UP_S
        while (seen := (await self._ask("GET", path)).json())["status"] not in {"completed", "failed"}:
            assert time.monotonic() < until, f"{path} did not end: {seen}"
            self.at_work |= {counts} if seen[counts][name] else set()
            await asyncio.sleep(0.2)
        if seen["status"] == "failed":
            raise NotFoundError(f"{path} failed: {seen}", code="failed")
        return dict(seen)


def _line(custom_id: str, text: str) -> bytes:
    body = {"input": text, "encoding_format": "base64", "model": SERVED_NAME}
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body}
    return json.dumps(line).encode() + b"\n"


def _decoded(body: Any) -> Any:
    return np.frombuffer(base64.b64decode(body["data"][0]["embedding"]), "<f4")
