"""What values say of themselves: which one they are, and nothing that somebody submitted."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tasks.documents.ingestions.manifest import ParsedDocument
from tasks.documents.sinks.sink import LoadDocument
from tasks.documents.sources.record_fields import Described
from tasks.documents.sources.source import DocumentRef, Fetched
from tasks.encoder.interface import Text, Tokens
from tasks.item import Options
from tasks.lines import RawLine
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus
from tasks.unshown import unshown

SECRET = "what somebody submitted"
METADATA: Mapping[str, Any] = {"note": SECRET}
REF = DocumentRef("a", "file:a", "a", 1, METADATA, SECRET, METADATA)


@pytest.mark.parametrize(
    "value",
    [
        Text(SECRET),
        Tokens({SECRET: [1]}, length=1, full_length=1),
        RawLine(SECRET, 5),
        REF,
        Fetched(REF, "0", data=SECRET.encode(), text=SECRET),
        Described("a", METADATA),
        ParsedDocument("a", "file:a", "chunked", metadata=METADATA),
        LoadDocument("a", "file:a", "0", 1, METADATA, [], None),  # type: ignore[arg-type]  # without vectors
        DocumentOutcome("a", "file:a", DocumentStatus.FAILED, ref=REF.to_json()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_was_submitted_is_not_shown(value: object) -> None:
    assert repr(value).startswith(f"{type(value).__name__}(")
    assert SECRET not in repr(value)
    assert SECRET not in f"{value}"


def test_all_else_is_shown_and_nothing_else_is_changed() -> None:
    item = Text(SECRET, Options(dimensions=2))
    assert f"options={Options(dimensions=2)!r}" in repr(item)
    assert item[:2] == (SECRET, Options(dimensions=2))


def test_several_fields() -> None:
    @unshown("a", "c")
    class Three(NamedTuple):
        a: int
        b: str
        c: int

    assert repr(Three(1, "two", 3)) == "Three(b='two')"
    assert Three(1, "two", 3)._replace(a=4) == (4, "two", 3)
