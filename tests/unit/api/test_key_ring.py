"""The ring of keys of one process: what a reading of the ledger changes, and what time does."""

from collections.abc import Callable
from typing import Any

import pytest
from starlette.datastructures import Headers

from api.request.api_keys import Grant, KeyRing
from tasks.errors import RedisUnavailable, Unauthenticated
from tasks.records.api_keys import ALL_SCOPES, Key, KeyDigest, KeyReading, Limits, Scope, digest_of
from worker_config.settings import load_settings

NOW_S = 1_000_000.0
"""Of the clock of Redis, where the clock of the test shows 0."""


class Waiting:
    """Counts how often it was told to leave."""

    def __init__(self) -> None:
        self.left = 0

    def leave(self) -> None:
        self.left += 1


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def record(name: str, *texts: str, **fields: Any) -> Key:
    digests = tuple(KeyDigest(sha256=digest_of(text)) for text in texts or (name,))
    return Key(name=name, digests=digests, scopes=fields.pop("scopes", ALL_SCOPES), created=1, **fields)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ring(clock: Clock) -> KeyRing:
    return KeyRing(load_settings(), clock)


@pytest.fixture
def read(ring: KeyRing, clock: Clock) -> Callable[..., None]:
    """Lets the ring read these records, and only that nothing has changed where they are those of before."""
    stamps = iter(range(1000))

    def take(*records: Key) -> None:
        stored = {one.name: one.to_json() for one in records}
        ring.take(KeyReading(NOW_S + clock.now_s, str(next(stamps)), stored))

    return take


def of(ring: KeyRing, text: str) -> Grant:
    return ring.grant(Headers({"x-api-key": text}))


def refusal(ring: KeyRing, text: str) -> str:
    with pytest.raises(Unauthenticated) as raised:
        of(ring, text)
    return raised.value.detail


def test_before_the_first_reading_nobody_is_judged(ring: KeyRing) -> None:
    for headers in ({}, {"x-api-key": "a"}):
        with pytest.raises(RedisUnavailable):
            ring.grant(Headers(headers))
    assert not ring.is_open


def test_a_ledger_that_never_had_a_key_is_open(ring: KeyRing) -> None:
    ring.take(KeyReading(NOW_S, "", {}))

    assert Scope.ADMIN not in ring.grant(Headers({})).caller.scopes


def test_it_stays_closed_when_the_last_key_is_deleted_or_redis_has_lost_all(
    ring: KeyRing, read: Callable[..., None]
) -> None:
    read(record("a"))
    read()
    for stamp in ("deleted", ""):
        ring.take(KeyReading(NOW_S, stamp, {}))
        with pytest.raises(Unauthenticated):
            ring.grant(Headers({}))


def test_what_has_not_changed_stays(ring: KeyRing, read: Callable[..., None]) -> None:
    read(record("a"), record("b"))
    before = of(ring, "a")

    ring.take(KeyReading(NOW_S, "0", None))
    read(record("a"), record("b", scopes={Scope.READ}))

    assert of(ring, "a") is before
    assert of(ring, "b").caller.scopes == {Scope.READ}


def test_the_time_of_redis_ends_a_key_also_while_redis_is_away(
    ring: KeyRing, read: Callable[..., None], clock: Clock
) -> None:
    read(record("a", expires=NOW_S + 10))
    with of(ring, "a").followed(waiting := Waiting()):
        clock.now_s = 9.9
        ring.expire()
        assert waiting.left == 0
        clock.now_s = 10
        assert refusal(ring, "a") == "This API key has expired."
        ring.expire()
        ring.expire()
    assert waiting.left == 1


def test_a_clock_of_this_machine_that_goes_wrong_ends_nothing(
    ring: KeyRing, read: Callable[..., None], clock: Clock
) -> None:
    read(record("a", expires=NOW_S + 10))
    clock.now_s = 3600
    ring.take(KeyReading(NOW_S + 5, "0", None))  # by the clock of Redis only five seconds have gone by

    assert of(ring, "a").caller.name == "a"


def test_whoever_waits_leaves_when_the_key_gives_less(ring: KeyRing, read: Callable[..., None]) -> None:
    limited, narrowed, revoked, rotated, deleted = (Waiting() for _ in range(5))
    names = ("limited", "narrowed", "revoked", "rotated", "deleted")
    read(*map(record, names))
    with (
        of(ring, "limited").followed(limited),
        of(ring, "narrowed").followed(narrowed),
        of(ring, "revoked").followed(revoked),
        of(ring, "rotated").followed(rotated),
        of(ring, "deleted").followed(deleted),
    ):
        read(
            record("limited", limits=Limits(open_jobs=1), expires=NOW_S + 1),
            record("narrowed", scopes={Scope.READ}),
            record("revoked", revoked=NOW_S),
            record("rotated", "new"),
        )
        assert [one.left for one in (limited, narrowed, revoked, rotated, deleted)] == [0, 1, 1, 1, 1]
    assert of(ring, "limited").caller.limits.open_jobs == 1
    assert of(ring, "narrowed").caller.scopes == {Scope.READ}
    assert refusal(ring, "revoked") == "This API key was revoked."
    assert {refusal(ring, text) for text in ("rotated", "deleted")} == {"This API key is not known here."}


def test_whoever_comes_too_late_to_wait_leaves_at_once(ring: KeyRing, read: Callable[..., None]) -> None:
    read(record("a"))
    grant = of(ring, "a")
    read(record("a", revoked=NOW_S))

    with grant.followed(waiting := Waiting()):
        assert waiting.left == 1


def test_a_revoked_key_that_somebody_puts_back_is_valid_again(ring: KeyRing, read: Callable[..., None]) -> None:
    read(record("a", revoked=NOW_S))
    read(record("a"))  # an older copy of Redis's data was loaded

    assert of(ring, "a").refusal == ""


def test_a_record_of_another_version_lets_nobody_in(ring: KeyRing, caplog: pytest.LogCaptureFixture) -> None:
    ring.take(KeyReading(NOW_S, "1", {"a": b'{"name":"a"}', "b": record("b").to_json()}))

    assert of(ring, "b").caller.name == "b"
    assert refusal(ring, "a") == "This API key is not known here."
    ring.take(KeyReading(NOW_S, "2", {"a": b'{"name":"a"}'}))
    assert [line.getMessage() for line in caplog.records] == [
        "the key a is refused: its record is of another version of embedq"
    ]


def test_rotating_keeps_the_texts_before_for_the_time_of_grace(
    ring: KeyRing, read: Callable[..., None], clock: Clock
) -> None:
    first = record("a", "one")
    second = first.rotate(digest_of("two"), NOW_S, 60)
    third = second.rotate(digest_of("three"), NOW_S + 1, 10)
    read(third)

    for at_s, valid in ((0.0, {"one", "two", "three"}), (12.0, {"three"})):
        clock.now_s = at_s
        for text in ("one", "two", "three"):
            if text in valid:
                assert of(ring, text).caller.name == "a"
            else:
                refusal(ring, text)
    assert len(third.rotate(digest_of("four"), NOW_S + 20, 0).digests) == 1
