"""Server-sent events, read as they come."""

import json
from collections.abc import Iterator
from typing import Any

import httpx

Event = tuple[str, dict[str, Any]]
"""Id and data."""


class Stream:
    """An open stream: its lines, read one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def event(self) -> Event:
        """The next event."""
        found = next(self.events(), None)
        assert found is not None, "the stream has ended"
        return found

    def events(self) -> Iterator[Event]:
        """The rest."""
        for fields in self._fields():
            yield fields["id"], json.loads(fields["data"])

    def named(self, name: str) -> dict[str, Any]:
        """The data of the next event with this name."""
        found = next((fields["data"] for fields in self._fields() if fields.get("event") == name), None)
        assert found is not None, "the stream has ended"
        data: dict[str, Any] = json.loads(found)
        return data

    def names(self) -> list[str]:
        """The names of the rest."""
        return [fields.get("event", "message") for fields in self._fields()]

    def comment(self) -> str:
        """The next comment."""
        return next(line for line in self._lines if line.startswith(":"))

    def _fields(self) -> Iterator[dict[str, str]]:
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line:
                if "data" in fields:
                    yield fields
                fields = {}
