"""Sinks and folders that a key may use, among those of the server."""

import contextlib
from typing import Any

import pytest

from api.schemas.new_ingestion import DatasetSink, PostgresSink
from api.services.ingestion_checks import check_again, check_sink
from tasks.errors import SourceFailed
from tasks.records.api_keys import NO_LIMITS, Limits
from tasks.records.ingestions import Ingestion, IngestionRecord
from tasks.records.jobs import JobStatus
from tests.raises_code import raises_code
from worker_config.settings import load_settings

SETTINGS = load_settings(sinks="main=postgresql://h/a,other=postgresql://h/b", ingest_roots="/srv/docs,s3://bucket/in")


def limits(**given: Any) -> Limits:
    return NO_LIMITS.model_copy(update=given)


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
        (("other", "main/a.*"), "main", "a.t", True),
    ],
)
def test_tables_that_a_key_may_load_into(sinks: tuple[str, ...] | None, name: str, table: str, allowed: bool) -> None:
    sink = PostgresSink(type="postgresql", name=name, table=table)
    with contextlib.nullcontext() if allowed else raises_code("invalid_value") as refused:
        check_sink(sink, SETTINGS, limits(sinks=sinks))
    assert refused is None or name == "main" or name not in refused.value.detail, (
        "it hears of no connection that it may not use"
    )
    check_sink(DatasetSink(type="dataset", dataset="mine"), SETTINGS, limits(sinks=sinks))


URLS, A = {"source": {"urls": 1}, "roots": ("/srv/docs/a",)}, "/srv/docs/a"
SHARED = {"source": {"documents": 1}, "shares_table": True}


@pytest.mark.parametrize(
    ("made", "rights", "allowed"),
    [
        (URLS, {}, True),
        (URLS, {"sinks": ("main/t",), "roots": (A,)}, True),
        (URLS, {"sinks": ("main/u",)}, False),
        (URLS, {"roots": ("/srv/docs/b",)}, False),
        (URLS, {"roots": ()}, False),
        # A table of another key is loaded into again while the limits name it.
        (SHARED, {"sinks": ("main/t",)}, True),
        (SHARED, {}, False),
        (SHARED, {"sinks": ("main",)}, False),
    ],
)
def test_what_is_tried_again_is_checked_again(made: dict[str, Any], rights: dict[str, Any], allowed: bool) -> None:
    of = dict(made)
    request = {"source": of.pop("source"), "sink": {"type": "postgresql", "name": "main", "table": "t"}}
    values = {"id": "ing_1", "owner": "ann", "ttl_ms": 1, "status": JobStatus.FAILED, "listed": True}
    ingestion = Ingestion(IngestionRecord(request=request, **values, **of), change="c", created_ms=0, now_ms=0)
    with contextlib.nullcontext() if allowed else raises_code("invalid_value", SourceFailed.code):
        check_again(ingestion, SETTINGS, limits(**rights))
