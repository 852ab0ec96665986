"""Uploads: the rules for a file and the fields that come with it, each checked as early as possible."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from api.async_storage import AsyncStorage
from api.error_responses import CallerGone
from api.request.quota import Room
from tasks.errors import FileTooLarge, InvalidFile, InvalidUnicode, InvalidValue, MissingParameter, UnsupportedMediaType
from tasks.lines import LineSplitter, RawLine
from tasks.records.files import Purpose
from tasks.storage.storage import Writer
from tasks.wire.json_limits import has_more_parts
from worker_config.settings import Settings

PROBED_LINES = 50_000
"""As many requests as a batch may have. A file that has none in so many lines cannot be a batch."""
_BOM = b"\xef\xbb\xbf"


class LineProbe:
    """Finds out whether at least one line of a file is a JSON object, while the file comes in.

    Args:
        max_line_bytes: a longer line counts as none, so that memory is bounded.
        max_lists: one with more lists, objects and fields likewise.
    """

    def __init__(self, max_line_bytes: int, max_lists: int) -> None:
        self.has_object = False
        self._max_lists = max_lists
        self._splitter = LineSplitter(b"\n", max_line_bytes)
        self._lines = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the file."""
        if self._goes_on:
            self._probe(self._splitter.feed(data))

    def finish(self) -> bool:
        """The file is over. Returns whether there is such a line."""
        if self._goes_on:
            self._probe(self._splitter.finish())
        return self.has_object

    @property
    def _goes_on(self) -> bool:
        return not self.has_object and self._lines < PROBED_LINES

    def _probe(self, lines: Iterator[RawLine[bytes]]) -> None:
        for line in lines:
            data = line.data or b""
            self.has_object = _is_object(data if self._lines else data.removeprefix(_BOM), self._max_lists)
            self._lines += 1
            if not self._goes_on:
                return


def _is_object(line: bytes, max_lists: int) -> bool:
    if not line.lstrip().startswith(b"{") or has_more_parts(line, max_lists):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


MAX_FIELD_BYTES = 65_536
MAX_PARTS = 64
_NAME_CHARS = 64
_FILE = "file"


class Form(Protocol):
    """Takes what is read, in the order of the body. Its exceptions end the reading."""

    def field(self, name: str, value: str) -> None:
        """A field, whole."""

    def file(self, name: str, filename: str) -> None:
        """A file begins."""

    def data(self, data: bytes) -> None:
        """The next bytes of the file that began last."""


# Not streaming-form-data: it does not tell when a body ends before its last boundary, keeps a header of any length
# (20 MB of header: 40 MB of memory), and counts no parts that nobody has registered.
class FormReader:
    """Reads one body of multipart/form-data into a `Form`, as it comes: of a file it holds one piece at a time.

    Raises:
        UnsupportedMediaType: the content type is another one.
        InvalidValue: it names no boundary.
    """

    def __init__(self, content_type: str, form: Form) -> None:
        media, options = parse_options_header(content_type)
        if media != b"multipart/form-data":
            raise UnsupportedMediaType("Send the file with `Content-Type: multipart/form-data`.")
        self._form = form
        self._parts = 0
        self._ended = False
        self._header, self._value, self._disposition = b"", b"", b""
        self._field: bytearray | None = None
        self._name = ""
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._on_header,
                    "on_header_value": self._on_value,
                    "on_header_end": self._header_ended,
                    "on_headers_finished": self._headers_ended,
                    "on_part_data": self._on_data,
                    "on_part_end": self._part_ended,
                    "on_end": self._end,
                },
            )
        except (KeyError, FormParserError):
            raise InvalidValue("The Content-Type header needs a boundary of at most 256 characters.") from None

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the body.

        Raises:
            InvalidValue: they are not multipart/form-data, or too many or too long fields.
            InvalidUnicode: a name or a field is not UTF-8.
        """
        if self._ended:
            return  # what follows the form is nobody's; the parser would log each piece of it
        try:
            self._parser.write(data)
        except FormParserError:
            raise InvalidValue("The body is not valid multipart/form-data.") from None

    def finish(self) -> None:
        """The body is over; raises `InvalidValue` if the form is not."""
        if not self._ended:
            raise InvalidValue("The body ends before the closing boundary of its multipart/form-data.")

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidValue(f"The form has more than {MAX_PARTS} parts.")
        self._disposition = b""

    def _on_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ended(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _headers_ended(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise InvalidValue("Each part of the form needs `Content-Disposition: form-data; name=…`.")
        self._name = _text(options[b"name"], "the name of a part")
        if b"filename" in options or self._name == _FILE:
            self._field = None
            self._form.file(self._name, _text(options.get(b"filename", b"upload"), "the name of the file"))
        else:
            self._field = bytearray()

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._form.data(data[start:end])
            return
        self._field += data[start:end]
        if len(self._field) > MAX_FIELD_BYTES:
            raise InvalidValue(f"A field is longer than {MAX_FIELD_BYTES:,} bytes.", param=self._name[:_NAME_CHARS])

    def _part_ended(self) -> None:
        if self._field is not None:
            self._form.field(self._name, _text(bytes(self._field), f"the field {self._name[:_NAME_CHARS]!r}"))

    def _end(self) -> None:
        self._ended = True


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidUnicode(f"Of the form, {what} is not valid UTF-8.") from None


MAX_FILENAME_CHARS = 255
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 2_592_000
BATCH_EXPIRY_S = MAX_EXPIRY_S
"""Of a batch's input, unless the caller says otherwise. All other files stay until they are deleted."""

_UPLOADED = tuple(purpose for purpose in Purpose if purpose is not Purpose.BATCH_OUTPUT)
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Received:
    """What was uploaded. `expires_in_s`: None for never."""

    filename: str
    purpose: Purpose
    size_bytes: int
    expires_in_s: int | None


class Upload:
    """Takes an upload's parts as a `Form` and writes the file. Any of its methods may raise what the others name."""

    def __init__(self, writer: Writer, settings: Settings) -> None:
        self._writer = writer
        self._settings = settings
        self._fields: dict[str, str] = {}
        self._filename: str | None = None
        self._purpose: Purpose | None = None
        self._lines = LineProbe(settings.max_body_bytes, settings.max_body_lists)

    def field(self, name: str, value: str) -> None:
        """A field. Unknown ones are ignored; of several with one name the last counts.

        Raises:
            InvalidValue: no file can be uploaded for this purpose.
        """
        if name == "purpose":
            self._purpose = _purpose(value)
        elif name in {_ANCHOR, _SECONDS}:
            self._fields[name] = value

    def file(self, name: str, filename: str) -> None:
        """The file begins.

        Raises:
            InvalidValue: it is the second one, or has a name that cannot be.
        """
        if name != "file":
            raise InvalidValue("A file must come in the part named 'file'.", param="file")
        if self._filename is not None:
            raise InvalidValue("Send one file per request.", param="file")
        self._filename = _checked_filename(filename)

    def data(self, data: bytes) -> None:
        """Writes the next bytes of the file.

        Raises:
            FileTooLarge: it has more than a file of its purpose may have.
            DiskFull, StorageUnavailable: the storage takes no more.
        """
        self._require_size(self._writer.size_bytes + len(data))
        self._lines.feed(data)
        self._writer.write(data)

    def finish(self) -> Received:
        """What was uploaded, once all has come.

        Raises:
            MissingParameter: there was no file or no purpose.
            InvalidFile: it is empty and not for `user_data`, or not what its purpose needs.
            InvalidValue: it cannot expire as asked for.
        """
        if self._filename is None:
            raise MissingParameter("Missing required parameter: 'file'.", param="file")
        if self._purpose is None:
            raise MissingParameter("Missing required parameter: 'purpose'.", param="purpose")
        size_bytes = self._writer.size_bytes
        self._require_size(size_bytes)
        if not size_bytes and self._purpose is not Purpose.USER_DATA:  # there it says that a document has no text now
            raise InvalidFile("The file is empty.", param="file")
        if self._purpose is Purpose.BATCH:
            self._require_lines(self._filename)
        return Received(self._filename, self._purpose, size_bytes, _expiry_s(self._fields, self._purpose))

    def _require_size(self, size_bytes: int) -> None:
        batch = self._purpose is Purpose.BATCH
        limit = self._settings.max_batch_file_bytes if batch else self._settings.max_file_bytes
        if size_bytes > limit:
            name = "EMBEDQ_MAX_BATCH_FILE_BYTES" if batch else "EMBEDQ_MAX_FILE_BYTES"
            raise FileTooLarge(f"The file is larger than {limit:,} bytes ({name}).", param="file")

    def _require_lines(self, filename: str) -> None:
        if not filename.lower().endswith(".jsonl"):
            raise InvalidFile("Invalid file format for Batch API. Must be .jsonl", param="file")
        if not self._lines.finish():
            raise InvalidFile(
                "Invalid file format for Batch API: no line of this .jsonl file is a JSON object.", param="file"
            )


def _purpose(value: str) -> Purpose:
    if value not in _UPLOADED:
        allowed = ", ".join(f"'{purpose}'" for purpose in _UPLOADED)
        raise InvalidValue(f"purpose must be one of {allowed}.", param="purpose")
    return Purpose(value)


def _checked_filename(filename: str) -> str:
    if not 0 < len(filename) <= MAX_FILENAME_CHARS:
        raise InvalidValue(f"The file's name must have 1 to {MAX_FILENAME_CHARS} characters.", param="file")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in filename):
        raise InvalidValue("The file's name holds control characters.", param="file")
    return filename


def _expiry_s(fields: dict[str, str], purpose: Purpose) -> int | None:
    if not fields:
        return BATCH_EXPIRY_S if purpose is Purpose.BATCH else None
    if fields.get(_ANCHOR) != "created_at":
        raise InvalidValue("expires_after[anchor] must be 'created_at'.", param=_ANCHOR)
    seconds = fields.get(_SECONDS, "")
    if not _WHOLE_NUMBER.fullmatch(seconds) or not MIN_EXPIRY_S <= int(seconds) <= MAX_EXPIRY_S:
        raise InvalidValue(f"expires_after[seconds] must be {MIN_EXPIRY_S} to {MAX_EXPIRY_S}.", param=_SECONDS)
    return int(seconds)


_FORM_BYTES = 2**20
"""Room for the other parts of a form, and for what stands between them."""


async def receive(request: Request, storage: AsyncStorage, name: str, settings: Settings, taken: Room) -> Received:
    """Stores the file of a multipart/form-data body under `name`. After any error there is nothing under it.

    The body is read as fast as the storage takes it, a piece at a time.

    `taken`: the room that it takes, and is told of what comes.

    Raises:
        UnsupportedMediaType, InvalidValue, InvalidUnicode: the body is not such a form.
        MissingParameter, InvalidFile, FileTooLarge: see `Upload`.
        QuotaExceeded: it is more than there is room for.
        StorageUnavailable, DiskFull: the storage does not take it.
        CallerGone: the client closed the connection first.
    """
    async with storage.writing(name) as writer:
        upload = Upload(writer, settings)
        reader = FormReader(request.headers.get("content-type", ""), upload)
        received = 0
        try:
            async for chunk in request.stream():
                received += len(chunk)
                # Parsing and writing in a thread: a disk that stands still must not stop the event loop.
                await storage.run(reader.feed, chunk)
                if received - writer.size_bytes > _FORM_BYTES:
                    raise InvalidValue(f"The form has more than {_FORM_BYTES:,} bytes besides the file.")
                await taken.received(writer.size_bytes)
        except ClientDisconnect:
            raise CallerGone from None
        reader.finish()
        return await storage.run(upload.finish)


def announced_bytes(request: Request, max_file_bytes: int) -> int | None:
    """The smallest size that the file can have by its Content-Length; None without one. The body has not been read.

    Raises:
        FileTooLarge: more than a file may have.
    """
    declared = request.headers.get("content-length", "")
    if not declared.isdecimal():
        return None
    least = max(int(declared) - _FORM_BYTES, 0)
    if least > max_file_bytes:
        raise FileTooLarge(f"The file is larger than {max_file_bytes:,} bytes (EMBEDQ_MAX_FILE_BYTES).", param="file")
    return least
