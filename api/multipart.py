"""multipart/form-data, read as it comes: a file's bytes go on at once, so memory holds one piece of them only."""

from typing import Protocol

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tasks.errors import InvalidUnicode, InvalidValue, UnsupportedMediaType

MAX_FIELD_BYTES = 65_536
MAX_PARTS = 64
_NAME_CHARS = 64
_FILE = "file"


class Form(Protocol):
    """Who takes what is read, in the order of the body. Its exceptions end the reading."""

    def field(self, name: str, value: str) -> None:
        """A field, whole."""

    def file(self, name: str, filename: str) -> None:
        """A file begins."""

    def data(self, data: bytes) -> None:
        """The next bytes of the file that began last."""


class FormReader:
    """Reads one body into a `Form`.

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
