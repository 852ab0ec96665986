"""What values say of themselves: which one they are, and nothing that somebody submitted."""

from collections.abc import Mapping
from typing import Any

import pytest

from tasks.datasets.loads import DocumentLoad, DocumentState
from tasks.encoder.interface import Text, Tokens
from tasks.ingestion.sources.record import Described
from tasks.ingestion.sources.source import Fetched
from tasks.lines import RawLine
from tasks.records.documents import Document

SECRET = "what somebody submitted"
METADATA: Mapping[str, Any] = {"note": SECRET}
REF = Document("a", "file:a", name="a", size_bytes=1, place=METADATA, record=SECRET, metadata=METADATA)


@pytest.mark.parametrize(
    "value",
    [
        Text(SECRET),
        Tokens({SECRET: [1]}, length=1, full_length=1),
        RawLine(SECRET, 5),
        REF,
        Fetched(REF, "0", data=SECRET.encode(), text=SECRET),
        Described("a", SECRET, METADATA),
        DocumentLoad("a", "file:a", DocumentState.NEW, "0", "", METADATA),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_was_submitted_is_not_shown(value: object) -> None:
    assert repr(value).startswith(f"{type(value).__name__}(")
    assert SECRET not in repr(value)
    assert SECRET not in f"{value}"
