"""Reads texts from a file: one per line, or JSON lines. A stream: memory does not grow with the file."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Literal, Self

from embedq.errors import BadInputError

Format = Literal["lines", "jsonl"]

_BOM = b"\xef\xbb\xbf"
_TEXT_FIELDS = ("text", "input")


@dataclass(frozen=True, slots=True)
class Record:
    """One text of a file.

    Attributes:
        line: its line, from 1.
        id: as given in JSON lines; None otherwise.
    """

    line: int
    text: str
    id: str | int | None = None

    @classmethod
    def from_json(cls, line: str, number: int) -> Self:
        """From one line of JSON.

        Raises:
            BadInputError: it is not an object with a string in "text" or "input".
        """
        try:
            value = json.loads(line)
        except (JSONDecodeError, RecursionError) as error:
            raise BadInputError(f"line {number}: not JSON ({error})") from None
        if not isinstance(value, dict):
            raise BadInputError(f'line {number}: must be an object with the text in "text" or "input"')
        text = next((value[name] for name in _TEXT_FIELDS if name in value), None)
        if not isinstance(text, str) or not text:
            raise BadInputError(f'line {number}: needs a non-empty string in "text" or "input"')
        record_id = value.get("id")
        if record_id is not None and (isinstance(record_id, bool) or not isinstance(record_id, str | int)):
            raise BadInputError(f'line {number}: "id" must be a string or an integer')
        return cls(number, text, record_id)


def format_from_name(name: str) -> Format:
    """The format that a file's name stands for."""
    return "jsonl" if name.lower().endswith((".jsonl", ".ndjson")) else "lines"


def read_records(lines: Iterable[bytes], form: Format) -> Iterator[Record]:
    """The texts of a file opened in binary mode, in order. Lines of white space are passed over.

    Raises:
        BadInputError: a line is not UTF-8, or not a JSON object with a string in "text" or "input".
    """
    for number, raw in enumerate(lines, start=1):
        line = _decode(raw.removeprefix(_BOM) if number == 1 else raw, number)
        if line.strip():
            yield Record(number, line) if form == "lines" else Record.from_json(line, number)


def _decode(raw: bytes, number: int) -> str:
    try:
        return raw.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadInputError(f"line {number}: not UTF-8 (byte {error.start + 1}); convert the file first") from None
