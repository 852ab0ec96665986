"""Redis's own failures in the words of this project. What a real Redis does is in tests/integration/ledger."""

import re

import pytest
import redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from tasks.errors import RedisUnavailable, StorageFull
from tasks.ledger.executor import SCRIPTS, argument_names, script_arguments, source, translate
from tasks.ledger.operations import ClaimRequest, Operation, claim

IN_SCRIPT = "Error running script (call to f_0): @user_script:226: @user_script: 226: "


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


@pytest.mark.parametrize("name", sorted(file.stem for file in SCRIPTS.glob("*.lua") if file.stem != "prelude"))
def test_every_script_says_what_it_does_and_has_the_prelude(name: str) -> None:
    text = source(name)
    own = (SCRIPTS / f"{name}.lua").read_text()
    assert text.endswith(own)
    assert text.startswith((SCRIPTS / "prelude.lua").read_text())
    assert own.startswith("-- ")


def test_arguments_by_name_travel_in_the_order_of_the_script() -> None:
    request = ClaimRequest(worker="w", token="w/1", budget=10, max_units=5, lease_ms=1000, stamp="s")
    names = argument_names("claim")
    sent = script_arguments("eq", 0, claim("m", request))
    assert sent[:3] == ["eq", 0, "m"]
    assert len(sent) == 3 + len(names) == 16
    values = dict(zip(names, sent[3:], strict=True))
    assert (values["worker"], values["token"], values["budget"], values["stamp"]) == ("w", "w/1", 10, "s")


@pytest.mark.parametrize("named", [{}, {"worker": "w"}, dict.fromkeys([*argument_names("claim")[1:], "speed"], 1)])
def test_a_script_gets_all_of_its_names_and_no_others(named: dict[str, str | int]) -> None:
    with pytest.raises(ValueError, match=r"claim\.lua takes"):
        script_arguments("eq", 0, Operation("claim", "m", (), bool, named))


@pytest.mark.parametrize("script", sorted(path.stem for path in SCRIPTS.glob("*.lua") if path.stem != "prelude"))
def test_a_script_takes_few_arguments_or_names_them(script: str) -> None:
    text = (SCRIPTS / f"{script}.lua").read_text()
    numbers = [int(number) for number in re.findall(r"\barg\((\d+)\)", text)]
    assert max(numbers, default=0) <= 6 or script == "submit"
    if "named(" in text:
        assert f"named({len(argument_names(script))})" in text
