"""Requests as an attacker or a broken client sends them: every route, valid in most parts and wrong in some.

A seed makes the same requests each time. They hold none of the words by which the fake encoder fails on purpose.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute

from api.app import ROUTERS

_BOUNDARY = "hostile"
_DEEP = 400
_LONG = 20_000

BODIES: Mapping[str, Any] = {
    "/v1/embeddings": {"input": ["a text", "another"], "encoding_format": "float", "dimensions": 8, "user": "u"},
    "/v1/tasks": {"input": ["one", "two"], "metadata": {"a": "b"}, "normalize": True, "truncate": True},
    "/v1/batches": {"input_file_id": "file_x", "endpoint": "/v1/embeddings", "completion_window": "24h"},
    "/v1/ingestions": {
        "source": {"documents": [{"id": "d", "text": "A text.", "metadata": {"n": 1}}]},
        "sink": {"type": "dataset", "dataset": "hostile"},
        "mode": "upsert",
    },
    "/v1/datasets/{name}/search": {"query": "a text", "limit": 3, "filter": {"n": 1}},
    "/v1/keys": {"name": "mine", "scopes": ["admin"], "limits": {"requests_per_second": 1}},
    "/embed": {"inputs": ["a text"], "normalize": True},
    "/": {"inputs": "a text"},
}
"""A good body for the routes that take one; the others get one of these too."""

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1e308,
    -0.0,
    2**63,
    10**40,
    "",
    " ",
    "\0",
    "\ud800",
    "\u202e",
    "e\u0301" * 50,
    "a" * _LONG,
    "../../etc/passwd",
    "file:///etc/passwd",
    "s3://b/k",
    "http://169.254.169.254/",
    "**/*",
    "; DROP TABLE x; --",
    "${x}",
    [],
    {},
    [[]],
    [None],
    [""],
    [1, 2, 3],
    [["a"]],
    {"": ""},
    {"__proto__": 1},
    ["a"] * 3000,
    [0.5] * 500,
    "nan",
)
_IDS = (
    "x",
    "0",
    "-",
    "..",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%00",
    "%0a",
    "%ff",
    "a%20b",
    "%F0%9F%92%A5",
    "a" * 3000,
    "*",
    "eq:task:x",
    "task_01999999000070008000000000000000",
    "batch_01999999-0000-7000-8000-000000000000",
    "@documents",
    ";",
    "%25",
    "file_01999999-0000-7000-8000-000000000000",
    "ingest_01999999-0000-7000-8000-000000000000",
    "hostile",
    "a/b/../c",
)
_QUERIES = (
    "limit=-1",
    "limit=1e9",
    "limit=",
    "limit=0&limit=5",
    "after=x",
    "after=%00",
    "after=" + "z" * 2000,
    "order=up",
    "wait=-1",
    "wait=nan",
    "wait=0",
    "purpose=%f0",
    "status=none",
    "x=" + "%41" * 500,
    "&&&==",
    "minutes=1e99",
    "colour=..",
    "document=%",
)
_FIELDS = (
    "Idempotency-Key: \x7f\x80",
    "Idempotency-Key: " + "k" * 300,
    "Range: bytes=5-1",
    "Range: bytes=0-0,5-6,-1",
    "If-None-Match: *",
    "Accept: application/x-npy",
    "Accept: \xff",
    "Content-Encoding: gzip",
    "Transfer-Encoding: gzip",
    "Origin: https://evil.example",
    "Cookie: a=b",
    "traceparent: 00-zz-zz-01",
    "x-request-id: \"'<script>",
    "Upgrade: websocket",
    "X-Forwarded-For: 127.0.0.1",
    "Sec-Fetch-Site: cross-site",
    "Expect: 200-maybe",
    "Content-Type: text/xml",
    "Via: x",
    "Forwarded: for=127.0.0.1",
    "x-stainless-timeout: nan",
)
_RAW = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET\r\n\r\n",
    b"\r\n" * 50,
    b"\0" * 300,
    b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET  /  HTTP/1.1\r\nHost: a\r\n\r\n",
    b"FOO /v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n x: folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nx\0y: z\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
)


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """What is sent on a connection of its own.

    Attributes:
        kind: for the table.
        data: all bytes of the request, or those before the sender leaves.
        leaves: the sender closes the connection without waiting for an answer.
    """

    kind: str
    data: bytes
    leaves: bool = False


class Attacker:
    """Makes requests; each call of `requests` goes on where the last one ended.

    Args:
        seed: of all choices.
        key: of a caller that has no scope `admin`.
    """

    def __init__(self, seed: int, key: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._key = key
        routes = [route for resource in ROUTERS for route in resource.router.routes if isinstance(route, APIRoute)]
        self._routes = [(method, route.path_format) for route in routes for method in sorted(route.methods or ())]
        self._kinds: tuple[Callable[[], HostileRequest], ...] = (
            self._path,
            self._json,
            self._json,
            self._not_json,
            self._field,
            self._form,
            self._form,
            self._raw,
            self._torn,
        )

    def requests(self, count: int) -> Iterator[HostileRequest]:
        """So many, of all kinds in a random order."""
        for _ in range(count):
            yield self._random.choice(self._kinds)()

    def _path(self) -> HostileRequest:
        method, path = self._random.choice(self._routes)
        target = f"{self._filled(path)}?{self._random.choice(_QUERIES)}"
        body = b"" if method == "GET" else self._good_body(path)
        return HostileRequest("ids, paths and queries", self._request(method, target, body))

    def _json(self) -> HostileRequest:
        path = self._random.choice(list(BODIES))
        value = deepcopy(BODIES[path])
        for _ in range(self._random.randint(1, 3)):
            value = self._changed(value)
        return HostileRequest("JSON with wrong values", self._request("POST", self._filled(path), _json_bytes(value)))

    def _not_json(self) -> HostileRequest:
        path = self._random.choice(list(BODIES))
        good = self._good_body(path)
        place = self._random.randrange(len(good))
        body = self._random.choice(
            (
                good[:place],
                good + good,
                good[:place] + b"\xff\xfe" + good[place:],
                b"\xef\xbb\xbf" + good,
                b"",
                b"null",
                b"NaN",
                b"[" * _DEEP + b"]" * _DEEP,
                b'{"input":' * _DEEP + b"1" + b"}" * _DEEP,
                b'{"input":"\\ud800"}',
                b"1e999",
                good[1:],
                b'{"input":"a","input":["b"]}',
                self._random.randbytes(300),
                b'{"input":[' + b"{}," * 5000 + b"1]}",
            )
        )
        return HostileRequest("bodies that are no JSON", self._request("POST", self._filled(path), body))

    def _field(self) -> HostileRequest:
        method, path = self._random.choice(self._routes)
        fields = self._random.sample(_FIELDS, 2)
        body = b"" if method == "GET" else self._good_body(path)
        return HostileRequest("header fields", self._request(method, self._filled(path), body, *fields))

    def _form(self) -> HostileRequest:
        purpose = self._random.choice((b"batch", b"user_data", b"", b"\xff", b"a" * 2000))
        name = self._random.choice(("a.jsonl", "../../x", "\0", "a" * 3000, '"', "", "C:\\x", "\u202e.exe"))
        content = self._random.choice(
            (b"", b"{}\n", b"\0" * 5000, self._random.randbytes(3000), b"[" * 9000, b"{}\n" * 2000)
        )
        body = (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n'.encode()
            + purpose
            + f'\r\n--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
            + content
            + f"\r\n--{_BOUNDARY}--\r\n".encode()
        )
        if self._random.random() < 0.5:
            place = self._random.randrange(len(body))
            body = self._random.choice((body[:place], body[place:], body[:place] + b"\r\n" + body[place:], body * 2))
        boundary = self._random.choice((_BOUNDARY, _BOUNDARY, _BOUNDARY, "", "x" * 300, '"'))
        kind = f"Content-Type: multipart/form-data; boundary={boundary}"
        return HostileRequest("uploads", self._request("POST", "/v1/files", body, kind))

    def _raw(self) -> HostileRequest:
        data = self._random.choice((*_RAW, self._random.randbytes(200)))
        return HostileRequest("no HTTP", data, leaves=self._random.random() < 0.5)

    def _torn(self) -> HostileRequest:
        whole = self._random.choice((self._json, self._form, self._path))().data
        return HostileRequest("half a request", whole[: self._random.randrange(1, len(whole))], leaves=True)

    def _changed(self, value: Any) -> Any:
        """The value with one part of it replaced, removed or added."""
        if isinstance(value, dict) and value and self._random.random() < 0.8:
            name = self._random.choice(list(value))
            choice = self._random.random()
            if choice < 0.15:
                del value[name]
            elif choice < 0.3:
                value[self._random.choice(("", "x" * 500, "model", "\0", "prompt_name"))] = deepcopy(
                    self._random.choice(_VALUES)
                )
            else:
                value[name] = self._changed(value[name])
            return value
        if isinstance(value, list) and value and self._random.random() < 0.6:
            value[0] = self._changed(value[0])
            return value
        return deepcopy(self._random.choice(_VALUES))

    def _good_body(self, path: str) -> bytes:
        return _json_bytes(BODIES.get(path) or self._random.choice(list(BODIES.values())))

    def _filled(self, path: str) -> str:
        parts = path.split("/")
        return "/".join(self._random.choice(_IDS) if part.startswith("{") else part for part in parts)

    def _request(self, method: str, target: str, body: bytes, *fields: str) -> bytes:
        key = self._random.choice((self._key, self._key, self._key, "", "wrong", "\xff", "k" * 4000))
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *fields]
        lines += [f"Authorization: Bearer {key}"] if key else []
        if not any(field.startswith("Content-Type") for field in fields):
            lines.append("Content-Type: application/json")
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
