"""What is in a record: which of its fields are its id, its text and its metadata; and how the sandbox tells it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import orjson

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import clean
from tasks.ingestion.parsing.refusals import refused
from tasks.records.ingestions import MAX_METADATA_DEPTH, is_too_deep
from tasks.unshown import unshown

Request: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = tuple[dict[str, Any], bytes]

MAX_ID_BYTES = 1024
_IDS = ("id", "_id", "doc_id")
_TEXTS = ("text", "content", "body")
_METADATA = "metadata"
_MAX_METADATA_BYTES = 64 * 1024
"""Metadata of one document as JSON. It is stored with each of its chunks."""


@unshown("text", "metadata")
class Described(NamedTuple):
    """What is in a record.

    Attributes:
        id: None: the record has none.
        error: code and message: why the record cannot be read as a document.
        named: whether the id is usable; False: the error is about the id.
    """

    id: str | None = None
    text: str = ""
    metadata: Mapping[str, Any] = {}
    error: tuple[str, str] | None = None
    named: bool = False


class Range(NamedTuple):
    """Records that follow each other, or a single one. See the room's docstring.

    Attributes:
        start, length: bytes of a text file, or rows of a row group.
        number: of the first record, as its owner would count, from 1.
        group: of Parquet.
    """

    start: int
    length: int
    number: int
    group: int = 0

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.start + self.length

    def behind(self, record: "Range") -> "Range":
        """What is left of it behind one of its records."""
        return Range(record.end, self.end - record.end, record.number + 1, self.group)


Record: TypeAlias = tuple[Range, Described]


def record_to_json(record: Record) -> bytes:
    """A list of all their values; the worker reads it in `ranges.py`."""
    there, described = record
    return orjson.dumps((*there, *described))


def range_of(start: int, length: int = 0, numbers: int = 0, count: int = 0, *, skip: bool = False) -> dict[str, Any]:
    """The answer to `cut`."""
    return {"start": start, "length": length, "numbers": numbers, "records": count, "skip": skip}


def too_long(what: str, limit: int) -> tuple[str, str]:
    """Code and message of the error of a line or row."""
    return "document_too_large", f"The {what} has more than {limit:,} bytes. Split it."


@dataclass(frozen=True, slots=True)
class FieldMap:
    """A request's `fields`.

    Attributes:
        id: name of the field; None: the first of `id`, `_id` and `doc_id` that is present, else the record's number.
        text: names of fields that are joined; empty: the first of `text`, `content` and `body` that is present.
        metadata: names; "*": all other fields; None: the object in the field `metadata`, if there is one.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    metadata: tuple[str, ...] | str | None = None
    separator: str = "\n\n"

    @classmethod
    def from_request(cls, fields: Mapping[str, Any]) -> "FieldMap":
        """From a request that has been checked."""
        text, metadata = fields.get("text") or (), fields.get("metadata")
        return cls(
            fields.get("id"),
            (text,) if isinstance(text, str) else tuple(text),
            metadata if metadata is None or isinstance(metadata, str) else tuple(metadata),
            fields.get("separator", "\n\n"),
        )

    def columns(self, present: Sequence[str]) -> list[str]:
        """The columns of a table that have to be read.

        Raises:
            DocumentFailed: the columns asked for are not there.
        """
        texts = [name for name in self.text or _TEXTS if name in present]
        if not texts or (self.id is not None and self.id not in present):
            raise _missing(self.id if texts else None, self.text)
        wanted = (
            {*present} if self.metadata == "*" else {*texts, *self._own_metadata, *((self.id,) if self.id else _IDS)}
        )
        return [name for name in present if name in wanted and name]

    def needed(self, present: Sequence[str]) -> list[str]:
        """Of `columns`, those without which the documents would be others: those named, and the first by default."""
        first = [next((name for name in names if name in present), "") for names in (_IDS, _TEXTS)]
        return [self.id or first[0], *(self.text or first[1:]), *self._own_metadata]

    @property
    def _own_metadata(self) -> Sequence[str]:
        """Names of what is metadata; none for all others."""
        return (_METADATA,) if self.metadata is None else () if isinstance(self.metadata, str) else self.metadata

    def described(self, record: Mapping[str, Any]) -> Described:
        """What is in a record, or what is wrong with it."""
        try:
            own_id = self._id_of(record)
        except DocumentFailed as failed:
            return Described(error=(failed.error.code, failed.error.message))
        try:
            text = self._text_of(record)
            return Described(own_id, text, self._metadata_of(record), named=True)
        except DocumentFailed as failed:
            return Described(own_id, error=(failed.error.code, failed.error.message), named=True)

    def name_of_id(self, record: Mapping[str, Any]) -> str | None:
        """The field that has the id of a record; None: none of them has."""
        return next((name for name in ((self.id,) if self.id else _IDS) if record.get(name) is not None), None)

    def _id_of(self, record: Mapping[str, Any]) -> str | None:
        """None if it has none and the request names no field for it."""
        name = self.name_of_id(record)
        if name is None:
            if self.id:
                raise _missing(self.id, ())
            return None
        value = record[name]
        if not isinstance(value, str):
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                raise refused("invalid_id", f"The id in the field {name!r:.80} is neither a string nor a number.")
            value = whole_number(str(value))
        require_id(value)
        return value

    def _text_of(self, record: Mapping[str, Any]) -> str:
        """Blank if the field is present and empty."""
        names = self.text or next(((name,) for name in _TEXTS if record.get(name) is not None), ())
        values = [(name, record[name]) for name in names if record.get(name) is not None]
        if not values and not any(name in record for name in self.text or _TEXTS):
            raise _missing(None, self.text)
        for name, value in values:
            if not isinstance(value, str):
                raise refused("invalid_field", f"The field {name!r:.80} is not a string.")
        text = self.separator.join(value for _, value in values if value)
        if not text.strip() and (absent := [name for name in self.text if name not in record]):
            raise _missing(None, absent)  # it may be the one with the text
        return cleaned(text)

    def _metadata_of(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.metadata is None:
            given = record.get(_METADATA)
            chosen = dict(given) if isinstance(given, Mapping) else {}
        elif isinstance(self.metadata, str):
            # The default fields for id and text are metadata if the request names other fields.
            others = {self.id, *self.text} if self.text else {self.id, *_TEXTS}
            chosen = {name: value for name, value in record.items() if name not in others}
        else:
            chosen = {name: record[name] for name in self.metadata if name in record}
        return as_json(chosen) if chosen else chosen


def places_of(wanted: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """Where the columns of a table are that are asked for. Raises `DocumentFailed`: two of them have the same name."""
    places = dict[str, int]()
    for at, name in enumerate(names):
        if name in places:
            message = f"Columns {places[name] + 1} and {at + 1} have the same name, which is asked for. Rename one."
            raise refused("invalid_header", message)
        if name in wanted:
            places[name] = at
    return places


def as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as JSON can hold it, without NUL; times and decimals become strings. Raises `DocumentFailed`."""
    if is_too_deep(metadata):
        message = f"The metadata has more than {MAX_METADATA_DEPTH} levels of objects and lists. Make it flatter."
        raise refused("invalid_metadata", message)
    try:
        data = orjson.dumps(metadata, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        raise refused("invalid_metadata", "The metadata holds a value that cannot be written as JSON.") from None
    if len(data) > _MAX_METADATA_BYTES:
        message = (
            f"The metadata has {len(data):,} bytes; at most {_MAX_METADATA_BYTES:,} are possible, as each chunk of the "
            "document gets a copy. Name fewer fields in source.fields.metadata."
        )
        raise refused("invalid_metadata", message)
    # PostgreSQL takes no NUL. Behind an even number of backslashes it is one, behind an odd number it is six letters.
    parsed: dict[str, Any] = orjson.loads(_NUL.sub(rb"\1", data))
    return parsed


_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)(?:\\u0000)+")


def whole_number(text: str) -> str:
    """A number as an id: 1.0 is 1, as Excel and pandas write whole numbers of a column in which one is missing."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text) if "." in text else text


def require_id(value: str) -> None:
    """Raises `DocumentFailed` for a value that cannot be the id of a document."""
    if value.isascii() and 0 < len(value) <= MAX_ID_BYTES and "\0" not in value:
        return
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:
        raise refused("invalid_id", "The id is not valid Unicode.") from None
    if not value or "\0" in value:
        raise refused("invalid_id", "The id is empty or holds a NUL character.")
    if size_bytes > MAX_ID_BYTES:
        raise refused("invalid_id", f"The id has {size_bytes:,} bytes; at most {MAX_ID_BYTES:,} are possible.")


def cleaned(text: str) -> str:
    """A text as that of a file is: without NUL and its like.

    Raises:
        DocumentFailed: it is not valid Unicode, or has nothing but such characters, which says nothing.
    """
    if text.isascii() and text.isprintable():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "The text is not valid in its file's encoding. Save the file as UTF-8."
        raise refused("invalid_encoding", message) from None
    found = clean(text)
    if not found.strip() and text.strip():
        raise refused("no_text", "The text has control characters and no others. An earlier version of it is kept.")
    return found


def _missing(name: str | None, text: Sequence[str]) -> DocumentFailed:
    if name is not None:
        return refused("missing_field", f"There is no field {name!r:.80} for the id. Name another in source.fields.id.")
    names = ", ".join(repr(one)[:80] for one in text or _TEXTS)
    message = f"There is no text: no field {names}. Name the field with the text in source.fields.text."
    return refused("missing_field", message)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return str(value)
