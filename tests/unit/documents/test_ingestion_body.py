"""The body of an ingestion: what it may name is what the documents worker can open."""

from typing import Any

import pytest

from api.families.ingestion_body import SOURCE_KINDS, Source, check_source
from tasks.documents.sources.source_kinds import SOURCES
from tasks.errors import InvalidValue, MissingParameter
from worker_config.settings import Settings

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
    assert set(SOURCE_KINDS) <= set(Source.model_fields)


@pytest.mark.parametrize("kind", SOURCE_KINDS)
def test_a_source_lists_what_it_names(kind: str) -> None:
    given, listed = GIVEN[kind]

    assert Source.model_validate({kind: given}).listed() == (kind, listed)


def test_a_source_is_of_one_kind() -> None:
    with pytest.raises(MissingParameter, match=r"^source needs one of files, urls and documents\.$"):
        check_source(Source(), Settings())
    with pytest.raises(InvalidValue, match=r"^source has files and urls; one ingestion has one kind of source\.$"):
        check_source(Source.model_validate({"files": ["file-1"], "urls": ["/data/a"]}), Settings())
