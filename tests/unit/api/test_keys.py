"""The keys of one process: who is let in, what a reading of Redis and time change; sinks and folders of a key."""

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from api.auth import Keys
from api.schemas.new_ingestion import DatasetSink, PostgresSink
from api.services.ingestion_checks import check_again, check_sink
from tasks.errors import RedisUnavailable, SourceFailed, Unauthenticated
from tasks.ledger.client import AsyncLedger
from tasks.records.api_keys import ALL_SCOPES, NO_LIMITS, Key, KeyDigest, Limits, Mark, Scope, StoredKeys, digest_of
from tasks.records.ingestions import Ingestion, IngestionRecord
from tasks.records.jobs import JobStatus
from tasks.records.store import ReadRecord
from tests.raises_code import raises_code
from worker_config.settings import load_settings

NOW_S = 1_000_000.0
"""Of the clock of Redis, where the clock of the test shows 0."""
LEDGER = AsyncLedger.connect("redis://127.0.0.1:1/0")
"""Nobody asks it."""


def record(name: str, **fields: Any) -> Key:
    values = {"owner": f"owner of {name}", "scopes": ALL_SCOPES, "created": 1.0} | fields
    return Key.model_validate({"name": name, "digests": (KeyDigest(sha256=digest_of(name)),), **values})


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now_s=0.0)


@pytest.fixture
def keys(clock: SimpleNamespace) -> Keys:
    return Keys(load_settings(), LEDGER, clock=lambda: clock.now_s)


@pytest.fixture
def read(keys: Keys, clock: SimpleNamespace) -> Callable[..., None]:
    """Lets the table read these records."""
    stamps = iter(range(1000))

    def take(*records: Key, purged: Sequence[Key] = ()) -> None:
        stored = [ReadRecord(one.owner, one, "a change", f"@all:{one.name}") for one in records]
        marks = [
            ReadRecord(key.owner, Mark(name=key.name, owner=key.owner, purged=NOW_S), "a change") for key in purged
        ]
        keys.take(StoredKeys(NOW_S + clock.now_s, (str(next(stamps)), ""), stored, marks))

    return take


def of(keys: Keys, text: str) -> str:
    """Whose key this is, or why it is refused."""
    try:
        return keys.find(Headers({"x-api-key": text})).name
    except Unauthenticated as error:
        return error.detail


def test_it_is_closed_before_the_first_reading_and_stays_so_when_redis_has_lost_all(
    keys: Keys, read: Callable[..., None]
) -> None:
    for headers in ({}, {"x-api-key": "a"}):
        with pytest.raises(RedisUnavailable):
            keys.find(Headers(headers))
    read(record("a"))
    read()
    for stamp in ("deleted", ""):
        keys.take(StoredKeys(NOW_S, (stamp, ""), []))
        with pytest.raises(Unauthenticated):
            keys.find(Headers({}))


def test_the_time_of_redis_ends_a_key_also_while_redis_is_away(
    keys: Keys, read: Callable[..., None], clock: SimpleNamespace
) -> None:
    read(record("a", expires=NOW_S + 10))
    clock.now_s = 9.9
    assert of(keys, "a") == "a"
    clock.now_s = 10
    assert of(keys, "a") == "This API key has expired."
    clock.now_s = 3600
    keys.take(StoredKeys(NOW_S + 5, ("0", "")))  # by the clock of Redis only five seconds have gone by
    assert of(keys, "a") == "a"
    read(record("a", revoked=NOW_S))
    assert of(keys, "a") == "This API key was revoked."
    read(record("a"))  # an older copy of Redis's data was loaded
    assert of(keys, "a") == "a"


def test_a_key_that_ended_while_its_request_was_sent_is_refused(keys: Keys, read: Callable[..., None]) -> None:
    read(record("a"), record("b"))
    key = keys.find(Headers({"x-api-key": "a"}))
    keys.require_known(key)
    read(record("a", scopes={Scope.READ}), record("b"))
    keys.require_known(key)  # what the request may do was decided when it came
    revoked, next_one = record("a", revoked=NOW_S), record("a", owner="the next one")
    for after, purged in (([revoked], []), ([record("a")], [record("a")]), ([record("b")], []), ([next_one], [])):
        read(*after, purged=purged)
        with pytest.raises(Unauthenticated):
            keys.require_known(key)


# ---- sinks and folders, among those of the server --------------------------------------------------------------------

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
