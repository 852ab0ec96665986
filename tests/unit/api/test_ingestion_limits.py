"""Sinks and folders that a key may use, among those of the server."""

import contextlib
from typing import Any

import pytest

from api.schemas.new_ingestion import DatasetSink, PostgresSink, Source
from api.services.ingestion_checks import check_again, check_sink, check_source
from tasks.errors import SourceFailed
from tasks.records.api_keys import NO_LIMITS, Limits
from tasks.records.ingestions import Ingestion, IngestionRecord
from tasks.records.jobs import JobStatus
from tests.raises_code import raises_code
from worker_config.settings import Settings, load_settings


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(sinks="main=postgresql://h/a,other=postgresql://h/b", ingest_roots="/srv/docs,s3://bucket/in")


def limits(**given: Any) -> Limits:
    return NO_LIMITS.model_copy(update=given)


def made(source: dict[str, Any], **rights: Any) -> Ingestion:
    sink = {"type": "postgresql", "name": "main", "table": "t"}
    record = IngestionRecord(
        id="ing_1",
        owner="ann",
        ttl_ms=1,
        request={"source": source, "sink": sink},
        status=JobStatus.FAILED,
        listed=True,
        **rights,
    )
    return Ingestion(record, change="c", created_ms=0, now_ms=0)


@pytest.mark.parametrize(
    ("sinks", "name", "table", "allowed"),
    [
        (None, "main", "t", True),
        ((), "main", "t", False),
        (("main",), "main", "t", True),
        (("main",), "other", "t", False),
        (("main/t",), "main", "t", True),
        (("main/t",), "main", "tt", False),
        (("main/t_*",), "main", "t_1", True),
        (("main/t_*",), "main", "t", False),
        (("main/*",), "main", "anything", True),
        (("other", "main/a.*"), "main", "a.t", True),
    ],
)
def test_tables_that_a_key_may_load_into(
    settings: Settings, sinks: tuple[str, ...] | None, name: str, table: str, allowed: bool
) -> None:
    sink = PostgresSink(type="postgresql", name=name, table=table)
    with contextlib.nullcontext() if allowed else raises_code("invalid_value"):
        check_sink(sink, settings, limits(sinks=sinks))


def test_a_key_hears_nothing_of_connections_that_it_may_not_use(settings: Settings) -> None:
    with raises_code("invalid_value") as refused:
        check_sink(PostgresSink(type="postgresql", name="other", table="t"), settings, limits(sinks=("main/t",)))
    assert "other" not in refused.value.detail
    check_sink(DatasetSink(type="dataset", dataset="mine"), settings, limits(sinks=()))


@pytest.mark.parametrize(
    ("roots", "url", "allowed"),
    [
        (None, "/srv/docs/a/x.txt", True),
        ((), "/srv/docs/a/x.txt", False),
        (("/srv/docs/a",), "/srv/docs/a/x.txt", True),
        (("/srv/docs/a",), "/srv/docs/a", True),
        (("/srv/docs/a/",), "/srv/docs/ab/x.txt", False),
        (("/srv/docs/a",), "/srv/docs/a/../b/x.txt", False),
        (("/srv/docs/a",), "/srv/docs/**", False),
        (("/",), "/etc/passwd", False),
        (("s3://bucket/in/a",), "s3://bucket/in/a/*.pdf", True),
        (("s3://bucket/in/a",), "s3://bucket/in/b/*.pdf", False),
    ],
)
def test_folders_that_a_key_may_read(
    settings: Settings, roots: tuple[str, ...] | None, url: str, allowed: bool
) -> None:
    with contextlib.nullcontext() if allowed else pytest.raises(SourceFailed):
        check_source(Source(urls=[url]), settings, limits(roots=roots))


def test_what_is_tried_again_is_checked_again(settings: Settings) -> None:
    ingestion = made({"urls": 1}, roots=("/srv/docs/a",))
    for allowed in ({}, {"sinks": ("main/t",), "roots": ("/srv/docs/a",)}):
        check_again(ingestion, settings, limits(**allowed))
    for refused in ({"sinks": ("main/u",)}, {"roots": ("/srv/docs/b",)}, {"roots": ()}):
        with raises_code("invalid_value", SourceFailed.code):
            check_again(ingestion, settings, limits(**refused))
    # A table of another key is loaded into again while the limits name it.
    shared = made({"documents": 1}, shares_table=True)
    check_again(shared, settings, limits(sinks=("main/t",)))
    for key in (limits(), limits(sinks=("main",))):
        with raises_code("invalid_value"):
            check_again(shared, settings, key)
