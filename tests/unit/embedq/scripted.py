"""A server on loopback that answers with what a test wrote down, and keeps the requests."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False

    def encoded(self) -> bytes:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        lines = [f"HTTP/1.1 {self.status} x", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


HANG_UP = Answer(0)
"""Closes the connection instead of answering."""
SILENCE = Answer(0, hangs=True)
"""Takes the request and never answers."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Reply = Answer | Callable[[Request], Answer]


@dataclass
class Scripted:
    """`answers` are given in turn; the last one again and again."""

    answers: list[Reply]
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        reply = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return reply(request) if callable(reply) else reply

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                answer = self.answer(request)
                if answer.hangs:
                    await reader.read()
                if not answer.status:
                    return
                writer.write(answer.encoded())
                await writer.drain()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode() if not reader.at_eof() else ""
    if not head:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, target, _ = first.split(" ")
    return Request(method, target, headers, body)


@asynccontextmanager
async def scripted(*answers: Reply) -> AsyncIterator[Scripted]:
    script = Scripted(list(answers))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may go away between two requests.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await script.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield script
        server.close()


def problem(status: int, code: str, message: str = "Text.", param: str | None = None, **headers: str) -> Answer:
    """An error as the server words it."""
    error = {"message": message, "type": "x", "param": param, "code": code}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"status": status, "detail": message, "error": error}, named)


def task(status: str = "completed", *, total: int = 1, completed: int = 1, failed: int = 0) -> Answer:
    """A task as the server shows it."""
    body = {
        "id": "task_1",
        "object": "embedding.task",
        "status": status,
        "model": "m",
        "counts": {"total": total, "completed": completed, "failed": failed},
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    return Answer(200, body)


def embeddings(*rows: list[float]) -> Answer:
    """An embedding list as the server answers it."""
    data = [
        {"object": "embedding", "index": i, "embedding": base64.b64encode(np.array(row, "<f4").tobytes()).decode()}
        for i, row in enumerate(rows)
    ]
    return Answer(200, {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}})


def model(name: str, *, ready: bool, dimension: int | None = 384, device: str | None = "cpu") -> dict[str, object]:
    """A model's entry as the server shows it."""
    return {"id": name, "object": "model", "ready": ready, "dimension": dimension, "device": device}


def array(rows: list[list[float]]) -> Answer:
    """The result of a task as a `.npy` array."""
    file = io.BytesIO()
    np.save(file, np.array(rows, dtype="<f4"))
    return Answer(200, file.getvalue())
