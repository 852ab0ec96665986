"""The keys of one process: who is let in, and what a reading of Redis and time change."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest
from starlette.datastructures import Headers

from api.auth import Keys, require_scope
from tasks.errors import Forbidden, RedisUnavailable, Unauthenticated
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
    environment_owner,
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


def name_of(headers: Headers, keys: Keys = NAMED) -> str:
    return keys.find(headers).name


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"authorization": "Bearer secret-ann"}, "ann"),
        ({"authorization": "BEARER  secret-bob "}, "bob"),
        ({"api-key": "secret-bob"}, "bob"),
        ({"x-api-key": "secret-ann"}, "ann"),
        ({"authorization": "Bearer secret-ann", "x-api-key": "wrong"}, "ann"),
        ({"authorization": "Bearer x", "x-api-key": "secret-ann"}, "ann"),  # a placeholder of a client that needs one
        ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "secret-bob"}, "bob"),
        ({"authorization": "Basic eDp5", "api-key": "secret-bob", "x-api-key": "x"}, "bob"),
        ({"authorization": "Bearer secret-ann", "api-key": "secret-bob"}, "ann"),
    ],
)
def test_a_key_is_read_from_any_of_the_headers(headers: dict[str, str], name: str) -> None:
    assert name_of(Headers(headers)) == name


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer secret-eve"},
        {"authorization": "Token secret-ann"},
        {"authorization": f"Bearer {sha256(b'secret-ann').hexdigest()}"},
        {"x-api-key": "sécret"},
        {"authorization": "Bearer x", "api-key": "y", "x-api-key": "z"},
    ],
)
def test_anything_else_is_refused(headers: dict[str, str]) -> None:
    raw = Headers(raw=[(name.encode(), value.encode()) for name, value in headers.items()])
    with pytest.raises(Unauthenticated):
        name_of(raw)


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


def test_a_clock_of_this_machine_that_goes_wrong_ends_nothing(
    keys: Keys, read: Callable[..., None], clock: Clock
) -> None:
    read(record("a", expires=NOW_S + 10))
    clock.now_s = 3600
    keys.take(StoredKeys(NOW_S + 5, ("0", "")))  # by the clock of Redis only five seconds have gone by

    assert of(keys, "a").name == "a"


def test_a_revoked_key_that_somebody_puts_back_is_valid_again(keys: Keys, read: Callable[..., None]) -> None:
    read(record("a", revoked=NOW_S))
    assert refusal(keys, "a") == "This API key was revoked."
    read(record("a"))  # an older copy of Redis's data was loaded
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


def test_a_purged_name_of_the_environment_stays_refused() -> None:
    keys = Keys(load_settings(api_keys=f"ann:{digest_of('text')}"), LEDGER)
    keys.take(StoredKeys(NOW_S, ("", ""), []))
    assert of(keys, "text").owner == environment_owner("ann")

    keys.take(StoredKeys(NOW_S, ("", "new"), [], marks(Key.of_environment("ann"))))

    assert "another name" in refusal(keys, "text")


def test_what_a_key_of_the_environment_lacks_is_told_with_its_setting_after_each_reading() -> None:
    keys = Keys(load_settings(api_keys=f"ann:{digest_of('text')}"), LEDGER)
    for stamp in ("1", "2"):
        key = of(keys, "text")
        keys.take(StoredKeys(NOW_S, (stamp, ""), stored(record("ann", "other", scopes={Scope.READ}))))
        with pytest.raises(Forbidden, match="name:sha256:admin"):
            require_scope(key, [Scope.ADMIN])
    with pytest.raises(Forbidden, match="embedq keys limits ann"):
        require_scope(of(keys, "other"), [Scope.ADMIN])


def test_a_record_of_another_version_lets_nobody_in(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    unread: ReadRecord[Key] = ReadRecord("owner of a", None, "a change", "@all:a")
    keys.take(StoredKeys(NOW_S, ("1", ""), [unread, *stored(record("b"))]))

    assert of(keys, "b").name == "b"
    assert refusal(keys, "a") == "This API key is not known here."
    keys.take(StoredKeys(NOW_S, ("1", "")))
    assert [line.getMessage() for line in caplog.records] == [
        "the key a is refused: its record is of another version of embedq"
    ]


def test_rotating_keeps_the_texts_before_for_the_time_of_grace(
    keys: Keys, read: Callable[..., None], clock: Clock
) -> None:
    first = record("a", "one")
    second = first.rotate(digest_of("two"), NOW_S, 60)
    third = second.rotate(digest_of("three"), NOW_S + 1, 10)
    read(third)

    for at_s, valid in ((0.0, {"one", "two", "three"}), (12.0, {"three"})):
        clock.now_s = at_s
        for text in ("one", "two", "three"):
            if text in valid:
                assert of(keys, text).name == "a"
            else:
                refusal(keys, text)
    assert len(third.rotate(digest_of("four"), NOW_S + 20, 0).digests) == 1


def test_who_manages_keys_may_see_the_operators_figures() -> None:
    assert record("a", scopes={Scope.ADMIN}).may({Scope.OPERATE})
    assert not record("a", scopes={Scope.READ}).may({Scope.OPERATE})
    assert not record("a", scopes={Scope.OPERATE}).may({Scope.ADMIN})
