"""The keys of one process: who is let in, and what a reading of Redis and time change."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from api.auth import Keys
from tasks.errors import RedisUnavailable, Unauthenticated
from tasks.ledger.client import AsyncLedger
from tasks.records.api_keys import ALL_SCOPES, Key, KeyDigest, Mark, Scope, StoredKeys, digest_of
from tasks.records.store import ReadRecord
from worker_config.settings import load_settings

NOW_S = 1_000_000.0
"""Of the clock of Redis, where the clock of the test shows 0."""
LEDGER = AsyncLedger.connect("redis://127.0.0.1:1/0")
"""Nobody asks it."""
NAMED = Keys(
    load_settings(
        api_keys=",".join(f"{name}:{sha256(f'secret-{name}'.encode()).hexdigest()}" for name in ("ann", "bob"))
    ),
    LEDGER,
)
NAMED.take(StoredKeys(0, ("", ""), []))
SENT: list[tuple[dict[str, str], str]] = [
    ({"authorization": "Bearer secret-ann"}, "ann"),
    ({"authorization": "BEARER  secret-bob "}, "bob"),
    ({"api-key": "secret-bob"}, "bob"),
    ({"authorization": "Bearer secret-ann", "x-api-key": "wrong"}, "ann"),
    ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "secret-bob"}, "bob"),  # a client that needs one
    ({"authorization": "Basic eDp5", "api-key": "secret-bob", "x-api-key": "x"}, "bob"),
    ({"authorization": "Bearer secret-ann", "api-key": "secret-bob"}, "ann"),
    ({}, ""),
    ({"authorization": "Bearer"}, ""),
    ({"authorization": "Bearer "}, ""),
    ({"authorization": "Token secret-ann"}, ""),
    ({"authorization": f"Bearer {sha256(b'secret-ann').hexdigest()}"}, ""),
    ({"x-api-key": "sécret"}, ""),
    ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "z"}, ""),
]
"""Headers, and whose key they hold; "": nobody's."""


@pytest.mark.parametrize(("headers", "name"), SENT)
def test_a_key_is_read_from_any_of_the_headers(headers: dict[str, str], name: str) -> None:
    raw = Headers(raw=[(key.encode(), value.encode()) for key, value in headers.items()])
    if name:
        assert NAMED.find(raw).name == name
    else:
        with pytest.raises(Unauthenticated):
            NAMED.find(raw)


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
