"""The body of an ingestion: what it may name is what the documents worker can open."""

import pytest

from api.schemas.new_ingestion import SOURCE_KINDS, NewIngestion
from tasks.ingestion.sources.open_source import RECORD_FORMATS, SOURCES


def test_each_kind_of_source_can_be_opened() -> None:
    assert set(SOURCE_KINDS) == set(SOURCES)


@pytest.mark.parametrize("kind", RECORD_FORMATS)
def test_each_format_can_be_asked_for(kind: str) -> None:
    assert NewIngestion.model_validate({"source": {"urls": ["/a"], "format": kind}}).source.format == kind
