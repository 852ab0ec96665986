"""The keys of one process: who is let in, and what a reading of Redis and time change."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest
from starlette.datastructures import Headers

from api.auth import Keys
from tasks.errors import RedisUnavailable, Unauthenticated
from tasks.ledger.client import AsyncLedger
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records.api_keys import (
    ALL_SCOPES,
    Key,
    KeyDigest,
    Mark,
    Scope,
    StoredKeys,
    digest_of,
)
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


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def record(name: str, *texts: str, **fields: Any) -> Key:
    values = {"owner": f"owner of {name}", "scopes": ALL_SCOPES, "created": 1.0} | fields
    digests = tuple(KeyDigest(sha256=digest_of(text)) for text in texts or (name,))
    return Key.model_validate({"name": name, "digests": digests, **values})


def stored(*records: Key) -> list[ReadRecord[Key]]:
    return [ReadRecord(one.owner, one, "a change", f"@all:{one.name}") for one in records]


def marks(*keys: Key) -> list[ReadRecord[Mark]]:
    return [ReadRecord(key.owner, Mark(name=key.name, owner=key.owner, purged=NOW_S), "a change") for key in keys]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gone() -> set[str]:
    """Owners that were forgotten."""
    return set()


@pytest.fixture
def keys(clock: Clock, gone: set[str]) -> Keys:
    return Keys(load_settings(), LEDGER, gone.update, clock)


@pytest.fixture
def read(keys: Keys, clock: Clock) -> Callable[..., None]:
    """Lets the table read these records."""
    stamps = iter(range(1000))

    def take(*records: Key, purged: Sequence[Key] = ()) -> None:
        keys.take(StoredKeys(NOW_S + clock.now_s, (str(next(stamps)), ""), stored(*records), marks(*purged)))

    return take


def of(keys: Keys, text: str) -> Key:
    return keys.find(Headers({"x-api-key": text}))


def refusal(keys: Keys, text: str) -> str:
    with pytest.raises(Unauthenticated) as raised:
        of(keys, text)
    return raised.value.detail


SENT: list[tuple[dict[str, str], str | None]] = [
    ({"authorization": "Bearer secret-ann"}, "ann"),
    ({"authorization": "BEARER  secret-bob "}, "bob"),
    ({"api-key": "secret-bob"}, "bob"),
    ({"x-api-key": "secret-ann"}, "ann"),
    ({"authorization": "Bearer secret-ann", "x-api-key": "wrong"}, "ann"),
    ({"authorization": "Bearer x", "x-api-key": "secret-ann"}, "ann"),  # a placeholder of a client that needs one
    ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "secret-bob"}, "bob"),
    ({"authorization": "Basic eDp5", "api-key": "secret-bob", "x-api-key": "x"}, "bob"),
    ({"authorization": "Bearer secret-ann", "api-key": "secret-bob"}, "ann"),
    ({}, None),
    ({"authorization": "Bearer"}, None),
    ({"authorization": "Bearer "}, None),
    ({"authorization": "Bearer secret-eve"}, None),
    ({"authorization": "Token secret-ann"}, None),
    ({"authorization": f"Bearer {sha256(b'secret-ann').hexdigest()}"}, None),
    ({"x-api-key": "sécret"}, None),
    ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "z"}, None),
]
"""Headers, and whose key they hold."""


@pytest.mark.parametrize(("headers", "name"), SENT)
def test_a_key_is_read_from_any_of_the_headers(headers: dict[str, str], name: str | None) -> None:
    raw = Headers(raw=[(key.encode(), value.encode()) for key, value in headers.items()])
    if name:
        assert NAMED.find(raw).name == name
    else:
        with pytest.raises(Unauthenticated):
            NAMED.find(raw)


def test_without_keys_everybody_is_anonymous_and_manages_none(keys: Keys, gone: set[str]) -> None:
    keys.take(StoredKeys(0, ("", ""), []))
    found = keys.find(Headers({"authorization": "Bearer x"}))
    assert (found.name, found.owner) == (ANONYMOUS, "anonymous")
    assert Scope.ADMIN not in found.scopes
    keys.take(StoredKeys(0, ("", "new"), [], marks(Key.anonymous(0), Key.anonymous(1))))
    assert keys.find(Headers({})).owner == "anonymous-2"
    assert gone == {"anonymous"}


def test_before_the_first_reading_nobody_is_judged(keys: Keys) -> None:
    for headers in ({}, {"x-api-key": "a"}):
        with pytest.raises(RedisUnavailable):
            keys.find(Headers(headers))


def test_it_stays_closed_when_the_last_key_is_deleted_or_redis_has_lost_all(
    keys: Keys, read: Callable[..., None]
) -> None:
    read(record("a"))
    read()
    for stamp in ("deleted", ""):
        keys.take(StoredKeys(NOW_S, (stamp, ""), []))
        with pytest.raises(Unauthenticated):
            keys.find(Headers({}))


def test_the_time_of_redis_ends_a_key_also_while_redis_is_away(
    keys: Keys, read: Callable[..., None], clock: Clock
) -> None:
    read(record("a", expires=NOW_S + 10))
    clock.now_s = 9.9
    assert of(keys, "a").name == "a"
    clock.now_s = 10
    assert refusal(keys, "a") == "This API key has expired."
    read(record("a", revoked=NOW_S))
    assert refusal(keys, "a") == "This API key was revoked."
    read(record("a"))  # an older copy of Redis's data was loaded
    assert of(keys, "a").name == "a"


def test_a_clock_of_this_machine_that_goes_wrong_ends_nothing(
    keys: Keys, read: Callable[..., None], clock: Clock
) -> None:
    read(record("a", expires=NOW_S + 10))
    clock.now_s = 3600
    keys.take(StoredKeys(NOW_S + 5, ("0", "")))  # by the clock of Redis only five seconds have gone by

    assert of(keys, "a").name == "a"


def test_what_is_purged_or_gone_is_forgotten(keys: Keys, read: Callable[..., None], gone: set[str]) -> None:
    read(record("a"), record("b"), record("c"))
    read(record("a"), record("b", revoked=NOW_S))
    assert gone == {"owner of c"}, "a key that is revoked may still own what is open"
    read(record("a"), record("b", revoked=NOW_S), purged=[record("b")])
    assert gone == {"owner of b", "owner of c"}


def test_a_key_that_ended_while_its_request_was_sent_is_refused(keys: Keys, read: Callable[..., None]) -> None:
    read(record("a"), record("b"))
    key = of(keys, "a")
    keys.require_known(key)
    read(record("a", scopes={Scope.READ}), record("b"))
    keys.require_known(key)  # what the request may do was decided when it came
    for after, purged in (([record("a", revoked=NOW_S)], []), ([record("a")], [record("a")]), ([record("b")], [])):
        read(*after, purged=purged)
        with pytest.raises(Unauthenticated):
            keys.require_known(key)
    read(record("a", owner="the next one"))
    with pytest.raises(Unauthenticated):
        keys.require_known(key)


def test_a_record_of_another_version_lets_nobody_in(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    unread: ReadRecord[Key] = ReadRecord("owner of a", None, "a change", "@all:a")
    keys.take(StoredKeys(NOW_S, ("1", ""), [unread, *stored(record("b"))]))

    assert of(keys, "b").name == "b"
    assert refusal(keys, "a") == "This API key is not known here."
    keys.take(StoredKeys(NOW_S, ("1", "")))
    assert [line.getMessage() for line in caplog.records] == [
        "the key a is refused: its record is of another version of embedq"
    ]
