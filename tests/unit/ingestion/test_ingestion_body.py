"""The body of an ingestion: what it may name is what the documents worker can open."""

from typing import Any

import pytest

from api.schemas.new_ingestion import SOURCE_KINDS, NewIngestion
from tasks.ingestion.sources.open_source import RECORD_FORMATS, SOURCES
from tests.raises_code import raises_code

GIVEN: dict[str, tuple[list[Any], list[Any]]] = {
    "files": (
        ["file-1", {"id": "file-2", "document_id": "b"}],
        [{"id": "file-1"}, {"id": "file-2", "document_id": "b"}],
    ),
    "urls": (["/data/a.txt"], ["/data/a.txt"]),
    "documents": ([{"id": "a", "text": "one"}], [{"id": "a", "text": "one"}]),
}


def test_each_kind_of_source_can_be_opened() -> None:
    assert set(SOURCE_KINDS) == set(SOURCES) == set(GIVEN)


@pytest.mark.parametrize("kind", RECORD_FORMATS)
def test_each_format_can_be_asked_for(kind: str) -> None:
    assert NewIngestion.model_validate({"source": {"urls": ["/a"], "format": kind}}).source.format == kind


@pytest.mark.parametrize("kind", SOURCE_KINDS)
def test_a_source_lists_what_it_names(kind: str) -> None:
    given, listed = GIVEN[kind]

    source = NewIngestion.model_validate({"source": {kind: given}}).source

    assert (source.kind, source.listed()) == (kind, listed)


def test_a_source_is_of_one_kind() -> None:
    with raises_code("missing_required_parameter", match=r"^source needs one of files, urls and documents\.$"):
        NewIngestion.model_validate({"source": {}})
    with raises_code("invalid_value", match=r"^source has files and urls; one ingestion has one kind of source\.$"):
        NewIngestion.model_validate({"source": {"files": ["file-1"], "urls": ["/data/a"]}})
