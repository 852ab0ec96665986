"""A server on loopback that answers with what a test wrote down, and keeps the requests."""

import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False


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


@contextmanager
def serving(*answers: Reply) -> Iterator[Scripted]:
    """In threads of its own: for what blocks the thread of the test."""
    script = Scripted(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one segment, or the kernel waits between them

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            answer = script.answer(Request(self.command, self.path, headers, body))
            if answer.hangs:
                self.rfile.read()  # until the client goes
            self.close_connection = not answer.status
            if answer.status:
                content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in {**answer.headers, "content-length": len(content)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(content)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False  # connections that are kept alive end by themselves
        script.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield script
        server.shutdown()


@asynccontextmanager
async def scripted(*answers: Reply) -> AsyncIterator[Scripted]:
    """The same beside others in an `async with`."""
    with serving(*answers) as script:
        yield script


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
