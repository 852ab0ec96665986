"""What is asked of replicas, and what their answers mean."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from tasks.errors import NotReplicated
from tasks.ledger.replicas import FORGET_S, Replicas

UNKNOWN = ResponseError("unknown command 'WAITAOF'")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("tasks.ledger.replicas.time.monotonic", made)
    return made


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


def asked(replicas: Replicas) -> list[object]:
    return [command[0] for command in replicas.question()]


def test_the_disk_of_a_replica_is_asked_for_first(replicas: Replicas) -> None:
    assert asked(replicas) == ["PUBLISH", "WAITAOF", "WAIT"]
    assert replicas.doubt([0, [1, 1], 1]) is None
    assert asked(replicas) == ["PUBLISH", "WAITAOF", "WAIT"]


@pytest.mark.parametrize("answer", [UNKNOWN, NoPermissionError("no permissions to run 'waitaof'"), [1, 0]])
def test_a_replica_that_has_it_in_memory_is_enough_and_asked_for_that_alone(
    replicas: Replicas, clock: Clock, answer: object
) -> None:
    assert replicas.doubt([0, answer, 1]) is None
    assert asked(replicas) == ["PUBLISH", "WAIT"]
    assert replicas.doubt([0, 1]) is None
    clock.now += FORGET_S
    assert asked(replicas) == ["PUBLISH", "WAITAOF", "WAIT"]


@pytest.mark.parametrize("answers", [[0, [1, 0], 0], [0, UNKNOWN, 0], [0, 0]])
def test_no_replica_in_time_is_said(replicas: Replicas, answers: list[object]) -> None:
    doubt = replicas.doubt(answers)
    assert isinstance(doubt, NotReplicated)
    assert doubt.code == "not_replicated"
    assert asked(replicas) == ["PUBLISH", "WAITAOF", "WAIT"]


@pytest.mark.parametrize(
    "error", [RedisConnectionError("UNBLOCKED"), NoPermissionError("no permissions to run 'wait'")]
)
def test_an_error_stays_what_it_is(replicas: Replicas, error: RedisError) -> None:
    assert replicas.doubt([0, UNKNOWN, error]) is error
    assert replicas.doubt([error, [1, 1], 1]) is error
