"""Reading multipart/form-data in whatever pieces it comes, and the rules of an upload."""

import io
from typing import Any

import pytest

from api.request.upload import MAX_FIELD_BYTES, MAX_PARTS, PROBED_LINES, FormReader, LineProbe, Received, Upload
from tasks.errors import (
    EmbedqError,
    FileTooLarge,
    InvalidFile,
    InvalidUnicode,
    InvalidValue,
    MissingParameter,
    UnsupportedMediaType,
)
from tasks.records.files import Purpose
from tasks.storage.writer import Writer
from worker_config.settings import load_settings

TYPE = "multipart/form-data; boundary=b"
Part = tuple[str, bytes]


def body(*parts: Part, end: bytes = b"--b--\r\n") -> bytes:
    """Parts are (disposition after the name, content)."""
    shown = [f"--b\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n" for head, data in parts]
    return b"".join(shown) + end


def purpose(value: str) -> Part:
    return 'name="purpose"', value.encode()


def file(data: bytes, filename: str = "a.jsonl") -> Part:
    return f'name="file"; filename="{filename}"', data


class Written(Writer):
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.pieces.append(data)


def upload(
    content: bytes, *, piece: int = 10**9, content_type: str = TYPE, **settings: Any
) -> tuple[Received, Written]:
    written = Written()
    form = Upload(written, load_settings(**settings))
    reader = FormReader(content_type, form)
    for start in range(0, len(content), piece):
        reader.feed(content[start : start + piece])
    reader.finish()
    return form.finish(), written


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 50, 10**9])
def test_a_form_in_pieces(piece: int) -> None:
    data = b'{"a":1}\r\n--b\r\n-\r\n--c\n' + bytes(range(256))  # nearly a boundary
    content = body(purpose("user_data"), ('name="other"', b"x"), file(data, "../../etc/ü%22 b"))
    content = content.replace(b"\r\n--b\r\n-\r", b"\r\n--a\r\n-\r")
    received, written = upload(content, piece=piece)

    assert received == Received("../../etc/ü%22 b", Purpose.USER_DATA, len(data), None)
    assert b"".join(written.pieces) == data.replace(b"--b\r", b"--a\r")


def test_bytes_go_on_as_they_come() -> None:
    written = Written()
    reader = FormReader(TYPE, Upload(written, load_settings()))
    head, data = body(purpose("vision"), file(b"", "f")).removesuffix(b"\r\n--b--\r\n"), bytes(50_000)

    reader.feed(head)
    for number in range(1, 20):
        reader.feed(data)
        # What might be the beginning of a boundary waits, no more.
        assert number * len(data) - written.size_bytes < 100


@pytest.mark.parametrize("order", [1, -1])
def test_fields_may_come_in_any_order(order: int) -> None:
    parts = [
        purpose("batch"),
        file(b"{}\n"),
        ('name="expires_after[anchor]"', b"created_at"),
        ('name="expires_after[seconds]"', b"3600"),
    ]
    assert upload(body(*parts[::order]))[0] == Received("a.jsonl", Purpose.BATCH, 3, 3600)


@pytest.mark.parametrize(
    ("filename", "kind", "expires_in_s"),
    [("a.JSONL", "batch", 2_592_000), ("no extension", "assistants", None), ("x.pdf", "user_data", None)],
)
def test_defaults_by_purpose(filename: str, kind: str, expires_in_s: int | None) -> None:
    received, _ = upload(body(purpose(kind), file(b"{}", filename)))
    assert (received.filename, received.purpose, received.expires_in_s) == (filename, kind, expires_in_s)


def test_a_file_without_a_name_is_an_upload() -> None:
    assert upload(body(purpose("vision"), ('name="file"', b"x")))[0].filename == "upload"


def expiry(anchor: bytes, seconds: bytes) -> list[Part]:
    fields = [('name="expires_after[anchor]"', anchor), ('name="expires_after[seconds]"', seconds)]
    return [purpose("vision"), *[field for field in fields if field[1] != b"-"], file(b"x")]


@pytest.mark.parametrize(
    ("parts", "error", "param"),
    [
        ([purpose("vision")], MissingParameter, "file"),
        ([file(b"x")], MissingParameter, "purpose"),
        ([], MissingParameter, "file"),
        ([purpose("batch_output"), file(b"x")], InvalidValue, "purpose"),
        ([purpose("Batch"), file(b"{}")], InvalidValue, "purpose"),
        ([purpose(""), file(b"{}")], InvalidValue, "purpose"),
        ([purpose("vision"), file(b"")], InvalidFile, "file"),
        ([purpose("batch"), file(b"")], InvalidFile, "file"),
        ([purpose("batch"), file(b"{}", "a.txt")], InvalidFile, "file"),
        ([file(b"{}", "a.json"), purpose("batch")], InvalidFile, "file"),
        ([purpose("batch"), file(b"nonsense\n[1]\n{broken\n\n")], InvalidFile, "file"),
        ([purpose("batch"), file(b"\n\n\n")], InvalidFile, "file"),
        ([purpose("vision"), file(b"x", "a" * 256)], InvalidValue, "file"),
        ([purpose("vision"), file(b"x", "")], InvalidValue, "file"),
        ([purpose("vision"), file(b"x", "a\x07b")], InvalidValue, "file"),
        ([purpose("vision"), file(b"x", "a\u2028b")], InvalidValue, "file"),
        ([purpose("vision"), file(b"x"), file(b"y")], InvalidValue, "file"),
        ([purpose("vision"), ('name="data"; filename="a"', b"x")], InvalidValue, "file"),
        ([purpose("x" * (MAX_FIELD_BYTES + 1)), file(b"x")], InvalidValue, "purpose"),
        ([("name=purpose", b"\xff"), file(b"x")], InvalidUnicode, None),
        ([(f'name="n{i}"', b"") for i in range(MAX_PARTS + 1)], InvalidValue, None),
        ([("filename=a", b"x")], InvalidValue, None),
        (expiry(b"created_at", b"3599"), InvalidValue, "expires_after[seconds]"),
        (expiry(b"created_at", b"2592001"), InvalidValue, "expires_after[seconds]"),
        (expiry(b"created_at", b"-3600"), InvalidValue, "expires_after[seconds]"),
        (expiry(b"created_at", b"1e4"), InvalidValue, "expires_after[seconds]"),
        (expiry(b"created_at", "٣٦٠٠".encode()), InvalidValue, "expires_after[seconds]"),
        (expiry(b"created_at", b"-"), InvalidValue, "expires_after[seconds]"),
        (expiry(b"last_used", b"3600"), InvalidValue, "expires_after[anchor]"),
        (expiry(b"-", b"3600"), InvalidValue, "expires_after[anchor]"),
    ],
)
def test_a_form_that_is_refused(parts: list[Part], error: type[EmbedqError], param: str | None) -> None:
    with pytest.raises(error) as caught:
        upload(body(*parts))
    assert type(caught.value) is error
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("content", "content_type", "error"),
    [
        (b"", TYPE, InvalidValue),
        (b"{}", TYPE, InvalidValue),
        (body(purpose("vision"), file(b"x"), end=b""), TYPE, InvalidValue),
        (body(purpose("vision"), file(b"x"))[:-20], TYPE, InvalidValue),
        (body(purpose("vision"), file(b"x")), "multipart/form-data", InvalidValue),
        (body(purpose("vision"), file(b"x")), f"multipart/form-data; boundary={'b' * 300}", InvalidValue),
        (body(purpose("vision"), file(b"x")), "multipart/mixed; boundary=b", UnsupportedMediaType),
        (body(purpose("vision"), file(b"x")), "application/json", UnsupportedMediaType),
        (body(purpose("vision"), file(b"x")), "", UnsupportedMediaType),
        (b"--b\r\nX: " + b"y" * 10**5 + b"\r\n\r\n", TYPE, InvalidValue),
        (b"--b\r\n" + b"X: y\r\n" * 1000 + b"\r\n", TYPE, InvalidValue),
    ],
)
def test_a_body_that_is_no_form(content: bytes, content_type: str, error: type[EmbedqError]) -> None:
    with pytest.raises(error):
        upload(content, content_type=content_type)


@pytest.mark.parametrize("first", [True, False])
def test_a_file_over_its_limit(*, first: bool) -> None:
    def parts(kind: str, size: int) -> list[Part]:
        return [purpose(kind), file(b"{}\n" + bytes(size - 3))][:: 1 if first else -1]

    limits: dict[str, Any] = {"max_file_bytes": 1000, "max_batch_file_bytes": 500}
    for kind, limit in (("vision", 1000), ("batch", 500)):
        assert upload(body(*parts(kind, limit)), **limits)[0].size_bytes == limit
        with pytest.raises(FileTooLarge, match=f"{limit:,} bytes"):
            upload(body(*parts(kind, limit + 1)), **limits)


@pytest.mark.parametrize("piece", [1, 5, 1000])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"{}", True),
        (b"\xef\xbb\xbf{}\n", True),
        (b'x\r\n\r\n  {"a": "\xc3\xa9"}\r\n', True),
        (b"\n" * 300 + b"{}", True),
        (b"[1]\n2\n", False),
        (b"{\xff}", False),
        (b'{"a":\n1}', False),
        (b'{"a":"' + b"x" * 200 + b'"}\n', False),  # longer than a line may be
        (b'{"a":"' + b"x" * 200 + b'"}\n{}', True),
        (b"{" * 99, False),
        (b'{"a":[[],[],[],[]]}', False),  # more lists than it may have
        (b'{"a":1,"b":2,"c":3,"d":4,"e":5}', False),  # more fields
        (b'{"a":"[[[[[[[[["}', True),
    ],
)
def test_a_line_that_is_an_object(content: bytes, piece: int, *, found: bool) -> None:
    probe = LineProbe(max_line_bytes=100, max_lists=5)
    for start in range(0, len(content), piece):
        probe.feed(content[start : start + piece])
    assert probe.finish() is found


def test_lines_behind_those_that_a_batch_may_have_are_not_looked_at() -> None:
    probe = LineProbe(max_line_bytes=100, max_lists=5)
    probe.feed(b"\n" * PROBED_LINES)
    probe.feed(b"{}\n")
    assert probe.finish() is False
