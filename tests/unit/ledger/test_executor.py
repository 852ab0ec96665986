"""Redis's own failures in the words of this project. What a real Redis does is in tests/integration/ledger."""

import re
from pathlib import Path

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
from tasks.ledger.executor import SCRIPTS, argument_names, own_arguments, source, translate
from tasks.ledger.operations import ClaimRequest, Operation, claim, submit
from tests.ledger_builders import submission

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.lua"))
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


@pytest.mark.parametrize("name", NAMES)
def test_every_script_says_what_it_does_and_begins_with_the_base(name: str) -> None:
    text = source(name)
    own = (SCRIPTS / f"{name}.lua").read_text()
    assert text.endswith(own)
    assert text.startswith((SCRIPTS / "shared/base.lua").read_text())
    assert own.startswith("-- ")


def test_a_script_has_each_shared_part_once_and_before_those_that_use_it() -> None:
    text = source("watch")
    heads = [(SCRIPTS / f"shared/{part}.lua").read_text() for part in ("base", "accounts", "ending", "leases")]
    assert [text.count(head) for head in heads] == [1, 1, 1, 1]
    assert sorted(heads, key=text.index) == heads
    assert (SCRIPTS / "shared/admission.lua").read_text() not in text


def test_what_a_script_seldom_needs_is_made_when_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    parts = {
        "base": "-- base",
        "one": "-- one",
        "two": "-- uses: one three\nlocal function f() end",
        "three": "-- three",
    }
    for name, text in parts.items():
        (tmp_path / f"shared/{name}.lua").write_text(text)
    (tmp_path / "script.lua").write_text("-- uses: one\n-- may use: two f\nf(1)")
    assert source("script", tmp_path).splitlines() == [
        "-- base",
        "-- one",
        "local function f(...)",
        "-- three",
        *parts["two"].splitlines(),
        "return f(...)",
        "end",
        "-- uses: one",
        "-- may use: two f",
        "f(1)",
    ]


def test_shared_parts_that_use_one_another_are_named(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for name, text in {"base": "", "one": "-- uses: two", "two": "-- uses: one"}.items():
        (tmp_path / f"shared/{name}.lua").write_text(text)
    (tmp_path / "script.lua").write_text("-- uses: one")
    with pytest.raises(ValueError, match="shared/one, shared/two, shared/one"):
        source("script", tmp_path)


@pytest.mark.parametrize("file", [*NAMES, *(f"shared/{path.stem}" for path in sorted(SCRIPTS.glob("shared/*.lua")))])
def test_a_script_names_the_shared_parts_that_it_uses_and_no_others(file: str) -> None:
    defined: dict[str, str] = {}
    for path in SCRIPTS.glob("shared/*.lua"):
        for match in re.finditer(r"^local (?:function (\w+)|([\w, ]+?)(?: =|$))", path.read_text(), re.MULTILINE):
            defined |= dict.fromkeys((match[1] or match[2]).replace(",", " ").split(), path.stem)
    text = (SCRIPTS / f"{file}.lua").read_text()
    uses = re.search(r"^-- uses: (.+)$", text, re.MULTILINE)
    code = re.sub(r"'[^']*'", "", re.sub(r"--.*", "", text))
    own = set(re.findall(r"\w+", " ".join(re.findall(r"local (?:function )?([\w, ]+)", code))))
    words = set(re.findall(r"(?<![.\w])\w+", code)) - own
    seldom = dict(re.findall(r"^-- may use: (\w+) (\w+)$", text, re.MULTILINE))
    assert all(defined[function] == part and function in words for part, function in seldom.items())
    needed = {defined[word] for word in words if word in defined} - {"base", file.removeprefix("shared/"), *seldom}
    assert sorted(needed) == (uses[1].split() if uses else [])


def test_arguments_by_name_travel_in_the_order_of_the_script() -> None:
    request = ClaimRequest(worker="w", token="w/1", budget=10, max_units=5, lease_ms=1000, stamp="s")
    names = argument_names("claim")
    sent = own_arguments(claim("m", request))
    assert len(sent) == len(names) == 15
    values = dict(zip(names, sent, strict=True))
    assert (values["worker"], values["token"], values["budget"], values["stamp"]) == ("w", "w/1", 10, "s")


def test_an_operation_that_merges_says_how_many_arguments_are_its_own() -> None:
    number, *own = own_arguments(submit(submission(task_id="t")))
    assert (number, len(own), own[0], own[-1]) == (26, 26, "t", b'["a"]')


@pytest.mark.parametrize("named", [{}, {"worker": "w"}, dict.fromkeys([*argument_names("claim")[1:], "speed"], 1)])
def test_a_script_gets_all_of_its_names_and_no_others(named: dict[str, str | int]) -> None:
    with pytest.raises(ValueError, match=r"claim\.lua takes"):
        own_arguments(Operation("claim", "m", (), bool, named))


@pytest.mark.parametrize("script", NAMES)
def test_a_script_takes_few_arguments_or_names_them(script: str) -> None:
    text = (SCRIPTS / f"{script}.lua").read_text()
    numbers = [int(number) for number in re.findall(r"\barg\((\d+)\)", text)]
    assert max(numbers, default=0) <= 6
    if "named(" in text:
        assert re.search(rf"\b(named\(|NAMED = ){len(argument_names(script))}\b", text)
