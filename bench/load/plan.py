"""What a load generator is told and what it tells. Values, and how they travel between processes."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to one URL.

    Attributes:
        url: absolute, http only.
        bodies: JSON texts for POST, used in turn; none: GET.
        connections: in a closed loop, requests on their way at any time; with `rate_per_s`, ignored.
        seconds: no request is started later.
        rate_per_s: start requests at this rate whatever the server does (open loop); None: closed loop.
        patience_s: how long answers are awaited after `seconds`.
    """

    url: str
    bodies: Sequence[str] = ()
    connections: int = 1
    seconds: float = 5.0
    rate_per_s: float | None = None
    patience_s: float = 120.0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    @property
    def path(self) -> str:
        """With the query, if there is one."""
        parts = urlsplit(self.url)
        return f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"

    def requests(self) -> list[bytes]:
        """The bytes of each request."""
        host, port = self.address
        common = [f"Host: {host}:{port}", *(f"{name}: {value}" for name, value in self.headers.items())]
        if not self.bodies:
            return ["\r\n".join([f"GET {self.path} HTTP/1.1", *common, "", ""]).encode()]
        start = [f"POST {self.path} HTTP/1.1", *common, "Content-Type: application/json"]
        encoded = [body.encode() for body in self.bodies]
        return ["\r\n".join([*start, f"Content-Length: {len(b)}", "", ""]).encode() + b for b in encoded]

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Inverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of it. Latencies are in milliseconds and count answers of status 2xx alone.

    Attributes:
        requests: answers of status 2xx.
        errors: other answers, broken connections and answers that never came.
        seconds: from the first request to the last answer.
        reasons: how many failed with which status, or in which other way; empty where the generator cannot say.
        refusal: the beginning of the first answer that is not 2xx; "" where there is none, or the generator cannot say.
    """

    requests: int
    errors: int
    seconds: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    reasons: Mapping[str, int] = field(default_factory=dict)
    refusal: str = ""

    @property
    def rate_per_s(self) -> float:
        """Good answers per second."""
        return self.requests / self.seconds if self.seconds else 0.0

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Of the line that a generator prints; members that do not belong are refused."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """On one line."""
        return json.dumps(dataclasses.asdict(self))
