"""The process that reads records: `python -m tasks.documents.sources.records_child PARENT_PID MEMORY_BYTES TIMEOUT_S`.

It is confined like the process that parses. `records_process.py` describes the messages.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.child import GRACE_S, confine, peak_bytes, received, send
from tasks.documents.sources.frames import frame
from tasks.documents.sources.parquet_records import Parquet
from tasks.documents.sources.record_fields import FieldMap
from tasks.documents.sources.records_process import MAX_READ_BYTES, frame_from_texts, record_to_values
from tasks.ingestion.parsing.limits import SPENT_BYTES

_BATCH_BYTES = 2**20
"""Texts in one answer; a longer text is an answer of its own."""


class _Left(Exception):
    """The worker has left the conversation."""


class _Channel:
    """Requests and answers. An alarm limits the time that this process takes between two messages."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO, timeout_s: float) -> None:
        self._requests = requests
        self._answers = answers
        self._timeout_s = timeout_s

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message. Ends the process at the end of its input."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        message = received(self._requests)
        if message is None:
            sys.exit(0)
        signal.setitimer(signal.ITIMER_REAL, self._timeout_s + GRACE_S)
        return message

    def say(self, pieces: Sequence[bytes]) -> None:
        """Sends an answer."""
        send(self._answers, pieces)

    def give(self, pieces: Sequence[bytes]) -> None:
        """Sends a batch and waits until the next one is wanted; raises `_Left`."""
        self.say(pieces)
        if "more" not in self.receive()[0]:
            raise _Left


class _ContentThere:
    """A file that the worker reads for this process."""

    def __init__(self, channel: _Channel, name: str, size_bytes: int, version: str) -> None:
        self._channel = channel
        self.name = name
        self.size_bytes = size_bytes
        self.version = version

    def read(self, first: int, size: int) -> bytes:
        """See `Content`."""
        parts = []
        while size > 0:
            self._channel.say(frame({"read": [first, min(size, MAX_READ_BYTES)]}))
            _, data = self._channel.receive()
            if not data:
                break
            parts.append(data)
            first, size = first + len(data), size - len(data)
        return b"".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Reads records until its input ends; exits early after a file that left too much behind."""
    parent_pid, memory_bytes, timeout_s = int(arguments[0]), int(arguments[1]), float(arguments[2])
    confine(parent_pid, memory_bytes)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    channel = _Channel(sys.stdin.buffer, answers, timeout_s)
    channel.say(frame({"ready": True}))
    spent = False
    while not spent:
        answer = _answered(channel.receive()[0], channel)
        spent = bool(answer.get("spent"))
        channel.say(frame(answer))


def _answered(request: Mapping[str, Any], channel: _Channel) -> dict[str, Any]:
    try:
        _give(request, channel)
    except _Left:
        pass
    except DocumentFailed as failure:
        return {"code": failure.error.code, "message": failure.error.message}
    except MemoryError:
        return {"code": "parse_memory", "spent": True}
    except Exception:  # noqa: BLE001 - a process's boundary; what a library says may hold the document's text
        return {"code": "parser_crashed", "spent": True}
    return {"end": True, "spent": peak_bytes() > SPENT_BYTES}


def _give(request: Mapping[str, Any], channel: _Channel) -> None:
    content = _ContentThere(channel, request["name"], request["size"], request["version"])
    table = Parquet(FieldMap.from_json(request["fields"]), request["max_record_bytes"])
    if "places" not in request:
        for batch in table.batches(content, request["position"], lambda: None):
            channel.give(frame({"records": [record_to_values(record) for record in batch]}))
        return
    texts: list[str | DocumentError] = []
    size = 0
    for text in table.again(content, request["places"], lambda: None):
        texts.append(text)
        size += len(text) if isinstance(text, str) else 0
        if size >= _BATCH_BYTES:
            channel.give(frame_from_texts(texts))
            texts, size = [], 0
    if texts:
        channel.give(frame_from_texts(texts))


if __name__ == "__main__":
    main(sys.argv[1:])
