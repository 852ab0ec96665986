"""Redis's own failures in the words of this project. What a real Redis does is in tests/integration/ledger."""

import pytest
import redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from tasks.errors import RedisUnavailable, StorageFull
from tasks.ledger.client import translate

IN_SCRIPT = "Error running script (call to f_0): @user_script:226: @user_script: 226: "
SCRIPT_7 = "script: 104ae65debf45156ded1e8e613705534c8e62c17, on @user_script:1."


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("refused"),
        redis.TimeoutError("slow"),
        BusyLoadingError("Redis is loading the dataset in memory"),
        AuthenticationError("invalid password"),
        ReadOnlyError("You can't write against a read only replica."),  # redis-py has cut the code off
        MasterDownError("Link with MASTER is down"),
        ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        ResponseError(IN_SCRIPT + "-MISCONF Errors writing to the AOF file: No space left on device"),
        ResponseError("READONLY You can't write against a read only replica."),
        ResponseError(IN_SCRIPT + "-READONLY You can't write against a read only replica."),
        ResponseError(IN_SCRIPT + "-NOREPLICAS Not enough good replicas to write."),
        ResponseError("BUSY Redis is busy running a script."),
        ResponseError("MASTERDOWN Link with MASTER is down"),
        ResponseError("NOAUTH Authentication required."),
        NoPermissionError("this user has no permissions to run the 'time' command"),
        ResponseError(IN_SCRIPT + "The user executing the script can't run this command or subcommand"),
        ResponseError(
            f"The user executing the script can't publish to the channel mentioned in the command {SCRIPT_7}"
        ),
        ResponseError(f"ACL failure in script: No permissions to access a key {SCRIPT_7}"),
    ],
)
def test_a_redis_that_cannot_serve_is_unavailable(error: RedisError) -> None:
    translated = translate(error)
    assert isinstance(translated, RedisUnavailable)
    assert translated.retry_after_s


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
        ResponseError(IN_SCRIPT + "-OOM command not allowed when used memory > 'maxmemory'."),
    ],
)
def test_a_full_redis_is_full_storage(error: RedisError) -> None:
    assert isinstance(translate(error), StorageFull)


@pytest.mark.parametrize(
    "text",
    [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        IN_SCRIPT + "attempt to index a nil value",
        IN_SCRIPT + "BUSYBODY LOADINGS",
    ],
)
def test_a_defect_stays_what_it_is(text: str) -> None:
    error = ResponseError(text)
    assert translate(error) is error
