"""Careful callers: each repeats what was refused or lost until it is answered, and remembers what it was promised.

A text counts as accepted when its call was answered with success. It counts as completed when its own vector came back.
"""

import base64
import io
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import pyarrow.parquet as pq

from bench.faults.account import Account
from bench.faults.rig import SERVED_NAME
from tasks.encoder.fake import PROMPTS

_PATIENCE_S = 30.0
"""Of one call. A stalled service answers later than that; then the call is repeated."""
_LONGEST_PAUSE_S = 1.0
"""Between two tries, whatever `Retry-After` says: a trial is short."""
_GIVE_UP_S = 240.0
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})
_GONE = frozenset({404, 410})
_TASK_PAUSE_S = 0.03
_QUERY_PAUSE_S = 0.05
_TEXTS_OF_A_TASK = 2


class GaveUp(Exception):
    """A careful caller was not answered for minutes."""


class Caller:
    """HTTP as a careful client speaks it, to any of several addresses.

    Attributes:
        repeated: how often a call had to be repeated, by status or by the name of the failure.
    """

    def __init__(self, addresses: Callable[[], Sequence[str]]) -> None:
        self._addresses = addresses
        self._turn = 0
        self._http = httpx.Client(timeout=_PATIENCE_S)
        self.repeated: Counter[str] = Counter()

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The first answer that is final: success, or a refusal that a repetition does not change.

        Raises:
            GaveUp: there was none.
        """
        until = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < until:
            answer = self.once(method, path, **request)
            if answer is not None and answer.status_code not in _AGAIN:
                return answer
            time.sleep(_pause_s(answer))
        raise GaveUp(f"{method} {path}: {dict(self.repeated)}")

    def once(self, method: str, path: str, **request: Any) -> httpx.Response | None:
        """One try; None without an answer."""
        addresses = self._addresses()
        try:
            answer = self._http.request(method, addresses[self._turn % len(addresses)] + path, **request)
        except httpx.TransportError as error:
            self._turn += 1
            self.repeated[type(error).__name__] += 1
            return None
        if answer.status_code in _AGAIN and answer.status_code != httpx.codes.CONFLICT:
            self._turn += 1
            self.repeated[_named(answer)] += 1
        return answer

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()


class Client:
    """A caller with a thread of its own, which runs inside of this context manager."""

    def __init__(self, addresses: Callable[[], Sequence[str]], name: str) -> None:
        self.account = Account()
        self.caller = Caller(addresses)
        self._name = name
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """After the end of the load: looks at what became of everything that was accepted."""

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the boundary of a thread: `__exit__` raises it again
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error


class Tasks(Client):
    """Submits tasks of two texts all the time, each with a key that makes a repetition safe."""

    def __init__(self, addresses: Callable[[], Sequence[str]], name: str) -> None:
        super().__init__(addresses, name)
        self.ids: dict[str, tuple[str, list[str]]] = {}
        """Idempotency-Key -> id and texts."""
        self._forgotten: set[str] = set()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_TASK_PAUSE_S):
            texts = [f"{self._name} task {number} text {each}" for each in range(_TEXTS_OF_A_TASK)]
            self._submit(uuid.uuid4().hex, texts)
            number += 1

    def _submit(self, key: str, texts: list[str]) -> None:
        answer = self.caller.ask("POST", "/v1/tasks", json={"input": texts}, headers={"Idempotency-Key": key})
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        self.ids[key] = answer.json()["id"], texts

    def settle(self) -> None:
        """As above."""
        for key in list(self.ids):
            vectors = self._vectors(key)
            self.account.add(self.ids[key][1], vectors)
        self._count_doubles()

    def _vectors(self, key: str) -> Sequence[Any]:
        for _ in range(3):
            task_id, texts = self.ids[key]
            answer = self.caller.ask("GET", f"/v1/tasks/{task_id}/result", headers={"Accept": "application/x-npy"})
            if answer.status_code in _GONE:  # the caller is told, and submits again
                self._forgotten.add(task_id)
                self.account.again += len(texts)
                self._submit(key, texts)
                continue
            assert answer.status_code == httpx.codes.OK, answer.text
            return list(np.load(io.BytesIO(answer.content)))
        return []

    def _count_doubles(self) -> None:
        """Tasks of this load that nobody was promised: a submission was stored twice."""
        ours = {task_id for task_id, _ in self.ids.values()}
        listed, after = set(), ""
        first = min(ours | self._forgotten)
        while True:
            page = self.caller.ask("GET", f"/v1/tasks?limit=100{after}").json()
            listed |= {each["id"] for each in page["data"]}
            if not page["has_more"] or page["last_id"] < first:
                break
            after = f"&after={page['last_id']}"
        strangers = {each for each in listed if each >= first} - ours - self._forgotten
        self.account.doubled += _TEXTS_OF_A_TASK * len(strangers)


class Queries(Client):
    """Asks for one vector after the other and waits for each. A try without an answer is not repeated."""

    def __init__(self, addresses: Callable[[], Sequence[str]], name: str) -> None:
        super().__init__(addresses, name)
        self.unanswered = 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_QUERY_PAUSE_S):
            self.ask(f"{self._name} query {number}")
            number += 1

    def ask(self, text: str) -> bool:
        """Whether it was answered."""
        answer = self.caller.once("POST", "/v1/embeddings", json={"input": text, "encoding_format": "base64"})
        if answer is None or answer.status_code != httpx.codes.OK:
            self.unanswered += 1
            return False
        (item,) = answer.json()["data"]
        self.account.add([text], [_decoded(item["embedding"])])
        return True


class Batch(Client):
    """One batch: uploaded, created, followed to its end, read."""

    def __init__(self, addresses: Callable[[], Sequence[str]], name: str, lines: int) -> None:
        super().__init__(addresses, name)
        self._texts = {f"line-{n}": f"{name} line {n} of a batch with some more words in it" for n in range(lines)}
        self.seen: dict[str, Any] = {}

    def _run(self) -> None:
        for _ in range(3):
            batch = self._once()
            found = None if batch is None or batch["status"] == "failed" else self._read(batch)
            if found is not None:
                self.account.add_found(self._texts, found)
                return
            self.account.again += len(self._texts)  # forgotten, or its files are: the caller is told
        self.account.add_found(self._texts, {})

    def _once(self) -> dict[str, Any] | None:
        data = b"".join(_line(custom_id, text) for custom_id, text in self._texts.items())
        upload: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("rows.jsonl", data)}}
        file_id = self.caller.ask("POST", "/v1/files", **upload).json()["id"]
        body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        answer = self.caller.ask("POST", "/v1/batches", json=body, headers={"Idempotency-Key": uuid.uuid4().hex})
        assert answer.status_code == httpx.codes.OK, answer.text
        return _followed(self.caller, f"/v1/batches/{answer.json()['id']}", self.seen)

    def _read(self, batch: dict[str, Any]) -> dict[str, list[Any]] | None:
        content = _known(self.caller.ask("GET", f"/v1/files/{batch['output_file_id']}/content"))
        if content is None:
            return None
        found: dict[str, list[Any]] = {custom_id: [] for custom_id in self._texts}
        for line in map(json.loads, content.text.splitlines()):
            (item,) = line["response"]["body"]["data"]
            found[line["custom_id"]].append(_decoded(item["embedding"]))
        return found


class Ingestion(Client):
    """One ingestion of documents in the request, into a dataset of its own."""

    def __init__(self, addresses: Callable[[], Sequence[str]], name: str, documents: int) -> None:
        super().__init__(addresses, name)
        self._texts = {f"d{n}": f"{name} document {n} that is ingested" for n in range(documents)}
        self._read = {document: PROMPTS["document"] + text for document, text in self._texts.items()}
        self.seen: dict[str, Any] = {}

    def _run(self) -> None:
        for _ in range(3):
            ingestion = self._once()
            found = None if ingestion is None or ingestion["status"] == "failed" else self._rows(ingestion["id"])
            if found is not None:
                self.account.add_found(self._read, found)
                return
            self.account.again += len(self._texts)
        self.account.add_found(self._read, {})

    def _once(self) -> dict[str, Any] | None:
        documents = [{"id": name, "text": text} for name, text in self._texts.items()]
        body = {"source": {"documents": documents}, "chunking": {"type": "none"}}
        answer = self.caller.ask("POST", "/v1/ingestions", json=body, headers={"Idempotency-Key": uuid.uuid4().hex})
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        return _followed(self.caller, f"/v1/ingestions/{answer.json()['id']}", self.seen)

    def _rows(self, ingestion_id: str) -> dict[str, list[Any]] | None:
        output = f"/v1/ingestions/{ingestion_id}/output"
        parts = _known(self.caller.ask("GET", output))
        found: dict[str, list[Any]] = {name: [] for name in self._texts}
        for part in parts.json()["data"] if parts is not None else ():
            content = _known(self.caller.ask("GET", f"{output}/{part['name']}"))
            if content is None:
                return None
            table = pq.read_table(io.BytesIO(content.content), columns=["doc_id", "embedding"])
            for row in table.to_pylist():
                found[row["doc_id"]].append(np.asarray(row["embedding"], np.float32))
        return found if parts is not None else None


def _known(answer: httpx.Response) -> httpx.Response | None:
    """The answer; None when it says that the server does not know what was asked for."""
    if answer.status_code in _GONE:
        return None
    assert answer.is_success, f"{answer.request.url}: {answer.status_code} {answer.text[:500]}"
    return answer


def _followed(caller: Caller, path: str, seen: dict[str, Any]) -> dict[str, Any] | None:
    """What is there once it has ended; None when the server does not know it any more."""
    until = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < until:
        answer = _known(caller.ask("GET", path))
        if answer is None:
            return None
        seen.update(answer.json())
        if seen["status"] in {"completed", "failed", "cancelled", "expired"}:
            return seen
        time.sleep(0.2)
    raise GaveUp(f"{path} did not end: {seen}")


def _line(custom_id: str, text: str) -> bytes:
    body = {"input": text, "encoding_format": "base64", "model": SERVED_NAME}
    return (
        json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body}).encode() + b"\n"
    )


def _decoded(embedding: str) -> Any:
    return np.frombuffer(base64.b64decode(embedding), "<f4")


def _pause_s(answer: httpx.Response | None) -> float:
    if answer is not None and answer.status_code == httpx.codes.CONFLICT:  # the task has not ended
        return 0.02
    asked = answer.headers.get("Retry-After", "") if answer is not None else ""
    return min(_LONGEST_PAUSE_S, max(0.1, float(asked))) if asked.isdigit() else 0.1


def _named(answer: httpx.Response) -> str:
    try:
        return f"{answer.status_code} {answer.json()['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)
